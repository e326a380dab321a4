package cold

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
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

// tell reports how many bytes are here, those of a run that is not whole too.
func (c *copying) tell() {
	if c.Progress == nil {
		return
	}
	bytes := c.bytes
	if c.part != nil && slices.Contains(c.m.Runs, c.part.info) {
		bytes += c.part.at
	}
	c.Progress(bytes, c.m.Bytes())
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
	other := func(o *layer) bool { return o == l }
	c.Import.have = slices.DeleteFunc(c.have, other)
	c.Import.fresh = slices.DeleteFunc(c.fresh, other)
	l.release()
	c.stack.store.files.sweep()
}

// part is a file that a run is being copied into.
type part struct {
	info   run.Info
	file   NewFile
	number uint64
	at     int64 // bytes that are there
	hash   hash.Hash
	first  *copying // that began it
}

// fetch copies a run.
func (c *copying) fetch(ctx context.Context, n int) error {
	p, err := c.begin(c.m.Runs[n])
	if err != nil {
		return err
	}
	if err := c.fill(ctx, n); err != nil {
		return err
	}
	theirs, err := c.from.Sum(ctx, n)
	if err != nil {
		return err
	}
	var ours Sum
	if p.hash.Sum(ours[:0]); ours != theirs {
		c.abort()
		if p.first != c { // it began with bytes of another run that has the same index
			return c.fetch(ctx, n)
		}
		return fmt.Errorf("%w: its %d bytes are not those that were exported: the SHA-256 is %x, and was %x", ErrCorrupt, p.info.Bytes, ours, theirs)
	}
	l, err := c.seal(ours)
	if err != nil {
		return err
	}
	c.Import.have, c.Import.fresh = append(c.have, l), append(c.fresh, l)
	c.take(n, l)
	return nil
}

// fill copies what is not there of the part.
func (c *copying) fill(ctx context.Context, n int) error {
	p := c.part
	b := make([]byte, pieceBytes)
	for p.at < p.info.Bytes {
		c.tell()
		got, err := c.from.Read(ctx, n, b[:min(pieceBytes, p.info.Bytes-p.at)], p.at)
		if err != nil {
			return err
		}
		if _, err := p.file.Write(b[:got]); err != nil {
			c.abort()
			return err
		}
		p.hash.Write(b[:got])
		p.at += int64(got)
		c.stack.store.Stats.ImportBytes.Add(uint64(got))
	}
	return nil
}

// begin goes on with the file of a run, or begins it.
func (c *copying) begin(info run.Info) (*part, error) {
	i := c.Import
	if i.part != nil && i.part.info == info {
		return i.part, nil
	}
	i.abort()
	s := i.stack.store
	number := s.files.next.Add(1)
	file, err := s.engine.Create(fileName(number))
	if err != nil {
		return nil, err
	}
	i.part = &part{info: info, file: file, number: number, hash: sha256.New(), first: c}
	return i.part, nil
}

// seal makes the file durable and opens it. The layer is held once.
func (c *copying) seal(sum Sum) (*layer, error) {
	p, s := c.part, c.stack.store
	c.Import.part = nil
	if err := p.file.Seal(); err != nil {
		return nil, err
	}
	file := s.files.file(p.number)
	file.bytes.Store(p.at)
	defer s.files.sweep()
	defer file.release() // the layer has it
	l, err := file.layer(listed{file: p.number, info: p.info})
	if err != nil {
		return nil, fmt.Errorf("as it was exported: %w", err)
	}
	l.summing.sum, l.summing.at = sum, p.at
	return l, nil
}

// check reads a run that was copied again, block by block. Where the context
// ends it is left to the next Copy.
func (c *copying) check(ctx context.Context, l *layer) error {
	at := slices.Index(c.fresh, l)
	if at < 0 {
		return nil
	}
	err := l.verify(func() bool { return ctx.Err() == nil })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.forget(l)
		return fmt.Errorf("as it was exported: %w", err)
	}
	c.Import.fresh = slices.Delete(c.fresh, at, at+1)
	return nil
}
