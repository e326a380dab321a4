package cold

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemark-io/tidemark/pipeline"
)

// pieceBytes is how much of a run is copied or summed at once.
const pieceBytes = 256 << 10

// Export is a shard as of its last committed checkpoint, to be copied: nothing of it is
// copied to make it, and it stays as it is whatever is checkpointed and merged, until
// Close. It implements [Source] and may be used concurrently.
type Export struct {
	store    *Store
	number   pipeline.Shard
	manifest Manifest
	layers   *layers
}

var _ Source = (*Export)(nil)

// Export opens an export of a shard, or of the commons; Close must follow. What
// its files have on disk stays there until then. The error of a shard that
// cannot be used says why.
func (s *Store) Export(number pipeline.Shard) (*Export, error) {
	switch {
	case s.closed.Load():
		return nil, ErrClosed
	case int(number) >= len(s.stacks):
		return nil, fmt.Errorf("cold: there is no shard %d of %d", number, s.meta.Shards)
	}
	meta := s.Meta()
	k := s.stacks[number]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	e := &Export{store: s, number: number, layers: newLayers(k.pending, k.visible.all)}
	e.manifest = Manifest{Format: meta.Format, Shards: meta.Shards, Shard: number, Streams: meta.Streams, Dictionary: meta.Dictionary, State: k.state}
	for _, l := range e.layers.all {
		e.manifest.Runs = append(e.manifest.Runs, l.info)
	}
	return e, nil
}

// Close lets the runs go; nothing may use the export after it.
func (e *Export) Close() {
	e.layers.release()
	e.layers = nil
	e.store.files.sweep()
}

// Manifest says what the export has.
func (e *Export) Manifest() *Manifest { return &e.manifest }

// Read implements [Source]. It copes with any run and place.
func (e *Export) Read(ctx context.Context, run int, b []byte, at int64) (n int, err error) {
	l, err := e.layer(run)
	if err != nil {
		return 0, err
	}
	if at < 0 || at >= l.info.Bytes || len(b) == 0 {
		return 0, fmt.Errorf("cold: shard %d: %d bytes at %d of a run of %d", e.number, len(b), at, l.info.Bytes)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n, err = l.read(b, at)
	e.store.Stats.ExportBytes.Add(uint64(n))
	return n, err
}

// Sum implements [Source]. Of a run that was read from its beginning to its end
// it is there at once.
func (e *Export) Sum(ctx context.Context, run int) (Sum, error) {
	for {
		sum, done, err := e.SumSome(ctx, run, pieceBytes)
		if done || err != nil {
			return sum, err
		}
	}
}

// SumSome goes on with a run's sum for so many bytes; done says that sum is that
// of all of it.
func (e *Export) SumSome(ctx context.Context, run int, bytes int64) (sum Sum, done bool, err error) {
	l, err := e.layer(run)
	if err != nil {
		return sum, false, err
	}
	sum, done, err = l.sum(ctx, bytes)
	return sum, done, e.store.stacks[e.number].wrap(l, err)
}

func (e *Export) layer(run int) (*layer, error) {
	if run < 0 || run >= len(e.layers.all) {
		return nil, fmt.Errorf("cold: shard %d: there is no run %d of %d", e.number, run, len(e.layers.all))
	}
	return e.layers.all[run], nil
}

// read fills b from byte at on, as far as the run goes.
func (l *layer) read(b []byte, at int64) (int, error) {
	b = b[:min(int64(len(b)), l.info.Bytes-at)]
	n, err := l.file.ReadAt(b, l.at+at)
	if n < len(b) {
		if err == nil || err == io.EOF {
			err = fmt.Errorf("%w: %s ends in the run at byte %d", ErrCorrupt, l.file.name(), l.at)
		}
		return 0, err
	}
	l.summing.add(b, at, l.info.Bytes)
	return n, nil
}

// sum goes on with the sum for at most so many bytes.
func (l *layer) sum(ctx context.Context, most int64) (sum Sum, done bool, err error) {
	var b []byte
	for {
		sum, at := l.summing.get()
		if at == l.info.Bytes {
			return sum, true, nil
		}
		if most <= 0 {
			return sum, false, nil
		}
		if err := ctx.Err(); err != nil {
			return sum, false, err
		}
		if b == nil {
			b = make([]byte, min(pieceBytes, l.info.Bytes))
		}
		n, err := l.read(b, at)
		if err != nil {
			return sum, false, err
		}
		most -= int64(n)
	}
}
