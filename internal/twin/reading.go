package twin

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// OneReading asks at once for some rows of posts 1 to posts, in the first counter, and for
// all users, 1 to users, who may be in a column's sets. Of posts that nobody else likes the
// count is the number of members found, whatever happens beside the question.
func OneReading(ctx context.Context, of interface {
	Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error
}, column pipeline.Column, r *rand.Rand, posts, users uint64,
) error {
	var rows query.Rows
	for user := range users {
		rows.Sets = append(rows.Sets, pipeline.MemberOf{Column: column, Member: pipeline.Member{A: user + 1}})
	}
	ids := make([]uint64, 30)
	for i := range ids {
		ids[i] = 1 + r.Uint64N(posts)
	}
	if err := of.Rows(ctx, 0, []pipeline.Column{column}, ids, &rows, true); err != nil {
		return err
	}
	if len(rows.Missing) > 0 {
		return fmt.Errorf("%d are missing", rows.Missing)
	}
	for i, id := range ids {
		there := int64(0)
		for _, has := range rows.Has[i*len(rows.Sets):][:len(rows.Sets)] {
			if has {
				there++
			}
		}
		if rows.Values[i] != there {
			return fmt.Errorf("post %d, as of %d: %d likes, and %d that like it", id, rows.AsOf, rows.Values[i], there)
		}
	}
	return nil
}
