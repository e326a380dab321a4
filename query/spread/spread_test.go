package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

func all(pipeline.Shard) bool    { return true }
func even(s pipeline.Shard) bool { return s%2 == 0 }
func odd(s pipeline.Shard) bool  { return s%2 == 1 }

// idIn is the least id of a shard above some id.
func idIn(s pipeline.Shard, above uint64) uint64 {
	for id := above + 1; ; id++ {
		if pipeline.ShardOf(id, shards) == s {
			return id
		}
	}
}

func like(t testing.TB, far query.Reader, ctx context.Context, ids ...uint64) (rows query.Rows, err error) {
	t.Helper()
	err = far.Rows(ctx, 0, likeColumns, ids, &rows, true)
	return rows, err
}

// docs/contract.md: "At most 10,000 ids (or users) a request", and a server that takes 1
// MiB at once, or less.
func TestManyIDs(t *testing.T) {
	for _, most := range []int32{32 << 10, 1 << 20} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			w := community(t, r, 3000)
			c := newCluster(t, w, &server.Options{MaxPayload: most})
			c.node("a", even)
			c.node("b", odd)
			c.open()
			var ids []uint64
			for range 10_000 {
				ids = append(ids, 1+r.Uint64N(3000))
			}
			got, err := like(t, c.far(0, 0), within(t, 20*time.Second), ids...)
			if err != nil || len(got.Missing) > 0 || got.AsOf != now {
				t.Fatal(err, got.Missing, got.AsOf)
			}
			want, _ := like(t, w.Reader(), context.Background(), ids...)
			if err := sameRows(ids, &got, &want, len(likeColumns)); err != nil {
				t.Error(err)
			}
			var unread, wantUnread query.Unreads
			// What does not fit is known before all of it is gathered.
			var channels int
			notWanted := errors.New("not wanted")
			unread.Fit = func(notices, dots []string) error { channels = len(notices) + len(dots); return notWanted }
			if err := c.far(0, 0).Unread(within(t, 20*time.Second), ids, nil, &unread, true); !errors.Is(err, notWanted) || channels == 0 || unread.Users != nil {
				t.Fatal(err, channels)
			}
			unread.Fit = nil
			if err := c.far(0, 0).Unread(within(t, 60*time.Second), ids, nil, &unread, true); err != nil || len(unread.Missing) > 0 {
				t.Fatal(err, len(unread.Missing))
			}
			if err := w.Reader().Unread(context.Background(), ids, nil, &wantUnread, true); err != nil {
				t.Fatal(err)
			}
			if err := sameUnreads(&unread, &wantUnread); err != nil {
				t.Error(err)
			}
		})
	}
}

// "A request between nodes that needs more than `max_payload` is split,
// and does not fail."
func TestFollowsAMillion(t *testing.T) {
	const followees = 1_000_000
	w := querytest.NewWorld(querytest.Schema(t), shards, now)
	follows := make(map[uint64]pipeline.Position, followees)
	for i := range uint64(followees) {
		id := 1000 + i*977
		follows[id] = pipeline.Position(i % 3)
		if i%50_000 == 0 {
			w.Posts[id] = []query.FeedPost{{Post: i + 1, Author: id, Position: 1000 + pipeline.Position(i)}}
		}
	}
	w.Follows[7] = follows
	c := newCluster(t, w, &server.Options{MaxPayload: 1 << 20})
	for n := range pipeline.Shard(4) {
		c.node(fmt.Sprint("n", n), func(s pipeline.Shard) bool { return s%4 == n })
	}
	c.open()
	ctx := within(t, 60*time.Second)
	var unread query.Unreads
	if err := c.far(0, 0).Unread(ctx, []uint64{7}, []string{}, &unread, true); err != nil || len(unread.Missing) > 0 || unread.Users[0].Feed != 20 {
		t.Errorf("%v: %d unread, %v missing; not 20", err, unread.Users[0].Feed, unread.Missing)
	}
	if n := c.figure("tidemark_nodes_retries_total"); n > 0 {
		t.Errorf("%v parts were asked twice", n)
	}
	// The model sorts a million for each page; a tenth shows as much.
	for id := range follows {
		if id > 100_000*977 && len(w.Posts[id]) == 0 {
			delete(follows, id)
		}
	}
	var feed query.FeedPage
	if err := c.far(0, 0).Feed(ctx, 7, 0, 15, &feed, true); err != nil || feed.Missing || len(feed.Posts) != 15 || !feed.More || feed.Posts[0].Post != 950_001 {
		t.Errorf("%v: %+v", err, feed)
	}
}

// While a node works on a batch, what comes waits for the next: two are enough
// for 64 callers.
func TestWhatIsAskedMeanwhileGathers(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	h := querytest.NewHolder(w, "a", all)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.Before = func(context.Context) error {
		once.Do(func() {
			close(entered)
			<-release
		})
		return nil
	}
	c.serve("a", h)
	c.list("a", all)
	c.open()
	want, _ := like(t, w.Reader(), context.Background(), 1, 2, 3)
	var callers sync.WaitGroup
	ask := func() {
		callers.Go(func() {
			got, err := like(t, c.far(0, 0), within(t, 20*time.Second), 1, 2, 3)
			if err == nil {
				err = sameRows([]uint64{1, 2, 3}, &got, &want, len(likeColumns))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	ask()
	<-entered
	for range 63 {
		ask()
	}
	time.Sleep(200 * time.Millisecond) // they ask, and nothing is sent
	if n := c.figure("tidemark_nodes_requests_total"); n != 1 {
		t.Errorf("%v batches while one is under way", n)
	}
	close(release)
	callers.Wait()
	if n, parts := c.figure("tidemark_nodes_requests_total"), c.figure("tidemark_nodes_parts_total", "result=answered"); n != 2 || parts != 64 {
		t.Errorf("%v batches for %v parts, not 2 for 64", n, parts)
	}
}

// Many callers at once, each with its own answers.
func TestCallersAtOnce(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(4, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	c.node("b", even)
	c.node("c", odd)
	c.open()
	whole := w.Reader()
	var callers sync.WaitGroup
	for n := range uint64(64) {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(n, 3))
			for range 20 {
				users := []uint64{1 + r.Uint64N(300), 1 + r.Uint64N(300)}
				var got, want query.Unreads
				_ = whole.Unread(context.Background(), users, nil, &want, true)
				err := c.far(now, time.Second).Unread(within(t, 20*time.Second), users, nil, &got, true)
				if err == nil && len(got.Missing) == 0 {
					err = sameUnreads(&got, &want)
				}
				if err != nil || len(got.Missing) > 0 {
					t.Error(err, got.Missing)
					return
				}
			}
		})
	}
	callers.Wait()
	batches, parts := c.figure("tidemark_nodes_requests_total"), c.figure("tidemark_nodes_parts_total")
	t.Logf("%v parts in %v batches", parts, batches)
	if batches >= parts {
		t.Errorf("%v batches for %v parts: nothing gathers", batches, parts)
	}
}

// What is cold comes later, and holds up nobody.
func TestHotBeforeCold(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	cold, hot := idIn(3, 0), idIn(4, 0)
	h := querytest.NewHolder(w, "a", all)
	h.Cool(cold)
	d := &slowDisk{Holder: h, reading: make(chan struct{}, 1), release: make(chan struct{})}
	c.serve("a", d)
	c.list("a", all)
	c.open()
	answered := make(chan query.Rows)
	go func() {
		rows, err := like(t, c.far(0, 0), within(t, 20*time.Second), cold)
		if err != nil {
			t.Error(err)
		}
		answered <- rows
	}()
	<-d.reading
	for range 5 {
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), hot); err != nil || len(rows.Missing) > 0 {
			t.Fatal(err, rows.Missing)
		}
	}
	close(d.release)
	if rows := <-answered; len(rows.Missing) > 0 || rows.Cost.Cold != 1 {
		t.Errorf("%+v", rows)
	}
}

// slowDisk reads the disk when it is released.
type slowDisk struct {
	*querytest.Holder
	reading, release chan struct{}
}

func (d *slowDisk) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	if disk {
		d.reading <- struct{}{}
		<-d.release
	}
	return d.Holder.Rows(ctx, counter, columns, ids, rows, disk)
}

// docs/architecture.md: "`min_position` goes with every part."
func TestMinPosition(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	lagging := c.node("a", all)
	lagging.Lag(now - 10)
	c.open()
	id := idIn(0, 0)
	// Nobody has it in time: that is said, and nothing is missing.
	begun := time.Now()
	if _, err := like(t, c.far(now, 100*time.Millisecond), within(t, time.Minute), id); !errors.Is(err, query.ErrBehind) || time.Since(begun) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	// It comes.
	time.AfterFunc(50*time.Millisecond, func() { lagging.Lag(now) })
	if rows, err := like(t, c.far(now, 5*time.Second), within(t, 10*time.Second), id); err != nil || len(rows.Missing) > 0 || rows.AsOf != now {
		t.Error(err, rows)
	}
	// Another has it.
	lagging.Lag(now - 10)
	c.node("b", all)
	for range 20 {
		if rows, err := like(t, c.far(now, time.Second), within(t, 5*time.Second), id); err != nil || len(rows.Missing) > 0 {
			t.Error(err, rows)
		}
	}
	// Far ahead it is not waited for.
	begun = time.Now()
	if _, err := like(t, c.far(now+1<<40, 30*time.Second), within(t, time.Minute), id); !errors.Is(err, query.ErrBehind) || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	// as_of is the least of the parts.
	c2 := newCluster(t, w, &server.Options{})
	c2.node("a", even).Lag(now - 10)
	c2.node("b", odd)
	c2.open()
	if rows, err := like(t, c2.far(0, 0), within(t, 5*time.Second), idIn(0, 0), idIn(1, 0)); err != nil || rows.AsOf != now-10 {
		t.Error(err, rows.AsOf)
	}
}

// "A changed byte in what nodes send each other is noticed: it is
// refused, counted, and asked elsewhere."
func TestDamage(t *testing.T) {
	turn := func(m []byte) []byte {
		m[len(m)/2] ^= 4
		return m
	}
	for name, m := range map[string]*relay{
		"question": {question: turn},
		"answer":   {answer: func(m []byte) [][]byte { return [][]byte{turn(m)} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
			c := newCluster(t, w, &server.Options{})
			h := querytest.NewHolder(w, "a", all)
			c.serve("a-real", h)
			c.meddle("a", "a-real", m)
			c.list("a", all)
			c.open()
			id := idIn(0, 0)
			// Alone it is asked twice, and then the id is missing.
			rows, err := like(t, c.far(0, 0), within(t, 10*time.Second), id)
			if err != nil || len(rows.Missing) != 1 {
				t.Error(err, rows)
			}
			if n := c.figure("tidemark_nodes_parts_total", "result=damaged"); n != 2 {
				t.Errorf("%v parts came damaged, not 2", n)
			}
			c.node("b", all)
			for range 5 {
				time.Sleep(5 * time.Millisecond)
				if rows, err := like(t, c.far(0, 0), within(t, 10*time.Second), id); err != nil || len(rows.Missing) > 0 {
					t.Error(err, rows)
				}
			}
		})
	}
}

// "When a holder goes away in the middle of a request, another one is
// asked": what was under way is asked elsewhere.
func TestHolderGoesAway(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	a, b := querytest.NewHolder(w, "a", all), c.node("b", all)
	nc := querytest.Connect(t, c.server)
	entered := make(chan struct{}, 100)
	a.Before = func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done() // it hangs
		return ctx.Err()
	}
	s, err := spread.Serve(nc, a, spread.ServerOptions{Node: "a", Schema: w.Schema, Shards: shards, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	c.list("a", all)
	c.open()
	ids := make([]uint64, 60) // of so many shards, each holder is asked about some
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for range 30 {
		rows, err := like(t, c.far(0, 0), within(t, 500*time.Millisecond), ids...)
		if err != nil || len(rows.Missing) > 0 {
			t.Error(err, rows.Missing)
		}
	}
	if len(entered) == 0 {
		t.Error("the holder that hangs was never asked")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_ = b
	// All gone: missing, and at once.
	c.stop("b")
	begun := time.Now()
	rows, err := like(t, c.far(0, 0), within(t, time.Minute), 1, 2, 3)
	if err != nil || len(rows.Missing) != 3 || time.Since(begun) > 12*time.Second {
		t.Error(err, rows.Missing, time.Since(begun))
	}
}

// A process that is behind the log, as it is after a start, asks others first for
// what they have too, and itself when none of them is left; what nobody else has it
// answers itself. A position is not waited for here where another has reached it.
func TestOwnIsBehind(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", even)
	own := querytest.NewHolder(w, "own", all)
	own.Lag(now - 10)
	c.own = own
	c.open()
	lags := *c.View()
	lags.Epoch++
	for s := range shards {
		lags.OwnBehind = append(lags.OwnBehind, even(pipeline.Shard(s)))
	}
	there, here := idIn(0, 0), idIn(1, 0)
	if rows, err := like(t, c.reader, within(t, 5*time.Second), there, here); err != nil || rows.AsOf != now-10 || c.reader.Lags() {
		t.Error(err, rows)
	}
	c.view.Store(&lags)
	if !c.reader.Lags() {
		t.Error("it does not say that it lags")
	}
	if _, err := like(t, c.reader, within(t, 5*time.Second), there); !errors.Is(err, query.ErrFar) {
		t.Errorf("what another has is answered in place: %v", err)
	}
	if rows, err := like(t, c.reader, within(t, 5*time.Second), here); err != nil || rows.AsOf != now-10 {
		t.Error(err, rows)
	}
	var page query.UserPage
	if err := c.reader.Following(within(t, 5*time.Second), there, 0, 10, &page, true); !errors.Is(err, query.ErrFar) {
		t.Errorf("a list that another has is answered in place: %v", err)
	}
	for _, test := range []struct {
		ids  []uint64
		asOf pipeline.Position
	}{{[]uint64{there}, now}, {[]uint64{here}, now - 10}, {[]uint64{there, here}, now - 10}} {
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), test.ids...); err != nil || len(rows.Missing) > 0 || rows.AsOf != test.asOf {
			t.Error(err, rows, test)
		}
	}
	if rows, err := like(t, c.far(now, 5*time.Second), within(t, 5*time.Second), there); err != nil || len(rows.Missing) > 0 || rows.AsOf != now {
		t.Error(err, rows)
	}
	if err := c.reader.WaitVisible(within(t, 5*time.Second), there, now); err != nil {
		t.Errorf("a read is visible where it is asked: %v", err)
	}
	c.stop("a")
	if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), there, here); err != nil || len(rows.Missing) > 0 || rows.AsOf != now-10 {
		t.Error("nobody else is left", err, rows)
	}
}

// The only one that has all of the log is killed: who is behind it has the shards
// too, and will have come as far before the caller's time is over.
func TestBehindIsAskedLast(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	late := querytest.NewHolder(w, "b", all)
	late.Lag(now - 10)
	c.serve("b", late)
	v := *c.View()
	v.Epoch++
	for range shards {
		v.Behind = append(v.Behind, []string{"b"})
	}
	c.view.Store(&v)
	c.open()
	id := idIn(0, 0)
	for range 20 {
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), id); err != nil || len(rows.Missing) > 0 || rows.AsOf != now {
			t.Fatal(err, rows)
		}
	}
	if n := late.Reads(); n > 0 {
		t.Errorf("who is behind was asked %d times beside one who is not", n)
	}
	c.stop("a")
	if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), id); err != nil || len(rows.Missing) > 0 || rows.AsOf != now-10 {
		t.Error(err, rows)
	}
	time.AfterFunc(50*time.Millisecond, func() { late.Lag(now) })
	if rows, err := like(t, c.far(now, 5*time.Second), within(t, 10*time.Second), id); err != nil || len(rows.Missing) > 0 || rows.AsOf != now {
		t.Error(err, rows)
	}
}

// A holder is killed with a question in hand, and is back before anybody misses it:
// what its earlier process was asked, the new one is asked again, at once.
func TestHolderBackAtOnce(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	nc := querytest.Connect(t, c.server)
	sub, err := nc.Subscribe(spread.Subject("a", 0), func(*nats.Msg) {}) // takes it, and never answers
	if err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	c.list("a", all)
	session := func(name string) {
		v := *c.View()
		v.Epoch++
		v.Sessions = map[string]string{"a": name}
		c.view.Store(&v)
	}
	session("one")
	c.open()
	time.AfterFunc(200*time.Millisecond, func() {
		_ = sub.Unsubscribe()
		_ = nc.Flush()
		c.serve("a", querytest.NewHolder(w, "a", all))
		session("two")
	})
	begun := time.Now()
	rows, err := like(t, c.far(0, 0), within(t, 30*time.Second), 1, 2, 3)
	if err != nil || len(rows.Missing) > 0 || time.Since(begun) > 10*time.Second {
		t.Error(err, rows.Missing, time.Since(begun))
	}
}

// A holder has given its shards up, and who has them now is not known for a moment:
// nothing is missing.
func TestHandedOver(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("a", querytest.NewHolder(w, "a", func(pipeline.Shard) bool { return false }))
	c.list("a", all)
	c.serve("b", querytest.NewHolder(w, "b", all))
	c.open()
	time.AfterFunc(60*time.Millisecond, func() { c.list("b", all) })
	rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), 1, 2, 3)
	if err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
	var unread query.Unreads
	c.view.Store(&spread.View{Epoch: c.View().Epoch + 1, Holders: make([][]string, shards)})
	c.list("a", all)
	time.AfterFunc(60*time.Millisecond, func() { c.list("b", all) })
	if err := c.far(0, 0).Unread(within(t, 5*time.Second), []uint64{1, 2, 3}, nil, &unread, true); err != nil || len(unread.Missing) > 0 {
		t.Error(err, unread.Missing)
	}
}

// What nobody can answer, a shard that has stopped, is missing at once, but for the
// first time that it is found out.
func TestNobodyAnswersAtOnce(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.serve("a", querytest.NewHolder(w, "a", func(pipeline.Shard) bool { return false }))
	c.list("a", all)
	c.open()
	var took []time.Duration
	for range 5 {
		begun := time.Now()
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), 1, 2, 3); err != nil || len(rows.Missing) != 3 {
			t.Fatal(err, rows.Missing)
		}
		took = append(took, time.Since(begun))
	}
	if quick := slices.Min(took[1:]); quick > took[0]/4 {
		t.Errorf("%v", took)
	}
}

// A holder takes a question and is killed. Those who ask after that one, and the
// one who asked, have their answers from another long before half of a long
// deadline is over.
func TestHolderKilledAmidQuestions(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("b", all)
	nc := querytest.Connect(t, c.server)
	entered := make(chan struct{}, 100)
	sub, err := nc.Subscribe(spread.Subject("a", 0), func(*nats.Msg) { entered <- struct{}{} }) // and does not answer
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.list("a", all)
	c.open()
	var ids []uint64 // of all shards: each chooses one of the two nodes, and not all choose b
	for id := range uint64(64) {
		ids = append(ids, id+1)
	}
	var callers sync.WaitGroup
	ask := func() {
		callers.Go(func() {
			begun := time.Now()
			rows, err := like(t, c.far(0, 0), within(t, time.Minute), ids...)
			if took := time.Since(begun); err != nil || len(rows.Missing) > 0 || took > 10*time.Second {
				t.Error(err, rows.Missing, took)
			}
		})
	}
	for len(entered) == 0 {
		ask()
		time.Sleep(10 * time.Millisecond)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ask()
	}
	callers.Wait()
}

// A shard that is stopped on one node is another's, and no other's is missing for
// it.
func TestStoppedShards(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	a := c.node("a", all)
	c.node("b", even)
	c.open()
	for s := range pipeline.Shard(4) {
		a.StopShard(s)
	}
	var ids []uint64
	for s := range pipeline.Shard(shards) {
		ids = append(ids, idIn(s, 0))
	}
	rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), ids...)
	slices.Sort(rows.Missing)
	if err != nil || !slices.Equal(rows.Missing, []int{1, 3}) {
		t.Error(err, rows.Missing)
	}
	w.Follows[ids[5]] = map[uint64]pipeline.Position{ids[0]: 0, ids[7]: 0}
	w.Follows[ids[7]] = map[uint64]pipeline.Position{ids[1]: 0, ids[5]: 0}
	w.Posts[ids[5]] = []query.FeedPost{{Post: 1, Author: ids[5], Position: 5}}
	var unread query.Unreads
	if err := c.far(0, 0).Unread(within(t, 5*time.Second), []uint64{ids[5], ids[7], ids[1]}, nil, &unread, true); err != nil || !slices.Equal(unread.Missing, []int{1, 2}) {
		t.Error(err, unread.Missing)
	}
	// Of a feed the rest is read.
	var feed query.FeedPage
	if err := c.far(0, 0).Feed(within(t, 5*time.Second), ids[7], 0, 10, &feed, true); err != nil || !feed.Missing || len(feed.Posts) != 1 {
		t.Error(err, feed)
	}
	if err := c.far(0, 0).Feed(within(t, 5*time.Second), ids[1], 0, 10, &feed, true); !errors.Is(err, query.ErrStopped) {
		t.Error(err)
	}
}

// "Nothing that a stranger publishes on subjects between nodes changes
// state or stops a node."
func TestAnybodyMayPublish(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	c.open()
	nc := querytest.Connect(t, c.server)
	stored, err := nc.SubscribeSync("events.>")
	if err != nil {
		t.Fatal(err)
	}
	asks, err := nc.SubscribeSync("tidemark.>")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	names := wire.AppendNames(nil, wire.Names{Counter: "post", Columns: []string{"like"}})
	rows := wire.RowsAsk{Names: names, IDs: []uint64{1}}
	message := func(a wire.Ask) []byte {
		return wire.End(wire.AppendAsk(wire.BeginBatch(nil, wire.Fingerprint(w.Schema, shards), wire.Oldest), &a))
	}
	good := message(wire.Ask{ID: 1, Kind: wire.Rows, Within: time.Second, Body: rows.Append(nil)})
	for range 2000 {
		junk := make([]byte, r.IntN(200))
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		_ = nc.PublishRequest(spread.Subject("a", 0), nc.NewInbox(), junk)
		_ = nc.PublishRequest(spread.Subject("a", 0), nc.NewInbox(), message(wire.Ask{ID: 1, Kind: wire.Kind(r.IntN(12)), Within: time.Second, Body: junk}))
		_ = nc.PublishRequest(spread.Subject("a", 0), nc.NewInbox(), message(wire.Ask{ID: 1, Kind: wire.Rows, Min: pipeline.Position(r.Uint64()), Within: time.Hour, Wait: time.Hour, Body: rows.Append(nil)}))
	}
	for _, reply := range []string{"events.like", "tidemark.get", "tidemark.hold.a", "$JS.API.STREAM.DELETE.EVENTS"} {
		_ = nc.PublishRequest(spread.Subject("a", 0), reply, good)
	}
	_ = nc.Publish(spread.Subject("a", 0), good)
	if rows, err := like(t, c.far(0, 0), within(t, 20*time.Second), 1, 2, 3); err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
	_ = nc.Flush()
	if n, _, _ := stored.Pending(); n > 0 {
		t.Errorf("%d answers went to the log", n)
	}
	for {
		m, err := asks.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if m.Subject != spread.Subject("a", 0) {
			t.Errorf("something was published on %s", m.Subject)
		}
	}
}

// More than may be in work is refused, and what is there is answered.
func TestBusy(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	h := querytest.NewHolder(w, "a", all)
	h.Lag(now - 100)
	c.serve("a", h)
	nc := querytest.Connect(t, c.server)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	_ = sub.SetPendingLimits(-1, -1)
	const batches, parts = 20, 1000
	for range batches {
		b := wire.BeginBatch(nil, wire.Fingerprint(w.Schema, shards), wire.Oldest)
		for i := range uint64(parts) {
			b = wire.AppendAsk(b, &wire.Ask{ID: i + 1, Kind: wire.Applied, Min: now, Wait: 20 * time.Second, Within: 20 * time.Second})
		}
		if err := nc.PublishRequest(spread.Subject("a", 0), inbox, wire.End(b)); err != nil {
			t.Fatal(err)
		}
	}
	busy, answered := 0, 0
	for n := 0; busy*parts+answered < batches*parts; n++ {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatalf("%d batches are refused, %d parts answered: %v", busy, answered, err)
		}
		_, replies, err := wire.DecodeReplies(m.Data, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range replies {
			switch {
			case r.ID == 0 && r.Status == wire.Busy:
				if busy++; busy == 4 {
					h.Lag(now)
				}
			case r.Status == wire.Answered:
				answered++
			default:
				t.Fatalf("%+v", r)
			}
		}
	}
	if busy != 4 { // 16 × 1,000 fit into 16,384
		t.Errorf("%d batches are refused", busy)
	}
}

// What is unknown is refused with words: another version, another schema.
func TestRefused(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	nc := querytest.Connect(t, c.server)
	ask := func(message []byte) wire.Reply {
		t.Helper()
		m, err := nc.Request(spread.Subject("a", 0), message, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		head, replies, err := wire.DecodeReplies(m.Data, nil)
		if err != nil || len(replies) != 1 || !head.Taken {
			t.Fatal(replies, err)
		}
		return replies[0]
	}
	is := func(r wire.Reply, words string) {
		t.Helper()
		if r.Status != wire.Refused || !strings.Contains(string(r.Body), words) {
			t.Errorf("%+v %s", r, r.Body)
		}
	}
	print := wire.Fingerprint(w.Schema, shards)
	newer := wire.AppendAsk(wire.BeginBatch(nil, print, wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Applied})
	newer[3], newer[4] = 6, 6
	is(ask(wire.End(newer)), "understands versions 1 to 5, and the message is of version 6 and needs 6")
	is(ask(wire.End(wire.AppendAsk(wire.BeginBatch(nil, print+1, wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Applied}))), "another schema or number of shards")
	is(ask(wire.End(wire.AppendAsk(wire.BeginBatch(nil, print, wire.Oldest), &wire.Ask{ID: 1, Kind: 99}))), "kind 99 is not known")
	rows := wire.RowsAsk{Names: wire.AppendNames(nil, wire.Names{Counter: "pots", Columns: []string{"like"}}), IDs: []uint64{1}}
	is(ask(wire.End(wire.AppendAsk(wire.BeginBatch(nil, print, wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Rows, Body: rows.Append(nil)}))), `counter "pots" is unknown`)
}

// docs/contract.md: "with `wait`, also visible to every later query."
func TestWaitVisible(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	user := idIn(0, 0)
	a, b, others := c.node("a", even), c.node("b", all), c.node("c", odd)
	own := querytest.NewHolder(w, "own", even)
	c.own = own
	c.list("gone", even) // listed, and dead
	c.open()
	others.Lag(0) // has no say
	for name, h := range map[string]*querytest.Holder{"a": a, "b": b, "own": own} {
		h.Lag(now - 1)
		if err := c.reader.WaitVisible(within(t, 100*time.Millisecond), user, now); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, query.ErrBehind) {
			t.Errorf("%s lags: %v", name, err)
		}
		time.AfterFunc(30*time.Millisecond, func() { h.Lag(now) })
		if err := c.reader.WaitVisible(within(t, 5*time.Second), user, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node that stops answers what it has, and is then gone.
func TestStop(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all).Lag(now - 1)
	c.open()
	failed := make(chan error)
	go func() {
		_, err := like(t, c.far(now, 10*time.Second), within(t, 10*time.Second), 1)
		failed <- err
	}()
	time.Sleep(50 * time.Millisecond)
	c.stop("a")
	select {
	case err := <-failed:
		if !errors.Is(err, query.ErrBehind) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it is waited for a position on a node that has stopped")
	}
	c.view.Store(&spread.View{Epoch: 9, Holders: make([][]string, shards)})
	if _, err := like(t, c.far(0, 0), within(t, time.Second), 1); !errors.Is(err, query.ErrNobody) {
		t.Error(err)
	}
}

// A small max_payload is refused in words.
func TestMaxPayloadTooSmall(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 3)
	c := newCluster(t, w, &server.Options{MaxPayload: 16 << 10})
	nc := querytest.Connect(t, c.server, nats.MaxReconnects(0))
	_, err := spread.New(nc, spread.Options{Schema: w.Schema, Directory: c})
	_, err2 := spread.Serve(nc, querytest.NewHolder(w, "a", all), spread.ServerOptions{Node: "a", Schema: w.Schema, Shards: shards})
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), "max_payload is 16384") {
			t.Error(err)
		}
	}
}
