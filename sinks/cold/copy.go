package cold

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/sinks/run"
)

// copying is one Copy.
type copying struct {
	*Import
	from  Source
	m     *Manifest
	runs  []*layer // by number; held; nil: not here yet
	bytes int64    // of those that are here
}

func (c *copying) end() {
	releaseAll(slices.DeleteFunc(c.runs, func(l *layer) bool { return l == nil }))
}

// tell reports how many bytes are here, with those of a run that is not whole.
func (c *copying) tell(part int64) {
	if c.Progress != nil {
		c.Progress(c.bytes+part, c.m.Bytes())
	}
}

// take has a run be the one of a number.
func (c *copying) take(n int, l *layer) {
	c.runs[n] = l.hold()
	c.bytes += l.info.Bytes
}

// find finds the runs that are here already. Each is taken once, even where two
// are the same: a list has no bytes twice. Of a shard that is refused only what
// was copied is: a run's sum may have been known before it was damaged.
func (c *copying) find(ctx context.Context) error {
	k := c.stack
	k.mu.Lock()
	var stored []*layer
	if k.err == nil {
		stored = slices.Concat(k.pending, k.visible.all)
	}
	here := newLayers(c.have, stored)
	k.mu.Unlock()
	defer here.release()
	taken := map[*layer]bool{}
	for n, info := range c.m.Runs {
		for _, l := range here.all {
			if taken[l] || l.info != info {
				continue
			}
			ours, _, err := l.sum(ctx, info.Bytes)
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				continue // what cannot be read here is copied
			}
			theirs, err := c.from.Sum(ctx, n)
			if err != nil {
				return fmt.Errorf("cold: import shard %d: run %d of %d: %w", c.stack.number, n+1, len(c.m.Runs), err)
			}
			if ours == theirs {
				taken[l] = true
				c.take(n, l)
				break
			}
		}
	}
	for _, l := range slices.Clone(c.have) {
		if !taken[l] { // this export does not have it
			c.forget(l)
		}
	}
	return nil
}

// forget lets go a run that was copied.
func (c *copying) forget(l *layer) {
	c.Import.have = slices.DeleteFunc(c.have, func(o *layer) bool { return o == l })
	l.release()
	c.stack.store.files.sweep()
}

// fetch copies a run into a file of its own, and checks it: its sum, and every block.
func (c *copying) fetch(ctx context.Context, n int) error {
	info, s := c.m.Runs[n], c.stack.store
	number := s.files.next.Add(1)
	file, err := s.engine.Create(fileName(number))
	if err != nil {
		return err
	}
	sum, err := c.fill(ctx, n, file)
	if err != nil {
		file.Abort()
		return err
	}
	if err := file.Seal(); err != nil {
		return err
	}
	l, err := c.open(number, info)
	if err != nil {
		return fmt.Errorf("as it was exported: %w", err)
	}
	l.summing.sum, l.summing.at = sum, info.Bytes
	c.Import.have = append(c.have, l)
	if err = l.verify(func() bool { return ctx.Err() == nil }); err == nil || ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = fmt.Errorf("as it was exported: %w", err)
	}
	if err != nil {
		c.forget(l)
		return err
	}
	c.take(n, l)
	return nil
}

// fill copies the bytes of a run, and compares their sum.
func (c *copying) fill(ctx context.Context, n int, file NewFile) (ours Sum, err error) {
	b, hash, bytes := make([]byte, pieceBytes), sha256.New(), c.m.Runs[n].Bytes
	for at := int64(0); at < bytes; {
		c.tell(at)
		got, err := c.from.Read(ctx, n, b[:min(pieceBytes, bytes-at)], at)
		if err != nil {
			return ours, err
		}
		if _, err := file.Write(b[:got]); err != nil {
			return ours, err
		}
		hash.Write(b[:got])
		at += int64(got)
		c.stack.store.Stats.ImportBytes.Add(uint64(got))
	}
	theirs, err := c.from.Sum(ctx, n)
	if err != nil {
		return ours, err
	}
	if hash.Sum(ours[:0]); ours != theirs {
		return ours, fmt.Errorf("%w: its %d bytes are not those that were exported: the SHA-256 is %x, and was %x", ErrCorrupt, bytes, ours, theirs)
	}
	return ours, nil
}

// open opens a run in a file that was copied. The layer is held once.
func (c *copying) open(number uint64, info run.Info) (*layer, error) {
	s := c.stack.store
	file := s.files.file(number)
	file.bytes.Store(info.Bytes)
	defer s.files.sweep()
	defer file.release() // the layer has it
	return file.layer(listed{file: number, info: info})
}
