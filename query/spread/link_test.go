package spread_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
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

// A batch is lost whose parts have much time: it does not hold up the others for
// as long.
func TestABatchIsLost(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	lost := make(chan struct{})
	c.meddle("a", "a-real", &relay{question: func(m []byte) []byte {
		select {
		case <-lost:
			return m
		default:
			close(lost)
			return nil
		}
	}})
	c.list("a", all)
	c.open()
	ctx, cancel := context.WithCancel(within(t, time.Hour))
	defer cancel()
	first := make(chan error)
	go func() {
		_, err := like(t, c.far(0, 0), ctx, 1)
		first <- err
	}()
	<-lost
	if rows, err := like(t, c.far(0, 0), within(t, 10*time.Second), 1, 2, 3); err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("nothing was lost: %v", err)
	}
}

// "When a holder goes away in the middle of a request, another one is asked": what it was
// asked is asked elsewhere as soon as NATS knows, and soon where nobody knows it.
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
			t.Parallel()
			w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
			c := newCluster(t, w, &server.Options{})
			kill := c.pretend("a", o.taken)
			c.list("a", all)
			c.open()
			user := idIn(0, 0)
			c.node("b", func(s pipeline.Shard) bool { return s == 0 })
			answers := make(chan error, 40)
			for range cap(answers) {
				go func() {
					// Half of an hour is far above what a test takes that hangs.
					rows, err := like(t, c.far(0, 0), within(t, time.Hour), user)
					if err == nil && len(rows.Missing) > 0 {
						err = errors.New("it is missing")
					}
					answers <- err
				}()
			}
			e2e.Until(t, "they ask", func() bool { return c.figure("tidemark_nodes_requests_total") > 0 })
			if o.kill {
				kill()
			}
			for range cap(answers) {
				if err := <-answers; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A node that was silent for a moment is asked again when the others turn out to be
// gone; and what it alone holds is waited for.
func TestSlowAndAlone(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	c.serve("a-real", querytest.NewHolder(w, "a", all))
	c.meddle("a", "a-real", &relay{question: func(m []byte) []byte {
		if len(m) > wire.BatchOverhead {
			time.Sleep(300 * time.Millisecond) // longer than a node may be silent
		}
		return m
	}})
	c.list("a", all)
	c.list("gone", even)
	c.open()
	rows, err := like(t, c.far(0, 0), within(t, 20*time.Second), idIn(0, 0), idIn(1, 0))
	if err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
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
	err := c.far(0, 0).Following(within(t, time.Hour), 7, 0, 10_000, &page, true)
	loses.mu.Lock()
	defer loses.mu.Unlock()
	if err != nil || len(page.Users) != 10_000 || messages < 4 {
		t.Error(err, len(page.Users), messages)
	}
}
