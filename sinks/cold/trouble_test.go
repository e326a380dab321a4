package cold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// byHand opens a store that merges by MergeOnce alone.
func byHand(t *testing.T, dir string, wrap func(Engine) Engine) (*Store, Engine) {
	t.Helper()
	var engine Engine
	engine, err := openBadger(dir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		engine = wrap(engine)
	}
	s, err := OpenOn(engine, spec(t, "post: like"), testOptions().Shards, "n")
	if err != nil {
		t.Fatal(err)
	}
	return s, engine
}

const troubleRows = 5000

// count adds 1 to all rows of a shard.
func count(t *testing.T, s *Store, shard pipeline.Shard, at pipeline.Position) {
	t.Helper()
	checkpoint(t, s, shard, at, func(to Sink) { countTo(to) })
}

func countTo(to Sink) {
	for id := range uint64(troubleRows) {
		to.Change(0, id+1, []pipeline.Delta{pipeline.Add(1)})
	}
}

// counted is what the rows of a shard say.
func counted(t *testing.T, s *Store, shard pipeline.Shard) (int64, error) {
	t.Helper()
	v := s.Stack(shard).View()
	defer v.Close()
	ids, row := make([]uint64, troubleRows), make([]int64, troubleRows)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	if err := v.Rows(0, ids, row); err != nil {
		return 0, err
	}
	for i := range row {
		if row[i] != row[0] {
			return 0, fmt.Errorf("row 1 is %d and row %d is %d", row[0], i+1, row[i])
		}
	}
	return row[0], nil
}

func wantCounted(t *testing.T, s *Store, shard pipeline.Shard, want int64) {
	t.Helper()
	if got, err := counted(t, s, shard); err != nil || got != want {
		t.Errorf("the rows of shard %d say %d, %v; want %d", shard, got, err, want)
	}
}

func runFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := directory{filepath.Join(dir, runsDir)}.Files()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// flip changes a bit of a file.
func flip(t *testing.T, dir, name string, at int) {
	t.Helper()
	path := filepath.Join(dir, runsDir, name)
	b, err := os.ReadFile(path)
	if err == nil {
		b[(at+len(b))%len(b)] ^= 0x10
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Badger cuts a table that it has compacted away to no bytes, and then removes it: verifying
// that meets it between the two must not stop the node.
func TestTableIsCompactedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "000001.sst")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, listed := range []bool{true, false} {
		if err := verifyListed(path, func() bool { return listed }); (err != nil) != listed {
			t.Errorf("still listed: %v; the damage is %v", listed, err)
		}
	}
}

// "A damaged block is reported with shard, file, run and block, and
// stops that shard only."
func TestDamagedBlock(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 0, at+1)
		count(t, s, 1, at+1)
	}
	name := runFiles(t, dir)[2] // the second of shard 0
	flip(t, dir, name, 1000)
	_, err := counted(t, s, 0)
	if !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), "shard 0: "+name+", the run at byte 0: block 0") {
		t.Errorf("reading: %v", err)
	}
	wantCounted(t, s, 1, RunsWanted+1)
	var damage []Damage
	s.Verify(func() bool { return true }, func(d Damage) { damage = append(damage, d) })
	if len(damage) != 1 || damage[0].File != name || damage[0].First != 0 || damage[0].Last != 0 || !isCorrupt(damage[0]) || !strings.Contains(damage[0].Error(), "shard 0, the run at byte 0: block 0") {
		t.Errorf("verifying: %v", damage)
	}
	for range 4 {
		did, err := s.MergeOnce(nil)
		if did == (err != nil) && err != nil && !isCorrupt(err) {
			t.Errorf("merging: %v, %v", did, err)
		}
	}
	if _, err := s.Stack(0).State(); !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), name) {
		t.Errorf("shard 0: %v", err)
	}
	c := s.Begin()
	c.Shard(0).State(State{Applied: 100})
	if err := c.Commit(); !isCorrupt(err) {
		t.Errorf("a checkpoint of shard 0: %v", err)
	}
	wantCounted(t, s, 1, RunsWanted+1)
	if n := s.Stack(1).runs(); n > RunsWanted {
		t.Errorf("shard 1 has %d runs", n)
	}
	count(t, s, 1, 100)
	wantCounted(t, s, 1, RunsWanted+2)
	closeStore(t, s)
}

// "A file that is missing, a run that is listed twice or lies beyond
// its file stops that shard only."
func TestDamagedLists(t *testing.T) {
	for what, c := range map[string]struct {
		spoil func(t *testing.T, dir string, e Engine)
		says  string
		also  bool // shard 1 too
	}{
		"missing": {func(t *testing.T, dir string, _ Engine) {
			os.Remove(filepath.Join(dir, runsDir, fileName(1)))
		}, "is missing", false},
		"cut short": {func(t *testing.T, dir string, _ Engine) {
			os.Truncate(filepath.Join(dir, runsDir, fileName(1)), 1000)
		}, "has 1000 bytes", false},
		"index": {func(t *testing.T, dir string, _ Engine) { flip(t, dir, fileName(1), -10) }, "index: ", false},
		"twice": {func(t *testing.T, _ string, e Engine) {
			relist(t, e, func(runs []listed) []listed { return append(runs, runs[0]) })
		}, "overlap or are one", false},
		"another's": {func(t *testing.T, _ string, e Engine) {
			relist(t, e, func(runs []listed) []listed { runs[0].file = 2; return runs })
		}, "listed by shards 0 and 1", true},
		"list": {func(t *testing.T, _ string, e Engine) {
			key := shardKey(0)
			value, _ := e.Get(key)
			value[0]++
			if err := e.Commit([]Write{{key, value}}); err != nil {
				t.Fatal(err)
			}
		}, "checksum", false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s, e := byHand(t, dir, nil)
			count(t, s, 0, 1)
			count(t, s, 1, 1)
			c.spoil(t, dir, e)
			closeStore(t, s)
			s, _ = byHand(t, dir, nil)
			if _, err := s.Stack(0).State(); !isCorrupt(err) || !strings.Contains(fmt.Sprint(err), c.says) || !strings.Contains(fmt.Sprint(err), "shard 0") {
				t.Errorf("shard 0: %v", err)
			}
			if _, err := counted(t, s, 0); !isCorrupt(err) {
				t.Errorf("reading shard 0: %v", err)
			}
			if _, err := s.Stack(1).State(); (err != nil) != c.also {
				t.Errorf("shard 1: %v", err)
			}
			if !c.also {
				count(t, s, 1, 2)
				wantCounted(t, s, 1, 2)
			}
			if _, err := os.Stat(filepath.Join(dir, runsDir, fileName(1))); err != nil && what != "missing" {
				t.Errorf("the file of a shard that is refused: %v", err)
			}
			closeStore(t, s)
		})
	}
}

func relist(t *testing.T, e Engine, change func([]listed) []listed) {
	t.Helper()
	key := shardKey(0)
	value, err := e.Get(key)
	if err == nil {
		var state State
		var runs []listed
		if state, runs, err = decodeList(key, value); err == nil {
			err = e.Commit([]Write{{key, appendList(nil, key, state, change(runs))}})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// "A checkpoint that changes nothing but states writes no file."
func TestStateAlone(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	checkpoint(t, s, 2, 7, nil)
	if names := runFiles(t, dir); len(names) != 0 {
		t.Error(names)
	}
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	defer closeStore(t, s)
	if state, err := s.Stack(2).State(); state.Applied != 7 || err != nil {
		t.Error(state, err)
	}
	if state, err := s.Stack(1).State(); state != (State{}) || err != nil {
		t.Error(state, err)
	}
}

// "A key that is nowhere costs no block, a cold row about one; ids that
// are neighbours decode a block once."
func TestReadsFew(t *testing.T) {
	s, _ := byHand(t, t.TempDir(), nil)
	defer closeStore(t, s)
	const rows = 20_000
	for n := range uint64(RunsWanted) { // each row in one of the runs
		checkpoint(t, s, 0, pipeline.Position(n+1), func(to Sink) {
			for id := range uint64(rows) {
				to.Row(0, 1+id*RunsWanted+n, []int64{1})
			}
		})
	}
	v := s.Stack(0).View()
	defer v.Close()
	reads := func(what string, most uint64, ids ...uint64) {
		t.Helper()
		before, cells := s.Stats.Reads.Load(), make([]int64, len(ids))
		if err := v.Rows(0, ids, cells); err != nil {
			t.Fatal(err)
		}
		if got := s.Stats.Reads.Load() - before; got > most {
			t.Errorf("%s: %d blocks read, want at most %d", what, got, most)
		}
	}
	var nowhere, cold, near []uint64
	for i := range uint64(1000) {
		nowhere, cold, near = append(nowhere, 1+rows*RunsWanted+i), append(cold, 1+i*100), append(near, 1+i)
	}
	reads("nowhere", RunsWanted, nowhere...) // one in a hundred gets by a filter, all to the last block
	before := s.Stats.Lookups.Load()
	reads("cold", 1000+100, cold...)
	if all, nothing := s.Stats.Lookups.Load()-before, s.Stats.LookupsNothing.Load(); all < 1000 || nothing > 300 {
		t.Errorf("%d lookups, %d for nothing", all, nothing)
	}
	reads("neighbours", 3*RunsWanted, near...)
}

// mergeAll merges until there is nothing to merge.
func mergeAll(t *testing.T, s *Store) {
	t.Helper()
	for range 100 {
		did, err := s.MergeOnce(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !did {
			return
		}
	}
	t.Error("merges have no end")
}

// cramped has room for so much besides what commits need.
type cramped struct {
	Engine
	room int64
}

func (c *cramped) Room(bytes int64) error {
	if bytes > c.room {
		return ErrDiskFull
	}
	return nil
}

// "Merging waits before checkpoints do."
func TestMergesWaitForRoom(t *testing.T) {
	var c *cramped
	s, _ := byHand(t, t.TempDir(), func(e Engine) Engine { c = &cramped{e, mergeReserve}; return c })
	defer closeStore(t, s)
	for n := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 0, n+1)
	}
	if did, err := s.MergeOnce(nil); did || !errors.Is(err, ErrDiskFull) {
		t.Errorf("a merge: %v, %v", did, err)
	}
	count(t, s, 0, 100)
	c.room += 10 << 20
	if did, err := s.MergeOnce(nil); !did || err != nil {
		t.Errorf("a merge: %v, %v", did, err)
	}
	wantCounted(t, s, 0, RunsWanted+2)
}

// "SetHorizon has merges leave out posts before a position … where nothing is older." So it is
// with the members that a set has forgotten by the shard's log time. No others go.
func TestMergesForget(t *testing.T) {
	kept := pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: 10}
	s := openSchema(t, t.TempDir(), setSpec(t, map[string]pipeline.SetSpec{"post.view": kept}, "post: view"))
	defer closeStore(t, s)
	id := uint64(1)
	for pipeline.ShardOf(id, 4) != 0 {
		id++
	}
	for at := range int64(RunsWanted + 1) {
		c := s.Begin()
		to := c.Shard(0)
		to.Post(7, pipeline.Position(at+1), 70)
		to.Member(0, id, pipeline.Member{A: uint64(1 + at)}, 1000+at, true)
		to.State(State{Applied: pipeline.Position(at), Time: (1000 + 13) * 1000}) // those before 1003 are forgotten
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			s.Stack(0).SetHorizon(6)
		}
		s.Stack(0).Publish()
	}
	waitFor(t, "it is merged", func() bool { all, _ := s.Runs(); return all == 1 })
	if got := members(t, s, "post.view", id); !slices.Contains(got, "4 0 1003") || slices.Contains(got, "3 0 1002") || len(got) != 6 {
		t.Errorf("the members are %v", got)
	}
	v := s.Stack(0).View()
	defer v.Close()
	var posts []pipeline.Position
	if err := v.Posts([]From{{Author: 7}}, func(_ int, p pipeline.Position, _ uint64) { posts = append(posts, p) }); err != nil {
		t.Fatal(err)
	}
	if len(posts) != RunsWanted+1-5 || posts[0] != 6 {
		t.Errorf("the posts are at %v", posts)
	}
}
