package twin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/audit"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// worldOrigin is a world that is backed up, of which the log is whole.
type worldOrigin struct {
	*world
	rand *rand.Rand
}

func (o worldOrigin) Export(_ context.Context, s pipeline.Shard) (cold.Source, string, func(), error) {
	e, err := o.store.Export(s)
	if err != nil {
		return nil, "", nil, err
	}
	return e, "n", e.Close, nil
}

func (o worldOrigin) Last(context.Context) (uint64, error) { return uint64(len(o.log)), nil }

func (o worldOrigin) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return &runsOf{o.log[from.Next()-1:], o.rand}, nil
}

// trimmed has the auditor have backups, and the log lack what comes before the first
// message that the oldest of them needs.
func (w *world) trimmed(r *rand.Rand, bases ...audit.Base) *audit.Auditor {
	a := w.auditor(r)
	a.Bases = func(context.Context) ([]audit.Base, error) { return bases, nil }
	whole := a.Open
	a.Open = func(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
		if first := bases[0].Position().Next(); from.Next() < first {
			return nil, fmt.Errorf("%w: it begins with message %d, and %d is read", pipeline.ErrGap, first, from.Next())
		}
		return whole(ctx, from)
	}
	return a
}

// The comparison is still exact at the answer's position: with any backup, of shards that
// stood anywhere, and the log behind it, the audit finds nothing where nothing is wrong,
// all of the ids that the whole log names but those that it left nothing of, whatever
// came between.
func TestAuditFromABase(t *testing.T) {
	worlds := max(sequencesFor(true)/20, 8)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d worlds, seed %d", worlds, seed)
	ids, passes, apart := 0, 0, 0
	few := func(worlds int) bool { return ids < 100*worlds || passes <= 10*worlds || apart == 0 }
	number := 0
	for ; number < worlds || number < morePerWorld*worlds && few(number); number++ {
		r := chances(seed, number)
		w, err := newWorld(t.TempDir(), draw(r))
		if err != nil {
			t.Fatal(err)
		}
		place, err := backup.OpenPlace(t.Context(), filepath.Join(t.TempDir(), "backups"), nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.store.SetStreams(cold.Streams{Events: time.Unix(1, 0).UTC()}); err != nil {
			t.Fatal(err)
		}
		var bases []audit.Base // the oldest first
		for story := range 4 {
			s := generate(r, story, w.ages.once)
			whole, m := s, &model{ages: w.ages, defaults: w.defaults}
			for range 1 + r.IntN(2) { // some of it, and a backup
				n := r.IntN(len(s.messages) / 2)
				for rest := s.messages[:n]; len(rest) > 0; {
					some := min(1+r.IntN(25), len(rest))
					if err := w.publish(rest[:some], r.IntN(len(windowEvents)), m); err != nil {
						t.Fatal(err)
					}
					rest = rest[some:]
					if r.IntN(10) == 0 {
						if err := w.restart(false); err != nil {
							t.Fatal(err)
						}
					}
				}
				s.messages = s.messages[n:]
				made, err := backup.Make(t.Context(), place, worldOrigin{w, r}, backup.Options{Shards: w.shards, Generations: firstRecord, Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				for i := range made.Parts {
					if made.Parts[i].State.Applied != made.From {
						apart++
						break
					}
				}
				bases = append(bases, backup.NewBase(place, made, w.schema, t.TempDir(), anyRoom))
			}
			if err := w.tell(r, s, m); err != nil {
				t.Fatal(err)
			}
			if end := whole.finish(); len(end) > 0 {
				if err := w.publish(end, 3, m); err != nil {
					t.Fatal(err)
				}
				w.notices = nil
			}
			for i := range bases {
				what := fmt.Sprintf("world %d, story %d, backup %d", number, story, i)
				bits := r.IntN(3)
				task := audit.Task{Sample: audit.Sample{Bits: bits, Residue: r.Uint64N(1 << bits)}, Memory: []int{12 << 10, 1 << 30}[r.IntN(2)], Stored: r.IntN(2) == 0}
				if r.IntN(3) == 0 {
					task = audit.Task{IDs: append([]uint64{1, 2, 3, 1 << 40}, s.people.users...), Memory: 1 << 30}
				}
				report, err := w.trimmed(r, bases[i:]...).Run(t.Context(), task)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if report.Differ+report.Channels > 0 || len(report.Skipped) > 0 || report.Base != bases[i].String() {
					t.Fatalf("%s, %+v, of %s: %+v, skipped %v", what, task, report.Base, report.Examples, report.Skipped)
				}
				ids, passes = ids+report.IDs, passes+report.Passes
			}
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
	}
	if few(number) {
		t.Errorf("%d ids were compared in %d passes, %d backups were of several positions: too few to say much", ids, passes, apart)
	}
}

// turnedBase says whether a base is read in a turn.
type turnedBase struct {
	audit.Base
	in func(is bool, what string)
}

func (b turnedBase) Marks(ctx context.Context) ([]pipeline.TimeMark, error) {
	b.in(false, "marks of a base are read")
	return b.Base.Marks(ctx)
}

func (b turnedBase) Log() (pipeline.Source, error) {
	b.in(false, "the log of a base is opened")
	return b.Base.Log()
}

func (b turnedBase) Facts(ctx context.Context, shard pipeline.Shard, ids []uint64, keep func(id uint64) bool, yield func(pipeline.Fact)) error {
	b.in(false, "facts of a base are read")
	return b.Base.Facts(ctx, shard, ids, keep, yield)
}

func anyRoom(int64) error { return nil }

// streamed is a place that gives objects from the beginning only.
type streamed struct{ backup.Place }

func (s streamed) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Place.Get(ctx, name)
	return struct{ io.ReadCloser }{r}, err
}

// Of many ids that were asked for a pass takes in those of its sample alone: so that
// what does not fit into memory is done in a few passes, which have their turn given
// while a base is read.
func TestAuditOfManyFromABase(t *testing.T) {
	const posts = 2000
	r := chances(12, 0)
	w := likedWorld(t, r, posts)
	var ids []uint64
	for post := range uint64(posts) {
		ids = append(ids, post+1)
	}
	if err := w.store.SetStreams(cold.Streams{Events: time.Unix(1, 0).UTC()}); err != nil {
		t.Fatal(err)
	}
	place, err := backup.OpenPlace(t.Context(), filepath.Join(t.TempDir(), "backups"), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	made, err := backup.Make(t.Context(), place, worldOrigin{w, r}, backup.Options{Shards: w.shards, Generations: firstRecord, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	turns := &turned{t: t, turns: pipeline.NewTurns(1)}
	base := turnedBase{backup.NewBase(place, made, w.schema, t.TempDir(), anyRoom), turns.in}
	const memory = 64 << 10
	report, err := w.trimmed(r, base).Run(t.Context(), audit.Task{IDs: ids, Memory: memory, Turns: turns.turns})
	if err != nil || report.Differ > 0 || report.IDs != posts || report.Passes < 2 || report.Passes > 32 || len(turns.turns) != 0 {
		t.Errorf("%v, %+v; %d turns are not given back", err, report, len(turns.turns))
	}

	// Where runs are copied it is asked for room for all of a shard before; without it
	// nothing is.
	runs, asked, full := int64(0), []int64{}, errors.New("no room")
	for _, run := range made.Parts[1].Runs {
		runs += run.Bytes
	}
	for _, c := range []struct {
		place backup.Place
		room  error
		asked []int64
	}{{place, full, []int64{}}, {streamed{place}, nil, []int64{runs}}, {streamed{place}, full, []int64{runs}}} {
		asked = asked[:0]
		base := backup.NewBase(c.place, made, w.schema, t.TempDir(), func(bytes int64) error { asked = append(asked, bytes); return c.room })
		facts := 0
		err := base.Facts(t.Context(), 1, nil, func(uint64) bool { return true }, func(pipeline.Fact) { facts++ })
		if lacks := c.room != nil && len(c.asked) > 0; errors.Is(err, full) != lacks || (err != nil) != lacks || (facts == 0) != lacks || !slices.Equal(asked, c.asked) {
			t.Errorf("%d facts after it was asked for %v, of %d bytes: %v", facts, asked, runs, err)
		}
	}
}

// firstRecord is that of a system that was never rebuilt.
var firstRecord, _ = generation.Start([]byte(`{}`))
