package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/query"
)

// childEnv has a test binary be one node, as its value says.
const childEnv = "TIDEMARK_TEST_CHILD"

// child is a node in a process of its own, which can be killed.
type child struct {
	Name, Dir, URL string
	Fans           bool // its file has that column
	Unaudited      bool // it does not repair what differs

	command *exec.Cmd
}

// children are what a test binary may be instead, by the variable that says so.
var children = map[string]func(text string) error{childEnv: beChild}

func TestMain(m *testing.M) {
	for env, be := range children {
		if text := os.Getenv(env); text != "" {
			if err := be(text); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			return
		}
	}
	natstest.SideBySide()
	code := m.Run()
	natstest.Clean()
	os.Exit(code)
}

func beChild(text string) error {
	var is child
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		return err
	}
	n, err := Start(contextOfSignals(), is.config(), Options{Version: "test", Processors: 2, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)).With("on", is.Name)})
	if err != nil {
		return err
	}
	fmt.Println("started")
	select {
	case <-contextOfSignals().Done():
	case <-n.Failed():
		fmt.Println(n.Failure())
	}
	return n.Close()
}

func contextOfSignals() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx
}

func (c *child) config() *config.Config {
	by := nodetest.EachLikeCounts()
	by.Node, by.DataDir, by.NATS.URL, by.HTTP.Listen, by.Shards = c.Name, c.Dir, c.URL, "", nodetest.Shards
	by.Router.LeaseRenew, by.Router.LeaseExpiry = 200*time.Millisecond, 3*time.Second // the same node takes it again at once
	by.Checkpoint.Interval = 200 * time.Millisecond
	if c.Fans {
		by = fans(by)
	}
	if c.Unaudited {
		unaudited(by)
	}
	return by
}

// run starts it, and returns when it answers: with the file of a generation that is
// there.
func (c *child) run(f *fleet) {
	f.T.Helper()
	for range 3 {
		if c.start(f) {
			return
		}
		c.Fans = !c.Fans
	}
	f.T.Fatalf("node %s does not start\n%s", c.Name, f.Log.String())
}

func (c *child) start(f *fleet) bool {
	f.T.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		f.T.Fatal(err)
	}
	c.command = exec.Command(os.Args[0])
	c.command.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := c.command.StdoutPipe()
	if err == nil {
		c.command.Stderr = &f.Log
		err = c.command.Start()
	}
	if err != nil {
		f.T.Fatal(err)
	}
	f.Dirs[c.Name] = c.Dir
	lines := bufio.NewReader(io.TeeReader(out, &f.Log))
	for {
		line, err := lines.ReadString('\n')
		switch {
		case line == "started\n":
			go io.Copy(io.Discard, lines)
			f.T.Cleanup(c.kill)
			return true
		case strings.Contains(line, "the configuration counts otherwise than generation"):
			c.kill()
			return false
		}
		if err != nil {
			f.T.Fatalf("node %s does not start: %v\n%s", c.Name, err, f.Log.String())
		}
	}
}

func (c *child) kill() {
	if c.command != nil {
		_ = c.command.Process.Kill()
		_ = c.command.Wait()
		c.command = nil
	}
}

// "A node that is killed at any moment of a rebuild goes on where it
// was": whatever the rebuild is at, and whichever node it is, the end is as if nobody had
// been killed. No dead letter is lost, and none comes twice.
func TestRebuildKilled(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			var all []*child
			for i := range nodes {
				c := &child{Name: string(rune('a' + i)), Dir: t.TempDir(), URL: f.URL}
				all = append(all, c)
				c.run(f)
			}
			plain := all[0].config()
			likes, letters := 0, 0
			for range 8 {
				f.Publish(30)
				likes++
				for range 3 {
					if _, err := f.NC.Request("events.like", fmt.Appendf(nil, `{"actor":0,"post":%d}`, letters), e2e.Patience); err != nil {
						t.Fatal(err)
					}
					letters++
				}
				s := f.status()
				by := plain
				if random.IntN(2) == 0 {
					by = fans(plain)
				}
				switch random.IntN(4) {
				case 0:
					_ = f.rebuild(RebuildBackVerb, struct{}{}, nil)
				case 1:
					_ = f.rebuild(RebuildAbortVerb, struct{}{}, nil)
				default:
					counting, err := by.Counting()
					if err != nil {
						t.Fatal(err)
					}
					if err := f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), nil); err != nil && !strings.Contains(err.Error(), "is under way") {
						t.Logf("%s: %v", s.State, err)
					}
				}
				time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
				t.Logf("killed at %+v", f.status().State)
				c := all[random.IntN(len(all))]
				c.kill()
				c.run(f)
			}
			f.Until("no rebuild is under way", func() bool {
				s := f.status()
				return s.Serving != 0 && s.Building == 0
			})
			counting, err := fans(plain).Counting()
			if err != nil {
				t.Fatal(err)
			}
			var begun RebuildBegun
			f.Until("the last one begins", func() bool { return f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting}), &begun) == nil })
			f.Until("it serves", func() bool { s := f.status(); return s.Serving == begun.Building && s.State == generations.Switched })
			f.Until("all likes", func() bool { return f.Likes(30, likes) })
			f.Until("all fans", f.Has("post", "fans", 30, likes))
			f.Until("no dead letters are owed", func() bool { s := f.record(); return s.Serving == begun.Building && s.All[s.Serving].Letters == 0 })
			time.Sleep(500 * time.Millisecond) // none comes twice
			f.letters(letters)
		})
	}
}

// letters says how many dead letters there are, of how many positions.
func (f *fleet) letters(want int) {
	f.T.Helper()
	js, err := jetstream.New(f.NC)
	if err != nil {
		f.T.Fatal(err)
	}
	stream, err := js.Stream(f.T.Context(), jetlog.DeadLetterStream)
	if err != nil {
		f.T.Fatal(err)
	}
	of := map[string]int{}
	info := stream.CachedInfo()
	for at := info.State.FirstSeq; at <= info.State.LastSeq; at++ {
		m, err := stream.GetMsg(f.T.Context(), at)
		if err != nil {
			f.T.Fatal(err)
		}
		of[m.Header.Get(letters.HeaderSequence)]++
	}
	if len(of) != want || info.State.Msgs != uint64(want) {
		f.T.Errorf("%d dead letters of %d events, want %d each: %v\n%s", info.State.Msgs, len(of), want, of, f.Log.String())
	}
}

// holderOf is the node that holds a post.
func (f *fleet) holderOf(post uint64) string {
	f.T.Helper()
	reply, err := f.NC.Request("tidemark.shards", []byte(`{}`), 10*time.Second)
	if err != nil {
		f.T.Fatal(err)
	}
	var shards query.Shards
	if err := json.Unmarshal(reply.Data, &shards); err != nil {
		f.T.Fatal(err)
	}
	return shards.Shards[pipeline.ShardOf(post, nodetest.Shards)].Holders[0].Node
}

// A node that is suspended while the others switch follows as soon as it goes on.
func TestSuspendedDuringTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := &child{Name: "a", Dir: t.TempDir(), URL: f.URL}
	b := &child{Name: "b", Dir: t.TempDir(), URL: f.URL}
	a.run(f)
	b.run(f)
	f.Publish(30)
	f.Until("all likes", func() bool { return f.Likes(30, 1) })
	time.Sleep(time.Second) // checkpoints
	holder := f.holderOf(7)
	a.kill()
	b.kill()
	f.Dirs["a"], f.Dirs["b"] = a.Dir, b.Dir
	f.Plant(7, holder) // so that what serves differs from the log
	a.Unaudited, b.Unaudited = true, true
	a.run(f)
	b.run(f)
	f.Until("what was planted", f.Has("post", "like", 7, 3))
	if err := f.rebuild(RebuildVerb, RebuildAsk{}, nil); err != nil {
		t.Fatal(err)
	}
	f.Until("it waits", func() bool { return f.status().Waits })
	// On a machine that is too slow the node is taken for away before anything is switched,
	// and then nothing is, until it goes on: it is switched back, and tried again.
	verb := RebuildAcceptVerb
	for range 5 {
		during := f.switchSuspended(a, b, verb)
		inARow := 0
		f.Until("all answer by the new one", func() bool {
			for inARow = 0; inARow < 30 && f.Has("post", "like", 7, 2)(); inARow++ {
			}
			return inARow == 30
		})
		if during {
			return
		}
		verb = RebuildBackVerb
		f.Until("it is switched back", func() bool {
			_ = f.rebuild(verb, struct{}{}, nil)
			return f.record().Serving == 1
		})
	}
	t.Errorf("in none of five tries it is switched while the node is suspended\n%s", f.Log.String())
}

// switchSuspended suspends the node that does not lead, has the other one switch, and lets
// the first one go on: whether it was switched since then.
func (f *fleet) switchSuspended(a, b *child, verb string) (during bool) {
	f.T.Helper()
	suspended, leading := b, a
	if _, err := job.Ask(f.T.Context(), f.NC, "b", RebuildStatusVerb, struct{}{}, nil); err == nil {
		suspended, leading = a, b
	}
	if err := suspended.command.Process.Signal(syscall.SIGSTOP); err != nil {
		f.T.Fatal(err)
	}
	silent := time.Now()
	f.Until("it is asked for", func() bool { // by then the suspended node may have led, and leads no longer
		_, err := job.Ask(f.T.Context(), f.NC, leading.Name, verb, struct{}{}, nil)
		s := f.record()
		return err == nil || s.Accept || s.Serving == 2
	})
	for f.record().Serving != 2 && time.Since(silent) < bucket.MemberExpiry+bucket.MemberBeat {
		time.Sleep(20 * time.Millisecond)
	}
	during = f.record().Serving == 2 // once it is taken for away nothing is switched
	if err := suspended.command.Process.Signal(syscall.SIGCONT); err != nil {
		f.T.Fatal(err)
	}
	f.Until("it is switched", func() bool { return f.record().Serving == 2 })
	return during
}
