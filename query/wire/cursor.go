package wire

import (
	"fmt"

	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// cursor reads a message.
type cursor struct{ packed.Cursor }

func over(b []byte) *cursor { return &cursor{packed.Cursor{B: b}} }

// end ends a body: nothing is left over, unless the sender is newer.
func (c *cursor) end(version byte, what string) error {
	if c.Err == nil && len(c.B) > 0 && !newer(version) {
		c.Fail("%d bytes are left over", len(c.B))
	}
	if c.Err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, what, c.Err)
	}
	return nil
}
