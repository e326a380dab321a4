package jetlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

const progressPrefix = "import."

// Progress remembers, beside the streams it writes to, how far a piece of
// work has come. Names are of letters, digits, '-', '_' and '.'.
type Progress struct {
	bucket jetstream.KeyValue
}

// NewProgress uses the bucket of s.
func NewProgress(s *Streams) *Progress { return &Progress{s.bucket} }

// Load is what was last saved under name, nil when nothing was.
func (p *Progress) Load(ctx context.Context, name string) ([]byte, error) {
	e, err := p.bucket.Get(ctx, progressPrefix+name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("jetlog: load progress %s: %w", name, err)
	}
	return e.Value(), nil
}

// Save replaces what is stored under name.
func (p *Progress) Save(ctx context.Context, name string, value []byte) error {
	if _, err := p.bucket.Put(ctx, progressPrefix+name, value); err != nil {
		return fmt.Errorf("jetlog: save progress %s: %w", name, err)
	}
	return nil
}

// Forget removes it.
func (p *Progress) Forget(ctx context.Context, name string) error {
	if err := p.bucket.Purge(ctx, progressPrefix+name); err != nil {
		return fmt.Errorf("jetlog: forget progress %s: %w", name, err)
	}
	return nil
}
