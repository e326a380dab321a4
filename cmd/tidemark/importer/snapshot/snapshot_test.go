package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/internal/redistest"
)

// server is a redis-server of the test's own.
type server struct {
	testing.TB
	*redistest.Server
}

func newServer(t testing.TB) *server {
	t.Helper()
	return &server{t, redistest.New(t)}
}

var schema = Schema{
	{"post", "repost", 1<<63 - 1},
	{"post", "comment", 1<<63 - 1},
	{"post", "like", 255},
	{"user", "follower", 1<<63 - 1},
	{"view", "video", 1<<63 - 1},
}

func (s *server) options(patterns ...string) Options {
	return Options{URL: s.URL(), Patterns: patterns, Schema: schema, Dir: s.TempDir(), saveEvery: time.Millisecond}
}

// take gives the lines of a snapshot, without the header.
func take(t testing.TB, o Options) ([]string, Faults) {
	t.Helper()
	s, err := Take(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if lines[0] != "counter,id,column,value" || uint64(len(lines)-1) != s.Counts {
		t.Errorf("%d lines, %d counts, %q", len(lines), s.Counts, lines[0])
	}
	return lines[1:], s.Faults
}

// Strings, hashes by field, hashes whole, hashes of ids, and all that is no
// count: named, with what is wrong.
func TestTake(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	for key, value := range map[string]any{
		"post:42:likes": 7, "post:43:likes": 0, "post:44:likes": 255, "post:18446744073709551615:likes": 1,
		"post:1:likes": "many", "post:2:likes": "", "post:3:likes": -1, "post:4:likes": 256, "post:5:likes": "9223372036854775808",
		"post:6:likes": strings.Repeat("1", 1<<20), "post:0:likes": 1, "post:x:likes": 1, "post:007:likes": 1, "post::likes": 1,
		"post:\xff:likes": 1, "unlike:42:likes": 1, "post:42:likes:x": 1, "f*[1]:9": 4, "f*[2]:9": 5,
	} {
		if err := s.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key, values := range map[string][]any{
		"post:42":      {"repost", 5, "comment", 6, "title", "not a count"},
		"post:43":      {"comment", "x"},
		"u:7":          {"followers", 9},
		"views:a":      {"100", 1, "101", 2, "total", 3},
		"views:b":      {"102", 4, "0", 5},
		"post:8:likes": {"a", 1},
	} {
		if err := s.HSet(ctx, key, values...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.LPush(ctx, "views:c", 1).Err(); err != nil {
		t.Fatal(err)
	}

	lines, faults := take(t, s.options("post:{id}:likes=post.like"))
	if want := []string{"post,42,like,7", "post,43,like,0", "post,44,like,255", "post,18446744073709551615,like,1"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("%q", lines)
	}
	if want := map[string]uint64{"id": 5, "value": 6, "type": 1}; !reflect.DeepEqual(faults.Reasons, want) || faults.Keys != 12 || len(faults.Examples) != 2*shownMax+1 {
		t.Errorf("%+v", faults)
	}
	o := s.options("u:{id}#followers=user.follower", "views:*#{id}=view.video", `f\*[1]:{id}=post.repost`)
	lines, faults = take(t, o)
	if want := []string{"post,9,repost,4", "user,7,follower,9", "view,100,video,1", "view,101,video,2", "view,102,video,4"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("%q", lines)
	}
	has := func(faults Faults, f Fault) {
		t.Helper()
		for _, g := range faults.Examples {
			if f == g {
				return
			}
		}
		t.Errorf("%+v is not among %+v", f, faults.Examples)
	}
	has(faults, Fault{"views:c", "", "type", "not a hash"})
	has(faults, Fault{"views:b", "0", "id", `"0" is not an id`})
	has(faults, Fault{"views:a", "total", "id", `"total" is not an id`})

	// A key that another pattern takes is not one that this one cannot read.
	lines, faults = take(t, s.options("post:{id}=post.*", "u:{id}=user.*"))
	if want := []string{"post,42,comment,6", "post,42,repost,5"}; !sameLines(lines, want) {
		t.Errorf("%q %v", lines, faults)
	}
	_, with := take(t, s.options("post:{id}#comment=post.comment", "post:{id}:likes=post.like"))
	for _, f := range with.Examples {
		if f.Key == "post:42:likes" {
			t.Errorf("%+v", f)
		}
	}
}

func sameLines(got, want []string) bool {
	count := map[string]int{}
	for _, line := range got {
		count[line]++
	}
	for _, line := range want {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// One hash of all counts is read step by step.
func TestTakeOneHash(t *testing.T) {
	s := newServer(t)
	s.Fill(0, 20_000, func(p redis.Pipeliner, i int) { p.HSet(context.Background(), "likes", fmt.Sprintf("p%d", i+1), i) })
	o := s.options("likes#p{id}=view.video")
	lines, faults := take(t, o)
	if len(lines) != 20_000 || faults.Keys != 0 || lines[0] != "view,1,video,0" || lines[19_999] != "view,20000,video,19999" {
		t.Errorf("%d lines, %v", len(lines), faults)
	}
}

const many = 10_000

func (s *server) fillMany() {
	s.Fill(0, many, func(p redis.Pipeliner, i int) {
		p.Set(context.Background(), fmt.Sprintf("view:%d", i+1), i*i, 0)
	})
}

func (s *server) wantMany(lines []string) {
	s.Helper()
	if len(lines) != many {
		s.Errorf("%d lines", len(lines))
	}
	for i, line := range lines {
		if want := fmt.Sprintf("view,%d,video,%d", i+1, i*i); line != want {
			s.Fatalf("line %d is %q, want %q", i, line, want)
		}
	}
}

// docs/contract.md: "exact when run again after an interruption"; "SCAN may give a key
// twice": keys come and go meanwhile, so that Redis moves its keys to other tables.
func TestGoesOn(t *testing.T) {
	s := newServer(t)
	s.fillMany()
	o := s.options("view:{id}=view.video")
	o.scanCount, o.piece = 100, 700
	interrupted := 0
	for last := int64(0); ; interrupted++ {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		o.Progress = onSay(func(string) {
			if steps++; steps == 5 && interrupted < 4 {
				cancel()
			}
		})
		taken, err := Take(ctx, o)
		cancel()
		if err == nil {
			taken.Close()
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if !Begun(o.Dir) {
			t.Fatal("nothing was begun")
		}
		r := reader{o: o, plan: &plan{columns: []Column{schema[4]}, passes: make([]*pass, 1)}}
		if err := r.load(); err != nil || r.state.Cells < last {
			t.Fatalf("%d cells after %d: %v", r.state.Cells, last, err)
		}
		last = r.state.Cells
		from := interrupted * 4_000
		s.Fill(from, from+4_000, func(p redis.Pipeliner, i int) { p.Set(context.Background(), fmt.Sprintf("other:%d", i), 1, 0) })
		s.Fill(from, from+2_000, func(p redis.Pipeliner, i int) { p.Del(context.Background(), fmt.Sprintf("other:%d", i)) })
	}
	o.Progress = nil
	lines, _ := take(t, o) // the one that is whole
	s.wantMany(lines)
}

// onSay calls something when progress is said.
type onSay func(text string)

func (f onSay) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

// "An import from a Redis goes on when the Redis goes away and comes
// back": a connection that is lost goes on with the cursor, another process begins again,
// and either way all is there.
func TestRedisGoesAway(t *testing.T) {
	s := newServer(t)
	s.fillMany()
	o := s.options("view:{id}=view.video")
	o.scanCount = 100
	steps, again := 0, 0
	o.Progress = onSay(func(text string) {
		switch {
		case strings.Contains(text, "begins again"):
			again++
		default:
			switch steps++; steps {
			case 3, 6:
				s.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes")
			case 9:
				s.Kill()
				s.Start()
				s.fillMany()
			}
		}
	})
	lines, faults := take(t, o)
	s.wantMany(lines)
	if again != 1 || faults.Keys != 0 {
		t.Errorf("begun again %d times, %v", again, faults)
	}

	// It stays away: said so, and the next run goes on.
	o = s.options("view:{id}=view.video")
	o.scanCount, o.patience = 100, 300*time.Millisecond
	steps = 0
	away := 0
	o.Progress = onSay(func(text string) {
		if steps++; steps == 3 {
			s.Kill()
		}
		away += strings.Count(text, "is away")
	})
	if _, err := Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "run it again to go on") || away != 1 {
		t.Errorf("%v, away %d times", err, away)
	}
	if _, err := Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no Redis answers at") {
		t.Errorf("%v", err)
	}
	s.Start()
	s.fillMany()
	o.Progress = nil
	lines, _ = take(t, o)
	s.wantMany(lines)
}

func TestTakeRefuses(t *testing.T) {
	s := newServer(t)
	s.Fill(0, 10, func(p redis.Pipeliner, i int) { p.Set(context.Background(), fmt.Sprintf("view:%d", i+1), i, 0) })
	o := s.options("view:{id}=view.video")
	taken, err := Take(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), o); !errors.Is(err, ErrLocked) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(taken.Close(), taken.Remove()); err != nil || Begun(o.Dir) || exists(o.Dir) {
		t.Errorf("%v", err)
	}

	// What is begun for other columns is begun again.
	lines, _ := take(t, o)
	o.Patterns = []string{"view:{id}=post.repost"}
	other, _ := take(t, o)
	if len(lines) != 10 || len(other) != 10 || other[9] != "post,10,repost,9" {
		t.Errorf("%q %q", lines, other)
	}

	// A power cut takes cells that the state knows of, and a state that is none is said.
	o.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.Dir, stateFile), []byte(`{"columns":["post.repost"],"cursor":"3","field":"0","cells":5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, _ := take(t, o); len(lines) != 10 {
		t.Errorf("%q", lines)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, stateFile), []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "state.json") {
		t.Errorf("%v", err)
	}

	if err := s.ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	o.Dir = t.TempDir()
	if _, err := Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("%v", err)
	}
	t.Setenv(authVariable, "secret")
	if lines, _ := take(t, o); len(lines) != 10 {
		t.Errorf("%q", lines)
	}
}
