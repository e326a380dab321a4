package cold

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// "its state and its runs are as if they had never been here … A view made before still
// reads what it saw."
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	c := s.Begin() // both in one file
	for shard := range pipeline.Shard(2) {
		countTo(c.Shard(shard))
	}
	for _, g := range c.shards {
		g.State(State{Applied: 1, Sequence: 1})
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	for shard := range pipeline.Shard(2) {
		s.Stack(shard).Publish()
		count(t, s, shard, 2)
	}
	before := s.Stack(1).View()
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	dropped := func(s *Store) {
		t.Helper()
		if state, err := s.Stack(1).State(); err != nil || state != (State{}) {
			t.Errorf("the state is %+v, %v", state, err)
		}
		wantCounted(t, s, 1, 0)
		wantCounted(t, s, 0, 2)
	}
	dropped(s)
	cells := make([]int64, 1)
	if err := before.Rows(0, []uint64{7}, cells); err != nil || cells[0] != 2 {
		t.Errorf("a view made before reads %d, %v", cells[0], err)
	}
	if n := len(runFiles(t, dir)); n != 3 {
		t.Errorf("%d files while it is open", n)
	}
	before.Close()
	count(t, s, 1, 1)
	wantCounted(t, s, 1, 1)
	if n := len(runFiles(t, dir)); n != 3 { // the shared one, and one of each
		t.Errorf("%d files", n)
	}
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(1); err != nil { // twice is as once
		t.Fatal(err)
	}
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	dropped(s)
	if n := len(runFiles(t, dir)); n != 2 {
		t.Errorf("%d files after a start", n)
	}
	for _, number := range []pipeline.Shard{5} { // there is none
		if err := s.Drop(number); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("shard %d", number)) {
			t.Errorf("dropping %d: %v", number, err)
		}
	}
	closeStore(t, s)
}

// "also one that is refused."
func TestDropOfADamagedShard(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	count(t, s, 0, 1)
	count(t, s, 1, 1)
	closeStore(t, s)
	flip(t, dir, fileName(2), -10)
	s, _ = byHand(t, dir, nil)
	if _, err := s.Stack(1).State(); !isCorrupt(err) {
		t.Fatalf("it is not refused: %v", err)
	}
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	count(t, s, 1, 1)
	wantCounted(t, s, 1, 1)
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	wantCounted(t, s, 0, 1)
	wantCounted(t, s, 1, 1)
	if names := runFiles(t, dir); len(names) != 2 {
		t.Errorf("the files are %v", names)
	}
	closeStore(t, s)
}

// A merge under way lists nothing of a shard that was dropped.
func TestDropAmidAMerge(t *testing.T) {
	dir := t.TempDir()
	s, _ := byHand(t, dir, nil)
	for at := range pipeline.Position(RunsWanted + 1) {
		count(t, s, 1, at+1)
	}
	drops := 0
	_, err := s.mergeOnce(func(time.Duration) bool {
		if drops++; drops == 1 {
			if err := s.Drop(1); err != nil {
				t.Fatal(err)
			}
			count(t, s, 1, 1)
		}
		return true
	})
	if err != nil && !errors.Is(err, errStopped) || drops == 0 {
		t.Errorf("%d drops, %v", drops, err)
	}
	wantCounted(t, s, 1, 1)
	closeStore(t, s)
	s, _ = byHand(t, dir, nil)
	wantCounted(t, s, 1, 1)
	if names := runFiles(t, dir); len(names) != 1 {
		t.Errorf("the files are %v", names)
	}
	closeStore(t, s)
}

// A commit that fails changes nothing; after a restart all of it is there, or
// nothing.
func TestDropFails(t *testing.T) {
	for _, lands := range []bool{false, true} {
		dir := t.TempDir()
		failing := &failingCommits{lands: lands}
		s, _ := byHand(t, dir, func(e Engine) Engine {
			failing.Engine = e
			return failing
		})
		count(t, s, 0, 1)
		count(t, s, 1, 1)
		failing.fails = true
		if err := s.Drop(1); !errors.Is(err, errFails) || !strings.Contains(err.Error(), "drop shard 1") {
			t.Errorf("%v", err)
		}
		failing.fails = false
		wantCounted(t, s, 1, 1)
		closeStore(t, s)
		s, _ = byHand(t, dir, nil)
		want, files := int64(1), 2
		if lands {
			want, files = 0, 1
		}
		wantCounted(t, s, 0, 1)
		wantCounted(t, s, 1, want)
		if names := runFiles(t, dir); len(names) != files {
			t.Errorf("the files are %v, want %d", names, files)
		}
		closeStore(t, s)
	}
}

var errFails = errors.New("the disk fails")

// failingCommits is an engine whose commits fail, and land all the same or not.
type failingCommits struct {
	Engine
	fails, lands bool
}

func (f *failingCommits) Commit(writes []Write) error {
	if !f.fails {
		return f.Engine.Commit(writes)
	}
	if f.lands {
		if err := f.Engine.Commit(writes); err != nil {
			return err
		}
	}
	return errFails
}

const dropVictimEnv = "TIDEMARK_TEST_COLD_DROP_VICTIM"

// dropVictim checkpoints all shards together and drops one of them now and
// then, and prints what is committed, until it is killed.
func dropVictim(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	o := testOptions()
	s, err := Open(dir, spec(fatal{}, "post: like"), o)
	die(err)
	one := []pipeline.Delta{pipeline.Add(1)}
	for step := 1; ; step++ {
		c := s.Begin()
		for shard := range pipeline.Shard(o.Shards) {
			state, err := s.Stack(shard).State()
			die(err)
			sink := c.Shard(shard)
			for id := range uint64(victimRows) {
				sink.Change(0, id+1, one)
			}
			sink.State(State{Applied: state.Applied + 1})
		}
		die(c.Commit())
		for shard := range o.Shards {
			s.Stack(pipeline.Shard(shard)).Publish()
		}
		fmt.Println("checkpoint")
		if step%2 == 0 {
			die(s.Drop(pipeline.Shard(1 + step/2%2)))
			fmt.Println("drop")
		}
	}
}

// kill -9 at any moment, between any two steps of a drop, beside checkpoints and merges:
// a crash before it leaves all, a crash after it nothing.
func TestDropKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dropped := 0
	rounds := max(*kills/2, 1)
	for round := 0; round < rounds || round < killsMore*rounds && dropped == 0; round++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), dropVictimEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rand.IntN(100_000)) * time.Microsecond
		for lines, first := bufio.NewScanner(out), true; lines.Scan(); first = false {
			switch lines.Text() {
			case "drop":
				dropped++
			case "checkpoint":
			default:
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			if first {
				time.AfterFunc(after, func() { cmd.Process.Kill() })
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("round %d: %v", round, err)
		}
		all, _, err := checkShards(dir)
		if err != nil {
			t.Fatalf("round %d, killed %v after the first checkpoint: %v", round, after, err)
		}
		if all[0] != all[3] || all[1] > all[0] || all[2] > all[0] {
			t.Errorf("round %d: the shards stand at %v, and only 1 and 2 were dropped", round, all)
		}
	}
	if dropped == 0 {
		t.Error("no kill hit a process at work")
	}
}
