package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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

// What is cold comes later, and holds up nobody.
func TestHotBeforeCold(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	cold, hot := idIn(3, 0), idIn(4, 0)
	h := querytest.NewHolder(w, "a", all)
	h.Cool(cold)
	reading, release := make(chan struct{}, 1), make(chan struct{})
	h.Disk = func(context.Context) { reading <- struct{}{}; <-release }
	c.serve("a", h)
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
	<-reading
	for range 5 {
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), hot); err != nil || len(rows.Missing) > 0 {
			t.Fatal(err, rows.Missing)
		}
	}
	close(release)
	if rows := <-answered; len(rows.Missing) > 0 || rows.Cost.Cold != 1 {
		t.Errorf("%+v", rows)
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
	taken := make(chan struct{}, 10)
	sub, err := nc.Subscribe(spread.Subject("a", 0), func(*nats.Msg) { taken <- struct{}{} }) // and never answers
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
	answered := make(chan error)
	go func() {
		rows, err := like(t, c.far(0, 0), within(t, time.Hour), 1, 2, 3)
		if err == nil && len(rows.Missing) > 0 {
			err = fmt.Errorf("missing: %v", rows.Missing)
		}
		answered <- err
	}()
	<-taken
	if err := errors.Join(sub.Unsubscribe(), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	c.serve("a", querytest.NewHolder(w, "a", all))
	session("two")
	if err := <-answered; err != nil {
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

// docs/contract.md: "At most 10,000 ids (or users) a request", and a server that takes
// less at once. "A request between nodes that needs more than `max_payload` is split, and
// does not fail."
func TestMuchIsSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := community(t, r, 3000)
	const followees = 60_000
	w.Follows[7] = map[uint64]pipeline.Position{}
	delete(w.Marks, 7)
	for i := range uint64(followees) {
		id := 10_000 + i*977
		w.Follows[7][id] = pipeline.Position(i % 3)
		if i%3000 == 0 {
			w.Posts[id] = []query.FeedPost{{Post: i + 1, Author: id, Position: 1000 + pipeline.Position(i)}}
		}
	}
	c := newCluster(t, w, &server.Options{MaxPayload: 32 << 10})
	c.node("a", even)
	c.node("b", odd)
	c.open()
	var ids []uint64
	for range 10_000 {
		ids = append(ids, 1+r.Uint64N(3000))
	}
	ctx, far := within(t, time.Minute), c.far(0, 0)
	got, err := like(t, far, ctx, ids...)
	if err != nil || len(got.Missing) > 0 || got.AsOf != now {
		t.Fatal(err, got.Missing, got.AsOf)
	}
	want, _ := like(t, w.Reader(), ctx, ids...)
	if err := sameRows(ids, &got, &want, len(likeColumns)); err != nil {
		t.Error(err)
	}
	users := append(ids[:2000:2000], 7)
	var unread, wantUnread query.Unreads
	// What does not fit is known before all of it is gathered.
	var channels int
	notWanted := errors.New("not wanted")
	unread.Fit = func(notices, dots []string) error { channels = len(notices) + len(dots); return notWanted }
	if err := far.Unread(ctx, users, nil, &unread, true); !errors.Is(err, notWanted) || channels == 0 || unread.Users != nil {
		t.Fatal(err, channels)
	}
	unread.Fit = nil
	if err := errors.Join(far.Unread(ctx, users, nil, &unread, true), w.Reader().Unread(ctx, users, nil, &wantUnread, true)); err != nil || len(unread.Missing) > 0 {
		t.Fatal(err, len(unread.Missing))
	}
	if err := sameUnreads(&unread, &wantUnread); err != nil || unread.Users[2000].Feed != 20 {
		t.Error(err, unread.Users[2000].Feed)
	}
	if n := c.figure("tidemark_nodes_retries_total"); n > 0 {
		t.Errorf("%v parts were asked twice", n)
	}
	var feed query.FeedPage
	if err := far.Feed(ctx, 7, 0, 15, &feed, true); err != nil || feed.Missing || len(feed.Posts) != 15 || !feed.More || feed.Posts[0].Post != 57_001 {
		t.Errorf("%v: %+v", err, feed)
	}
}

// Many callers at once, each with its own answers. What is asked while a node works on a
// batch waits for the next.
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
	if batches >= parts {
		t.Errorf("%v batches for %v parts: nothing gathers", batches, parts)
	}
}

// docs/architecture.md: "`min_position` goes with every part."
func TestMinPosition(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(1, 1)), 300)
	c := newCluster(t, w, &server.Options{})
	lagging := c.node("a", all)
	lagging.Lag(now - 10)
	c.open()
	id := idIn(0, 0)
	// Nobody has it in time: that is said, and nothing is missing.
	if _, err := like(t, c.far(now, 100*time.Millisecond), within(t, time.Minute), id); !errors.Is(err, query.ErrBehind) {
		t.Error(err)
	}
	// Far ahead it is not waited for.
	if _, err := like(t, c.far(now+1<<40, time.Hour), within(t, time.Hour), id); !errors.Is(err, query.ErrBehind) {
		t.Error(err)
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
	time.AfterFunc(10*time.Millisecond, func() { c.list("b", all) })
	rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), 1, 2, 3)
	if err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
}

// What nobody can answer, a shard that has stopped, is missing at once, but for the
// first time that it is found out.
func TestNobodyAnswersAtOnce(t *testing.T) {
	t.Parallel()
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	c.serve("a", querytest.NewHolder(w, "a", func(pipeline.Shard) bool { return false }))
	c.list("a", all)
	c.open()
	asked := func() float64 {
		before := c.figure("tidemark_nodes_requests_total")
		if rows, err := like(t, c.far(0, 0), within(t, 5*time.Second), 1, 2, 3); err != nil || len(rows.Missing) != 3 {
			t.Fatal(err, rows.Missing)
		}
		return c.figure("tidemark_nodes_requests_total") - before
	}
	if first, second := asked(), asked(); second > 2 || first <= second {
		t.Errorf("it was asked %v times at first, then %v times", first, second)
	}
}

// "Nothing that a stranger publishes on subjects between nodes changes state or stops a
// node." Answers go to inboxes only.
func TestAnybodyMayPublish(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	c.open()
	nc := querytest.Connect(t, c.server)
	everything, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	rows := wire.RowsAsk{Names: wire.AppendNames(nil, wire.Names{Counter: "post", Columns: []string{"like"}}), IDs: []uint64{1}}
	message := func(a wire.Ask) []byte {
		return wire.End(wire.AppendAsk(wire.BeginBatch(nil, wire.Fingerprint(w.Schema, shards), wire.Oldest), &a))
	}
	subject, inbox := spread.Subject("a", 0), nc.NewInbox()
	for range 500 {
		junk := make([]byte, r.IntN(200))
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		_ = nc.PublishRequest(subject, inbox, junk)
		_ = nc.PublishRequest(subject, inbox, message(wire.Ask{ID: 1, Kind: wire.Kind(r.IntN(12)), Within: time.Second, Body: junk}))
		_ = nc.PublishRequest(subject, inbox, message(wire.Ask{ID: 1, Kind: wire.Rows, Min: pipeline.Position(r.Uint64()), Within: time.Hour, Wait: time.Hour, Body: rows.Append(nil)}))
	}
	good := message(wire.Ask{ID: 1, Kind: wire.Rows, Within: time.Second, Body: rows.Append(nil)})
	for _, reply := range []string{"events.like", "tidemark.get", "tidemark.hold.a", "$JS.API.STREAM.DELETE.EVENTS", ""} {
		_ = nc.PublishRequest(subject, reply, good)
	}
	if rows, err := like(t, c.far(0, 0), within(t, 20*time.Second), 1, 2, 3); err != nil || len(rows.Missing) > 0 {
		t.Error(err, rows.Missing)
	}
	if _, err := spread.AskCounted(within(t, 10*time.Second), nc, "a", 0); err != nil { // it has seen those before
		t.Error(err)
	}
	for n, _, _ := everything.Pending(); n > 0; n-- {
		m, err := everything.NextMsg(time.Minute)
		if err != nil || m.Subject != subject && m.Subject != spread.SchemaSubject("a", 0) && !strings.HasPrefix(m.Subject, "_INBOX.") {
			t.Errorf("%+v %v", m, err)
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

// asks asks the node a one question, and gives its only reply.
func (c *cluster) asks(nc *nats.Conn, message []byte) wire.Reply {
	c.t.Helper()
	m, err := nc.Request(spread.Subject("a", 0), wire.End(message), time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	head, replies, err := wire.DecodeReplies(m.Data, nil)
	if err != nil || len(replies) != 1 || !head.Taken {
		c.t.Fatal(replies, err)
	}
	return replies[0]
}

// What is unknown is refused with words: another version, another schema; and a column
// that has no set, or one that is not named, is no question about a set, and a list is of
// one column.
func TestRefused(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	c.node("a", all)
	nc := querytest.Connect(t, c.server)
	of := func(print uint64, kind wire.Kind, body []byte) []byte {
		return wire.AppendAsk(wire.BeginBatch(nil, print, wire.Oldest), &wire.Ask{ID: 1, Kind: kind, Within: time.Minute, Body: body})
	}
	names := func(columns ...string) []byte {
		return wire.AppendNames(nil, wire.Names{Counter: "post", Columns: columns})
	}
	has := func(names []byte, column pipeline.Column) []byte {
		sets := []pipeline.MemberOf{{Column: column, Member: pipeline.Member{A: 7}}}
		return (&wire.RowsAsk{Names: names, IDs: []uint64{1}, Sets: sets}).Append(nil)
	}
	list := func(names []byte) []byte { return (&wire.MembersAsk{Names: names, ID: 1, Limit: 10}).Append(nil) }
	print := wire.Fingerprint(w.Schema, shards)
	newer := of(print, wire.Applied, nil)
	newer[3], newer[4] = 6, 6
	pots := wire.RowsAsk{Names: wire.AppendNames(nil, wire.Names{Counter: "pots", Columns: []string{"like"}}), IDs: []uint64{1}}
	for _, test := range []struct {
		message []byte
		words   string
	}{
		{newer, "understands versions 1 to 1, and the message is of version 6 and needs 6"},
		{of(print+1, wire.Applied, nil), "another schema or number of shards"},
		{of(print, 99, nil), "kind 99 is not known"},
		{of(print, wire.Rows, pots.Append(nil)), `counter "pots" is unknown`},
		{of(print, wire.RowsHas, has(names("like", "comment"), 1)), "has no set"},
		{of(print, wire.RowsHas, has(names("smile"), 0)), "has no column"},
		{of(print, wire.RowsHas, has(names(), 0)), "column 0 of 0"},
		{of(print, wire.Members, list(names("comment"))), "has no set"},
		{of(print, wire.Members, list(names("like", "comment"))), "2 columns"},
	} {
		if r := c.asks(nc, test.message); r.Status != wire.Refused || !strings.Contains(string(r.Body), test.words) {
			t.Errorf("%+v %s, want %s", r, r.Body, test.words)
		}
	}
}

// A node that stops answers what it has, and is then gone.
func TestStop(t *testing.T) {
	w := community(t, rand.New(rand.NewPCG(1, 1)), 30)
	c := newCluster(t, w, &server.Options{})
	a := c.node("a", all)
	a.Lag(now - 1)
	c.open()
	failed := make(chan error)
	go func() {
		_, err := like(t, c.far(now, time.Hour), within(t, time.Hour), 1)
		failed <- err
	}()
	e2e.Until(t, "it waits", func() bool { return a.Waiting() == 1 })
	c.stop("a")
	if err := <-failed; !errors.Is(err, query.ErrBehind) {
		t.Error(err)
	}
	c.view.Store(&spread.View{Epoch: 9, Holders: make([][]string, shards)})
	if _, err := like(t, c.far(0, 0), within(t, time.Second), 1); !errors.Is(err, query.ErrNobody) {
		t.Error(err)
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
