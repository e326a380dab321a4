package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// exports is a node with runs, which closes an export as soon as its reader does
// something else.
type exports struct {
	Origin
	runs  [][]byte
	open  int // number of the export that is open
	opens int
	reads int // that are left until the node closes the export by itself; below 0: any number
}

var errGone = errors.New("gone")

type export struct {
	of     *exports
	number int
	shard  pipeline.Shard
}

func (e *exports) Last(context.Context) (uint64, error) { return 0, nil }

func (e *exports) Export(_ context.Context, s pipeline.Shard) (cold.Source, string, func(), error) {
	e.opens++
	e.open = e.opens
	return &export{e, e.open, s}, "a", func() {}, nil
}

func (x *export) Manifest() *cold.Manifest {
	m := &cold.Manifest{Format: cold.Format, Shards: 1, Shard: x.shard, Streams: cold.Streams{Events: time.Unix(1, 0).UTC()}}
	if x.shard == 0 {
		for _, b := range x.of.runs {
			m.Runs = append(m.Runs, run.Info{Bytes: int64(len(b))})
		}
	}
	return m
}

func (x *export) Read(_ context.Context, n int, b []byte, at int64) (int, error) {
	if x.of.open != x.number || x.of.reads == 0 {
		return 0, errGone
	}
	x.of.reads--
	return copy(b, x.of.runs[n][at:]), nil
}

func (x *export) Sum(_ context.Context, n int) (cold.Sum, error) {
	if x.of.open != x.number {
		return cold.Sum{}, errGone
	}
	return sha256.Sum256(x.of.runs[n]), nil
}

// slow is a place whose reading back takes longer than an export waits.
type slow struct {
	Place
	of *exports
}

func (s *slow) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	s.of.open = 0
	return s.Place.Get(ctx, name)
}

func manyRuns(n int) (runs [][]byte) {
	for i := range n {
		runs = append(runs, bytes.Repeat([]byte{byte(i)}, 1000))
	}
	return runs
}

// A shard with many large runs is backed up though reading each back takes longer
// than the node waits; so it is where many objects of earlier backups are damaged.
func TestMakeSlowPlace(t *testing.T) {
	place, err := OpenPlace(t.Context(), t.TempDir(), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	from := &exports{runs: manyRuns(20), reads: -1}
	p, o := &slow{place, from}, Options{Shards: 1, Generations: firstRecord, Logger: slog.New(slog.DiscardHandler)}
	if _, err := Make(t.Context(), p, from, o); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := place.Put(t.Context(), object(sha256.Sum256(from.runs[i])), strings.NewReader(strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Make(t.Context(), p, from, o)
	if err != nil || m.Copied != 10*1000 {
		t.Fatal(m, err)
	}
	if err := Verify(t.Context(), place, m); err != nil {
		t.Error(err)
	}
}

// A try that came further is none of those that are counted; one that did not is.
func TestMakeComesFurther(t *testing.T) {
	place, err := OpenPlace(t.Context(), t.TempDir(), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	from := &broken{exports: &exports{runs: manyRuns(20)}, each: 4}
	o := Options{Shards: 1, Generations: firstRecord, Logger: slog.New(slog.DiscardHandler)}
	if _, err := Make(t.Context(), place, from, o); err != nil {
		t.Error(err)
	}
	from = &broken{exports: &exports{runs: [][]byte{[]byte("other")}}, each: 0}
	if _, err := Make(t.Context(), place, from, o); !errors.Is(err, errGone) || from.opens != exportTries {
		t.Errorf("%d tries: %v", from.opens, err)
	}
}

// broken is a node that closes each export after some reads.
type broken struct {
	*exports
	each int
}

func (b *broken) Export(ctx context.Context, s pipeline.Shard) (cold.Source, string, func(), error) {
	b.reads = b.each
	return b.exports.Export(ctx, s)
}

// firstRecord is that of a system that was never rebuilt.
var firstRecord, _ = generation.Start([]byte(`{}`))
