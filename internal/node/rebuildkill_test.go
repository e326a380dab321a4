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

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// childEnv has a test binary be one node, as its value says.
const childEnv = "TIDEMARK_TEST_CHILD"

// child is a node in a process of its own, which can be killed.
type child struct {
	Name, Dir, URL string
	Fans           bool // its file has that column

	command *exec.Cmd
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

// ends stops it in order.
func (c *child) ends(f *fleet) {
	f.T.Helper()
	process := c.command.Process
	hangs := time.AfterFunc(e2e.Patience, func() { _ = process.Kill() })
	defer hangs.Stop()
	_ = process.Signal(syscall.SIGTERM)
	if err := c.command.Wait(); err != nil {
		f.T.Errorf("node %s does not end in order: %v", c.Name, err)
	}
	c.command = nil
}

// passes waits until nodes have said some lines more, or no rebuild is under way.
func (f *fleet) passes(lines int) {
	f.T.Helper()
	said := func() int { return strings.Count(f.Log.String(), "\n") }
	end := said() + lines
	f.Until("something happens", func() bool { return said() >= end || f.status().Building == 0 })
}

// "A node that is killed at any moment of a rebuild goes on where it
// was": whatever the rebuild is at, and whichever node it is, the end is as if nobody had
// been killed, or stopped in order. No dead letter is lost, and none comes twice.
func TestRebuildKilled(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{2, 1} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			rounds := 8
			if testing.Short() {
				rounds = 3
			}
			if nodes == 1 {
				natstest.Long(t)
			}
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
			letters := 0
			for range rounds {
				f.Publish(30)
				f.refused(3)
				letters += 3
				by := plain
				if random.IntN(2) == 0 {
					by = fans(plain)
				}
				switch random.IntN(6) {
				case 0:
					_ = f.rebuild(RebuildBackVerb, struct{}{}, nil)
				case 1:
					_ = f.rebuild(RebuildAbortVerb, struct{}{}, nil)
				default:
					err := f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: f.by(by)}), nil)
					if err != nil && !strings.Contains(err.Error(), "is under way") {
						t.Log(err)
					}
				}
				f.passes(random.IntN(30))
				t.Logf("killed at %+v", f.status().State)
				c := all[random.IntN(len(all))]
				if random.IntN(3) == 0 {
					c.ends(f)
				} else {
					c.kill()
				}
				c.run(f)
			}
			f.Until("no rebuild is under way", func() bool {
				s := f.status()
				return s.Serving != 0 && s.Building == 0
			})
			var begun RebuildBegun
			f.Until("the last one begins", func() bool {
				return f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: f.by(fans(plain))}), &begun) == nil
			})
			f.Until("it serves", func() bool { s := f.status(); return s.Serving == begun.Building && s.State == generations.Switched })
			f.Until("all likes", func() bool { return f.Likes(30, rounds) })
			f.Until("all fans", f.Has("post", "fans", 30, rounds))
			owed := func() bool { s := f.record(); return s.Serving != begun.Building || s.All[s.Serving].Letters != 0 }
			f.Until("no dead letters are owed", func() bool { return !owed() })
			f.refused(1) // which comes last
			letters++
			stream := natstest.Stream(t, f.NC, jetlog.DeadLetterStream)
			f.Until("all dead letters", func() bool {
				info, err := stream.Info(t.Context())
				return err == nil && info.State.Msgs >= uint64(letters)
			})
			f.letters(letters)
		})
	}
}
