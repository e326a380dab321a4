package spread_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
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

// version1 stands before a node, and makes of it one of version 1, which does not
// know shares, and of those who ask it, askers of version 1; as long as now says so,
// nil: always.
func version1(now func() bool) *relay {
	is := func() bool { return now == nil || now() }
	return &relay{
		question: func(m []byte) []byte {
			if !is() {
				return m
			}
			b, asks, err := wire.DecodeBatch(m, nil)
			if err != nil {
				return m
			}
			m = wire.BeginBatch(nil, b.Schema, wire.Oldest)
			m[4] = 1
			for _, a := range asks {
				if a.Kind.Since() > 1 {
					a.Kind = 99 // neither node knows it
				}
				m = wire.AppendAsk(m, &a)
			}
			return wire.End(m)
		},
		answer: func(m []byte) [][]byte {
			if is() {
				m[4] = 1
				m = wire.End(m[:len(m)-4])
			}
			return [][]byte{m}
		},
	}
}

// anybody are users with ids of all lengths, who follow nobody, one, or most of
// each other, and have read their feeds never, before they followed some, or since.
func anybody(t testing.TB, r *rand.Rand) (w *querytest.World, users []uint64) {
	w = querytest.NewWorld(querytest.Schema(t), shards, now)
	position := func() pipeline.Position { return 1 + pipeline.Position(r.Uint64N(uint64(now))) }
	authors := []uint64{1, 2, 1 << 32, 1 << 63, 1<<64 - 2, 1<<64 - 1}
	for range 300 {
		authors = append(authors, max(r.Uint64()>>r.IntN(64), 1))
	}
	for _, author := range authors {
		for range r.IntN(4) {
			w.Posts[author] = append(w.Posts[author], query.FeedPost{Post: r.Uint64(), Author: author, Position: position()})
		}
	}
	for i := range 60 {
		user := 1<<40 + uint64(i)
		w.Follows[user] = map[uint64]pipeline.Position{}
		for range []int{0, 1, 2, 20, 250}[r.IntN(5)] {
			since := position()
			if r.IntN(20) == 0 {
				since = []pipeline.Position{1, now, now - 1}[r.IntN(3)]
			}
			w.Follows[user][authors[r.IntN(len(authors))]] = since
		}
		switch r.IntN(4) {
		case 0:
			w.Marks[user] = now
		case 1, 2:
			w.Marks[user] = position()
		}
		users = append(users, user)
	}
	return w, append(users, 7) // who is nobody
}

// unreadsAre: users' numbers are what one says who holds all, and just those are
// missing of whom something is in shards that nobody has.
func (c *cluster) unreadsAre(users []uint64, gone func(pipeline.Shard) bool) error {
	var got, want query.Unreads
	ctx := within(c.t, 20*time.Second)
	if err := c.world.Reader().Unread(ctx, users, []string{}, &want, true); err != nil {
		return err
	}
	if err := c.far(0, 0).Unread(ctx, users, []string{}, &got, true); err != nil {
		return err
	}
	for i, user := range users {
		missing := gone(pipeline.ShardOf(user, shards))
		for followee := range c.world.Follows[user] {
			missing = missing || gone(pipeline.ShardOf(followee, shards))
		}
		if slices.Contains(got.Missing, i) != missing {
			return fmt.Errorf("user %d, who follows %d: missing is %v", user, len(c.world.Follows[user]), !missing)
		}
	}
	return sameUnreads(&got, &want)
}

func none(pipeline.Shard) bool { return false }

// Users with any ids and marks have what they have at one who holds all, over
// nodes of which each has some of the followees; also alone, and when one is gone.
func TestUnreadOfAnybody(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 77))
		w, users := anybody(t, r)
		c := newCluster(t, w, &server.Options{MaxPayload: int32([]int{32 << 10, 1 << 20}[seed%2])})
		for n := range pipeline.Shard(4) {
			holds := func(s pipeline.Shard) bool { return s%4 == n }
			if name := fmt.Sprint("n", n); n == 1 && seed%3 == 0 {
				c.serve(name+"-real", querytest.NewHolder(w, name, holds))
				c.meddle(name, name+"-real", version1(nil))
				c.list(name, holds)
			} else {
				c.node(name, holds)
			}
		}
		if seed%3 == 1 { // this process has some that nobody else has
			c.own = querytest.NewHolder(w, "own", func(s pipeline.Shard) bool { return s%4 == 2 })
			c.stop("n2")
		}
		c.open()
		for range 2 { // asked first, nodes have said nothing yet
			if err := c.unreadsAre(users, none); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, user := range users[:10] {
				if err := c.unreadsAre([]uint64{user}, none); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		c.stop("n3")
		if err := c.unreadsAre(users, func(s pipeline.Shard) bool { return s%4 == 3 }); err != nil {
			t.Fatalf("seed %d, without n3: %v", seed, err)
		}
	}
}

// "A node that is one version older or newer is understood, or is
// refused with words": nodes of both versions answer together, and a node whose earlier
// version is run again.
func TestNodesOfTwoVersions(t *testing.T) {
	w, users := anybody(t, rand.New(rand.NewPCG(4, 4)))
	c := newCluster(t, w, &server.Options{})
	c.node("a", even)
	c.serve("b-real", querytest.NewHolder(w, "b", odd))
	var old atomic.Bool
	old.Store(true)
	var asked [wire.Kinds]atomic.Int64
	b := version1(old.Load)
	before := b.question
	b.question = func(m []byte) []byte {
		if _, asks, err := wire.DecodeBatch(m, nil); err == nil {
			for _, a := range asks {
				asked[a.Kind].Add(1)
			}
		}
		return before(m)
	}
	c.meddle("b", "b-real", b)
	c.list("b", odd)
	c.open()
	poll := func(what string) (plain, shares int64) {
		t.Helper()
		plain, shares = asked[wire.CountPosts].Load(), asked[wire.CountShares].Load()
		for range 3 {
			if err := c.unreadsAre(users, none); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		return asked[wire.CountPosts].Load() - plain, asked[wire.CountShares].Load() - shares
	}
	if plain, shares := poll("b is of version 1"); plain == 0 || shares > 0 {
		t.Errorf("a node of version 1 was asked %d times in its words and %d times in others", plain, shares)
	}
	old.Store(false)
	if plain, shares := poll("b is of version 2"); plain > 0 || shares == 0 {
		t.Errorf("a node of version 2 was asked %d times in shares and %d times without", shares, plain)
	}
	// Now it is known as one of version 2. Who asks for one user whom the other node
	// holds hears of it when the shares are refused.
	old.Store(true)
	for _, user := range users {
		if pipeline.ShardOf(user, shards)%2 == 0 {
			if err := c.unreadsAre([]uint64{user}, none); err != nil {
				t.Error(err)
			}
		}
	}
	if asked[wire.CountShares].Load() == 0 || c.figure("tidemark_nodes_parts_total", "result=refused") == 0 {
		t.Error("nothing was refused: this test shows nothing")
	}
	refused := c.figure("tidemark_nodes_parts_total", "result=refused")
	if plain, shares := poll("b is of version 1 again"); plain == 0 || shares > 0 || c.figure("tidemark_nodes_parts_total", "result=refused") > refused {
		t.Errorf("a node that is of version 1 again was asked %d times in its words and %d times in others", plain, shares)
	}
}

// nonsense answers for users that what they follow in shard 1 is bytes that mean
// nothing.
func (c *cluster) nonsense(name string) {
	c.t.Helper()
	nc := querytest.Connect(c.t, c.server)
	_, err := nc.Subscribe(spread.Subject(name, 0), func(m *nats.Msg) {
		_, asks, err := wire.DecodeBatch(m.Data, nil)
		replies := wire.BeginReplies(nil, wire.Oldest)
		for i := range asks {
			var ask wire.ProfilesAsk
			if err = errors.Join(err, ask.Decode(asks[i].Body, wire.Version)); err != nil {
				break
			}
			names, _ := wire.ParseNames(ask.Names)
			r, at := wire.BeginReply(replies, &wire.Reply{ID: asks[i].ID})
			p := &wire.Pieces{Buf: r, Limit: 1 << 20}
			p.User(0, &query.UserUnread{Feed: 3}, make([]int64, len(names.Columns)), nil, nil)
			p.Buf = append(p.Buf, 16, 0, 7, 1, 5, 1, 3, 2, 99, 99) // shard 1, of 3 bytes: 2 ids in form 99
			p.End(wire.Tail{AsOf: now})
			wire.EndReply(p.Buf, at, true)
			replies = p.Buf
		}
		if err != nil {
			c.t.Error(err)
		}
		wire.SetTaken(replies)
		_ = m.Respond(wire.End(replies))
	})
	if err != nil || nc.Flush() != nil {
		c.t.Fatal(err)
	}
}

// What a user's node says that nobody understands makes the user missing, and counts
// nothing.
func TestSharesOfNonsense(t *testing.T) {
	for _, former := range []bool{false, true} {
		w, users := anybody(t, rand.New(rand.NewPCG(4, 4)))
		c := newCluster(t, w, &server.Options{})
		c.node("a", even)
		c.serve("b-real", querytest.NewHolder(w, "b", odd))
		b := &relay{}
		if former {
			b = version1(nil)
		}
		c.meddle("b", "b-real", b)
		c.list("b", odd)
		c.open()
		if err := c.unreadsAre(users, none); err != nil {
			t.Fatal(err)
		}
		c.stop("a")
		c.nonsense("a")
		user := idIn(0, 0)
		var got query.Unreads
		if err := c.far(0, 0).Unread(within(t, 10*time.Second), []uint64{user}, []string{}, &got, true); err != nil || !slices.Equal(got.Missing, []int{0}) {
			t.Errorf("former %v: %+v %v", former, got, err)
		}
	}
}

// An asker of version 1 is answered in the bytes that it knows, one of version 2 in
// shares.
func TestAnswersToBothVersions(t *testing.T) {
	w := querytest.NewWorld(querytest.Schema(t), shards, now)
	user, followee := idIn(0, 0), idIn(1, 0)
	w.Follows[user] = map[uint64]pipeline.Position{followee: 9}
	c := newCluster(t, w, &server.Options{})
	c.node("a", even)
	nc := querytest.Connect(t, c.server)
	for version := byte(1); version <= wire.Version; version++ {
		ask := wire.ProfilesAsk{Names: wire.AppendNames(nil, wire.Names{}), Users: []uint64{user}}
		m := wire.AppendAsk(wire.BeginBatch(nil, wire.Fingerprint(w.Schema, shards), wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Profiles, Within: 5 * time.Second, Body: ask.Append(nil)})
		m[4] = version
		reply, err := nc.Request(spread.Subject("a", 0), wire.End(m), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		_, replies, err := wire.DecodeReplies(reply.Data, nil)
		if err != nil || len(replies) != 1 {
			t.Fatal(replies, err)
		}
		p := &wire.Pieces{Limit: 1 << 20}
		p.User(0, &query.UserUnread{}, nil, nil, nil)
		if rest := (&query.CountAsk{Followees: []query.Followee{{User: followee, Since: 9}}}); version == 1 {
			p.Followees(0, rest)
		} else {
			p.Rest(0, rest, shards, new(wire.Sharing), version)
		}
		p.End(wire.Tail{AsOf: now})
		if !bytes.Equal(replies[0].Body, p.Buf) {
			t.Errorf("version %d is answered % x, not % x", version, replies[0].Body, p.Buf)
		}
	}
}
