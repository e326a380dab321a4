package spread_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/spread"
	"github.com/tidemark-io/tidemark/query/wire"
)

// untaken is a message of answers without the word that the batch is taken.
func untaken(m []byte) []byte {
	m[5] = 0
	return wire.End(m[:len(m)-4])
}

// The word that a batch is taken is lost, and all of its parts are answered: the
// next is sent.
func TestTakenIsLost(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	c.meddle("a", "a-real", &relay{answer: func(m []byte) [][]byte { return [][]byte{untaken(m)} }})
	c.list("a", all)
	c.open()
	for n := range 3 {
		rows, err := like(t, c.far(0, 0), within(t, 20*time.Second), 1, 2, 3)
		if err != nil || len(rows.Missing) > 0 {
			t.Fatal(n, err, rows.Missing)
		}
	}
}

// A batch is lost whose parts have much time: it does not hold up the others for
// as long.
func TestABatchIsLost(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	lost := false
	c.meddle("a", "a-real", &relay{question: func(m []byte) []byte {
		if !lost {
			lost = true
			return nil
		}
		return m
	}})
	c.list("a", all)
	c.open()
	first := make(chan query.Rows)
	go func() {
		rows, _ := like(t, c.far(0, 0), within(t, 3*time.Second), 1)
		first <- rows
	}()
	time.Sleep(20 * time.Millisecond)
	rows, err := like(t, c.far(0, 0), within(t, time.Second), 1, 2, 3)
	if err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
	if rows := <-first; len(rows.Missing) != 1 {
		t.Error("nothing was lost")
	}
}

// pretend is a node that says taken to the first batches, and no more.
func (c *cluster) pretend(name string, taken int) (kill func()) {
	nc := querytest.Connect(c.t, c.server)
	_, err := nc.Subscribe(spread.Subject(name, 0), func(q *nats.Msg) {
		if taken--; taken >= 0 {
			m := wire.BeginReplies(nil, wire.Oldest)
			wire.SetTaken(m)
			_ = nc.Publish(q.Reply, wire.End(m))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return nc.Close
}

// killedWithin is far above what a busy machine takes to ask another node, and far below
// how long a question may take here.
const killedWithin = 10 * time.Second

// "When a holder goes away in the middle of a request, another one is
// asked": what it was asked is asked elsewhere as soon as NATS knows, and soon where
// nobody knows it.
func TestHolderIsKilled(t *testing.T) {
	for name, o := range map[string]struct {
		taken int
		kill  bool
	}{
		"before it has taken the batch": {0, true},
		"after it":                      {1, true},
		"it hangs":                      {0, false},
		"it hangs after it":             {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
			c := newCluster(t, w, &server.Options{})
			kill := c.pretend("a", o.taken)
			c.list("a", all)
			c.open()
			user := idIn(0, 0)
			type answer struct {
				rows query.Rows
				err  error
				took time.Duration
			}
			c.node("b", func(s pipeline.Shard) bool { return s == 0 })
			answers := make(chan answer, 40)
			begun := time.Now()
			for range cap(answers) {
				go func() {
					rows, err := like(t, c.far(0, 0), within(t, 4*killedWithin), user)
					answers <- answer{rows, err, time.Since(begun)}
				}()
			}
			time.Sleep(20 * time.Millisecond)
			if o.kill {
				kill()
			}
			for range cap(answers) {
				a := <-answers
				if a.err != nil || len(a.rows.Missing) > 0 || a.took > killedWithin {
					t.Errorf("%v: %v are missing after %v", a.err, a.rows.Missing, a.took)
				}
			}
			if o.kill {
				begun := time.Now()
				if err := c.reader.WaitVisible(within(t, 4*killedWithin), user, now); err != nil || time.Since(begun) > killedWithin {
					t.Error(err, time.Since(begun))
				}
			}
		})
	}
}

// docs/decisions/0033-freshness.md: "a read with wait": a holder that is killed while it
// is waited for has no say.
func TestWaitVisibleWhileAHolderIsKilled(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	kill := c.pretend("a", 1)
	c.list("a", all)
	c.open()
	time.AfterFunc(50*time.Millisecond, kill)
	begun := time.Now()
	if err := c.reader.WaitVisible(within(t, 4*killedWithin), 1, now); err != nil || time.Since(begun) > killedWithin {
		t.Error(err, time.Since(begun))
	}
}

// A node that was silent for a moment is asked again when the others turn out to be
// gone; and what it alone holds is waited for.
func TestSlowAndAlone(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	c.meddle("a", "a-real", &relay{question: func(m []byte) []byte {
		if len(m) > wire.BatchOverhead {
			time.Sleep(300 * time.Millisecond)
		}
		return m
	}})
	c.list("a", all)
	c.list("gone", even)
	c.open()
	for range 5 {
		rows, err := like(t, c.far(0, 0), within(t, 2*time.Second), idIn(0, 0), idIn(1, 0))
		if err != nil || len(rows.Missing) > 0 {
			t.Error(err, rows.Missing)
		}
	}
}

// A message of a long answer is lost: it is asked again at once.
func TestAPieceIsLost(t *testing.T) {
	w := querytest.NewWorld(querytest.Schema(t), shards, now)
	w.Follows[7] = map[uint64]pipeline.Position{}
	for i := range uint64(10_000) {
		w.Follows[7][(i+1)*0x9e3779b97f4a7c15] = 1
	}
	c := newCluster(t, w, &server.Options{MaxPayload: 32 << 10})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	messages := 0
	loses := &relay{answer: func(m []byte) [][]byte {
		if messages++; messages == 2 {
			return nil
		}
		return [][]byte{m}
	}}
	c.meddle("a", "a-real", loses)
	c.list("a", all)
	c.open()
	var page query.UserPage
	begun := time.Now()
	err := c.far(0, 0).Following(within(t, 50*time.Second), 7, 0, 10_000, &page, true)
	loses.mu.Lock()
	defer loses.mu.Unlock()
	if err != nil || len(page.Users) != 10_000 || messages < 4 || time.Since(begun) > 15*time.Second {
		t.Error(err, len(page.Users), messages, time.Since(begun))
	}
}

// What this process reads from disk beside other nodes is as of where it stands: the
// try without the disk says nothing.
func TestOwnDiskAsOf(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	own := querytest.NewHolder(w, "own", all)
	own.Cool(1)
	c.own = own
	c.open()
	rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), 1, 2)
	if err != nil || len(rows.Missing) > 0 || rows.AsOf != now || rows.Cost.Cold != 1 {
		t.Error(err, rows)
	}
}

// A holder that stops in order while a read waits for it says that it will not come
// there; then it is gone, and no later query is asked of it.
func TestWaitVisibleWhileAHolderStops(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all).Lag(now - 1)
	c.node("b", all)
	c.open()
	stopped := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		c.stop("a")
		close(stopped)
	})
	if err := c.reader.WaitVisible(within(t, 2*time.Second), 1, now); err != nil {
		t.Error(err)
	}
	<-stopped
}
