package cold

import (
	"io"
	"io/fs"
	"maps"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// exportedRun reads a run of an export at any byte.
type exportedRun struct {
	from Source
	run  int
	size int64
	open *int
}

func (r exportedRun) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		if at+int64(n) >= r.size {
			return n, io.EOF
		}
		more, err := r.from.Read(bg, r.run, b[n:], at+int64(n))
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (r exportedRun) Size() int64  { return r.size }
func (r exportedRun) Close() error { *r.open--; return nil }

// A shard that was exported is read where its runs lie, as a store that has it would,
// by a schema of today, and can be written above; no file is left open.
func TestScratch(t *testing.T) {
	s := open(t, t.TempDir(), "post: like repost", "user: liked")
	defer closeStore(t, s)
	of := pipeline.ShardOf(7, s.meta.Shards)
	for id := uint64(1); id < 60; id++ {
		if pipeline.ShardOf(id, s.meta.Shards) == of {
			write(t, s, "post", id, int64(id), -3)
			write(t, s, "user", id, 5)
		}
	}
	want := scanned(t, s)
	e := export(t, s, of)
	files := 0
	run := func(n int) (File, error) {
		files++
		return exportedRun{e, n, e.Manifest().Runs[n].Bytes, &files}, nil
	}
	x, err := OpenScratch(spec(t, "user: liked shared", "post: repost like"), 0, Scratch{From: e.Manifest(), Open: run})
	if err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, x); !maps.Equal(got, want) {
		t.Errorf("%d cells, want %d", len(got), len(want))
	}
	if state, err := x.Stack(of).State(); err != nil || state != e.Manifest().State {
		t.Errorf("it stands at %+v, %v", state, err)
	}
	// What is written lies above what was exported, which is read where it lies all the while.
	for i := range uint64(3 * RunsMax) {
		c := x.Begin()
		sink := c.Shard(of)
		sink.Row(0, 7, []int64{int64(i), 1})
		sink.State(State{Applied: e.Manifest().State.Applied + pipeline.Position(i) + 1})
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		x.Stack(of).Publish()
		for did := x.Stack(of).Full(); did; {
			if did, err = x.MergeOnce(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	want["user.liked 7"], want["user.shared 7"] = 3*RunsMax-1, 1
	if got := scanned(t, x); !maps.Equal(got, want) {
		t.Errorf("written to: %v, want %v", got, want)
	}
	closeStore(t, x)
	if files != 0 {
		t.Errorf("%d files are open", files)
	}

	// A run that is not what the manifest says, or not there, is an error.
	e.fail = func(_ int, b []byte, _ int64) error { b[len(b)/2] ^= 1; return nil }
	for what, run := range map[string]func(int) (File, error){
		"damaged": run,
		"gone":    func(int) (File, error) { return nil, fs.ErrNotExist },
	} {
		x, err := OpenScratch(s.Schema(), 0, Scratch{From: e.Manifest(), Open: run})
		if err != nil {
			t.Fatal(err)
		}
		v := x.Stack(of).View()
		if err := v.Rows(0, []uint64{7}, make([]int64, 2)); !isCorrupt(err) {
			t.Errorf("%s: %v", what, err)
		}
		v.Close()
		closeStore(t, x)
	}
	m := *e.Manifest()
	m.Runs = m.Runs[:1:1]
	m.Runs[0].Bytes = 0
	if _, err := OpenScratch(s.Schema(), 0, Scratch{From: &m, Open: run}); !isCorrupt(err) {
		t.Errorf("a manifest that makes no sense: %v", err)
	}
}
