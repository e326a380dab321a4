package cold

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

var kills = flag.Int("cold.kills", 6, "how often TestKilled kills")

// killsMore bounds how many times as often is killed while no kill has hit what it
// was to hit.
const killsMore = 40

const victimEnv = "TIDEMARK_TEST_COLD_VICTIM"

// Each checkpoint of a victim adds 1 to so many rows of each shard.
const victimRows = 2000

// victim checkpoints and merges, and prints what is committed, until it is killed.
func victim(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	o := testOptions()
	s, err := Open(dir, spec(fatal{}, "post: like"), o)
	die(err)
	state, err := s.Stack(0).State()
	die(err)
	one := []pipeline.Delta{pipeline.Add(1)}
	for at := state.Applied + 1; ; at++ {
		c := s.Begin()
		for shard := range o.Shards {
			sink := c.Shard(pipeline.Shard(shard))
			for id := range uint64(victimRows) {
				sink.Change(0, id+1, one)
			}
			sink.State(State{Applied: at})
		}
		die(c.Commit())
		fmt.Println(at)
		for shard := range o.Shards {
			s.Stack(pipeline.Shard(shard)).Publish()
		}
	}
}

type fatal struct{}

func (fatal) Fatal(x ...any) { panic(fmt.Sprint(x...)) }

// checkVictim opens what a victim left: all shards stand at one position, their
// rows say the same, and the files are those that are listed.
func checkVictim(dir string) (at uint64, unlisted int, err error) {
	before, err := os.ReadDir(filepath.Join(dir, runsDir))
	if err != nil {
		return 0, 0, err
	}
	engine, err := openBadger(dir, testOptions())
	if err != nil {
		return 0, 0, err
	}
	s, err := OpenOn(engine, spec(fatal{}, "post: like"), testOptions().Shards, "n")
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	for shard := range s.meta.Shards {
		stands, err := countVictim(s, pipeline.Shard(shard))
		if err != nil {
			return 0, 0, err
		}
		if shard > 0 && stands != at {
			return 0, 0, fmt.Errorf("shard %d stands at %d, and shard 0 at %d", shard, stands, at)
		}
		at = stands
	}
	var damage error
	s.Verify(func() bool { return true }, func(d Damage) { damage = d })
	if damage != nil {
		return 0, 0, damage
	}
	names, err := allListed(s, engine)
	return at, len(before) - names, err
}

// countVictim is where a shard stands; its rows must say the same.
func countVictim(s *Store, shard pipeline.Shard) (at uint64, err error) {
	state, err := s.Stack(shard).State()
	if err != nil {
		return 0, err
	}
	at = uint64(state.Applied)
	ids, cells := make([]uint64, victimRows), make([]int64, victimRows)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	v := s.Stack(shard).View()
	defer v.Close()
	if err := v.Rows(0, ids, cells); err != nil {
		return 0, err
	}
	if other := slices.IndexFunc(cells, func(v int64) bool { return v != int64(at) }); other >= 0 {
		return 0, fmt.Errorf("shard %d stands at %d, and row %d at %d", shard, at, other+1, cells[other])
	}
	return at, nil
}

// allListed says that the files are those that are listed, and how many.
func allListed(s *Store, engine Engine) (files int, err error) {
	listed := map[string]bool{}
	s.layers(func(l *layer) { listed[l.file.name()] = true })
	names, err := engine.Files()
	if err != nil || len(names) != len(listed) || slices.ContainsFunc(names, func(name string) bool { return !listed[name] }) {
		return 0, fmt.Errorf("the files are %v, %v; listed are %v", names, err, listed)
	}
	return len(names), nil
}

// kill -9 at any moment of a real process on a real disk, between any two steps of a
// checkpoint and of a merge: "A shard's state, its list and its files belong together; a file
// that is not listed is removed". TestKilledAtEveryStep has the steps, one by one.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	committed, moved, removed := uint64(0), 0, 0
	round := 0
	for ; round < *kills || round < killsMore**kills && (moved == 0 || removed == 0); round++ {
		before := committed
		last, after := killed(t, dir, round)
		committed = max(committed, last)
		if committed > before {
			moved++
		}
		at, unlisted, err := checkVictim(dir)
		if err != nil {
			t.Fatalf("round %d, killed %v after checkpoint %d: %v", round, after, committed, err)
		}
		if at != committed && at != committed+1 {
			t.Errorf("round %d: it stands at %d, and %d was committed", round, at, committed)
		}
		committed = at
		if unlisted > 0 {
			removed++
		}
	}
	t.Logf("after %d checkpoints and %d kills files that nothing listed were there %d times", committed, round, removed)
	if moved == 0 || removed == 0 {
		t.Errorf("no kill hit a process at work: %d moved on, %d left a file", moved, removed)
	}
}

// killed starts a victim, kills it some time after its first line, and returns
// the number on its last one; 0: there was none.
func killed(t *testing.T, dir string, round int) (last uint64, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after = time.Duration(rand.IntN(100_000)) * time.Microsecond
	for lines, first := bufio.NewScanner(out), true; lines.Scan(); first = false {
		at, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Fatalf("round %d: %s", round, lines.Text())
		}
		last = at
		if first {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("round %d: %v", round, err)
	}
	return last, after
}
