package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Write cuts the messages from a sequence to another, both included, into
// segments, and gives each to put, which must not keep bodies and index. The
// source, of the EVENTS created then, must begin with the first; it is not closed.
// What it has after the last is passed over. version is that of pipeline.FormatBackups in
// which they are written.
func Write(ctx context.Context, source pipeline.Source, version int, events time.Time, first, last uint64, put func(s Segment, bodies, index []byte) error) error {
	if first > last {
		return nil
	}
	var b builder
	if err := b.begin(version, events, first); err != nil {
		return err
	}
	for next := first; next <= last; {
		messages, err := source.Next(ctx)
		if err != nil {
			return fmt.Errorf("archive: read the messages from %d to %d: %w", next, last, err)
		}
		for i := range messages {
			m := &messages[i]
			if m.Sequence < next { // the opener of the source has read a part
				continue
			}
			if m.Sequence > last {
				next = last + 1
				break
			}
			if err := b.add(m); err != nil {
				return fmt.Errorf("archive: message %d: %w", m.Sequence, err)
			}
			if next = m.Sequence + 1; b.full() && next <= last {
				if err := b.flush(m.Sequence, put); err != nil {
					return err
				}
				if err := b.begin(version, events, next); err != nil {
					return err
				}
			}
		}
	}
	return b.flush(last, put)
}

func (b *builder) flush(last uint64, put func(s Segment, bodies, index []byte) error) error {
	s, bodies, index, err := b.end(last)
	if err == nil {
		err = s.Check() // nobody could read it, and what it should have may be trimmed
	}
	if err != nil {
		return fmt.Errorf("archive: messages %d to %d: %w", s.First, s.Last, err)
	}
	return put(s, bodies, index)
}
