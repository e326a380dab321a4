package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// trouble is what a node of the twin's cluster has.
type trouble int

const (
	healthy  trouble = iota
	twice            // says everything twice, in another order
	damages          // one answer in three comes with a bit turned over
	released         // is listed for shards that it has let go of
	lags             // far behind the position that is asked
	gone             // nobody is on its subject
	mute             // takes what is asked and says nothing
	troubles
)

// Answers of several nodes are those of one, whatever becomes of some of them; and
// what is missing is what no node that answers holds.
func TestTwin(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 16
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			twin(t, seed)
		})
	}
}

func twin(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 21))
	const users = 300
	w := community(t, r, users)
	c := newCluster(t, w, &server.Options{MaxPayload: int32([]int{32 << 10, 1 << 20}[r.IntN(2)])})
	// Who answers for a shard, apart from troubles.
	answers := make([]bool, shards)
	someMute, someLags, slow := false, false, false
	for n := range 1 + r.IntN(4) {
		name, has := fmt.Sprintf("n%d", n), trouble(0)
		if r.IntN(2) == 0 {
			has = trouble(r.IntN(int(troubles)))
		}
		held := make([]bool, shards)
		for s := range held {
			held[s] = r.IntN(3) > 0
		}
		let := map[pipeline.Shard]bool{}
		if has == released {
			for s := range held {
				let[pipeline.Shard(s)] = r.IntN(2) == 0
			}
		}
		holds := func(s pipeline.Shard) bool { return held[s] && !let[s] }
		h := querytest.NewHolder(w, name, holds)
		switch has {
		case twice, damages, mute:
			c.serve(name+"-real", h)
			c.meddle(name, name+"-real", meddling(has, rand.New(rand.NewPCG(seed, uint64(n)))))
		case gone:
		default:
			c.serve(name, h)
		}
		if has == lags {
			h.Lag(now - 3000)
		}
		for id := range uint64(users) {
			if r.IntN(10) == 0 {
				h.Cool(id + 1)
			}
		}
		c.list(name, func(s pipeline.Shard) bool { return held[s] })
		someMute = someMute || has == mute
		someLags = someLags || has == lags
		slow = slow || has == mute || has == lags // who asks them waits
		for s := range answers {
			if has != lags && has != gone && has != mute && holds(pipeline.Shard(s)) {
				answers[s] = true
			}
		}
		t.Logf("%s: trouble %d", name, has)
	}
	if r.IntN(3) == 0 {
		held := make([]bool, shards)
		for s := range held {
			held[s] = r.IntN(3) == 0
			answers[s] = answers[s] || held[s]
		}
		c.own = querytest.NewHolder(w, "own", func(s pipeline.Shard) bool { return held[s] })
	}
	c.open()
	whole := w.Reader()
	answered := func(id uint64) bool { return answers[pipeline.ShardOf(id, shards)] }
	deadline, rounds := 5*time.Second, 12
	if slow {
		deadline, rounds = 700*time.Millisecond, 1
	}
	for range rounds {
		q := &asking{t, r, c, whole, answered, someMute, someLags, users, deadline}
		q.rows()
		q.unread()
		q.feed()
		q.users()
		q.sets()
		q.inbox()
	}
}

func meddling(has trouble, r *rand.Rand) *relay {
	switch has {
	case twice:
		var before []byte
		return &relay{answer: func(m []byte) [][]byte {
			out := [][]byte{m, m}
			if before != nil {
				out = append(out, before) // late: of a batch that is done
			}
			before = m
			return out
		}}
	case damages:
		turn := func(m []byte) []byte {
			if r.IntN(3) == 0 {
				m[r.IntN(len(m))] ^= 1 << r.IntN(8)
			}
			return m
		}
		return &relay{answer: func(m []byte) [][]byte { return [][]byte{turn(m)} }}
	}
	return &relay{question: func([]byte) []byte { return nil }}
}

type asking struct {
	t        *testing.T
	r        *rand.Rand
	c        *cluster
	whole    query.Reader
	answered func(uint64) bool
	mute     bool
	lagging  bool
	most     uint64
	deadline time.Duration
}

func (q *asking) ids(n int) (ids []uint64) {
	for range n {
		ids = append(ids, 1+q.r.Uint64N(q.most))
	}
	return ids
}

func (q *asking) ask(what string, ask func(ctx context.Context, far query.Reader) error, missing func() error) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), q.deadline)
	defer cancel()
	err := ask(ctx, q.c.far(now, q.deadline))
	switch {
	case errors.Is(err, query.ErrBehind): // where only one that lags has a shard, or one besides whose answer came damaged
		lags := q.lagging && q.c.figure("tidemark_nodes_damaged_total") > 0
		for _, id := range q.ids(1000) {
			lags = lags || !q.answered(id)
		}
		if !lags && !q.mute {
			q.t.Errorf("%s: %v", what, err)
		}
	case err != nil && !errors.Is(err, query.ErrStopped) && !errors.Is(err, query.ErrNobody):
		q.t.Errorf("%s: %v", what, err)
	case err == nil:
		if err := missing(); err != nil {
			q.t.Errorf("%s: %v", what, err)
		}
	}
}

// Where a node damages a third of what it says twice over, that is missing that
// nobody else has; and what a node that is well says too late, the machine being
// busy with others, is missing too.
func (q *asking) justified(id uint64) bool {
	nodes := q.c.View().Holders[pipeline.ShardOf(id, shards)]
	return !q.answered(id) || q.mute || q.c.figure("tidemark_nodes_parts_total", "result=late") > 0 || len(nodes) < 3 && q.c.figure("tidemark_nodes_damaged_total") > 0
}

func (q *asking) rows() {
	ids := q.ids(q.r.IntN(400))
	var got, want query.Rows
	if err := q.whole.Rows(context.Background(), 0, likeColumns, ids, &want, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("rows", func(ctx context.Context, far query.Reader) error {
		return far.Rows(ctx, 0, likeColumns, ids, &got, true)
	}, func() error {
		for _, i := range got.Missing {
			if !q.justified(ids[i]) {
				return fmt.Errorf("%d is missing", ids[i])
			}
		}
		for i, id := range ids {
			if !q.answered(id) && !slices.Contains(got.Missing, i) {
				return fmt.Errorf("%d is answered, and nobody holds it", id)
			}
		}
		return sameRows(ids, &got, &want, len(likeColumns))
	})
}

func (q *asking) unread() {
	users := q.ids(q.r.IntN(40))
	channels := [][]string{nil, {}, {"zoo", "red", "games", "none"}}[q.r.IntN(3)]
	var got, want query.Unreads
	if err := q.whole.Unread(context.Background(), users, channels, &want, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("unread", func(ctx context.Context, far query.Reader) error { return far.Unread(ctx, users, channels, &got, true) }, func() error {
		for i, user := range users {
			whole, may := q.answered(user), q.justified(user)
			for followee := range q.c.world.Follows[user] {
				whole = whole && q.answered(followee)
				may = may || q.justified(followee)
			}
			is := slices.Contains(got.Missing, i)
			if is && !may || !is && !whole {
				return fmt.Errorf("user %d: missing is %v, whole %v", user, is, whole)
			}
		}
		if len(got.Missing) == len(users) { // then nobody may have said which channels there are
			return nil
		}
		return sameUnreads(&got, &want)
	})
}

func (q *asking) feed() {
	user, limit := 1+q.r.Uint64N(q.most), 1+q.r.IntN(30)
	before := pipeline.Position(0)
	if q.r.IntN(2) == 0 {
		before = pipeline.Position(q.r.Uint64N(uint64(now)))
	}
	var got, want query.FeedPage
	if err := q.whole.Feed(context.Background(), user, before, limit, &want, true); err != nil {
		q.t.Fatal(err)
	}
	q.ask("feed", func(ctx context.Context, far query.Reader) error {
		return far.Feed(ctx, user, before, limit, &got, true)
	}, func() error {
		whole, may := true, false
		for followee := range q.c.world.Follows[user] {
			whole = whole && q.answered(followee)
			may = may || q.justified(followee)
		}
		switch {
		case got.Missing && !may || !got.Missing && !whole:
			return fmt.Errorf("user %d: missing is %v, whole %v", user, got.Missing, whole)
		case !slices.IsSortedFunc(got.Posts, byPosition):
			return fmt.Errorf("user %d: posts are not in order", user)
		case !got.Missing && (!slices.Equal(got.Posts, want.Posts) || got.More != want.More):
			return fmt.Errorf("user %d: %v more %v\nnot %v more %v", user, got.Posts, got.More, want.Posts, want.More)
		}
		for _, p := range got.Posts {
			if !q.answered(p.Author) {
				return fmt.Errorf("a post of %d, and nobody holds it", p.Author)
			}
		}
		return nil
	})
}

func (q *asking) users() {
	user, after, limit := 1+q.r.Uint64N(q.most), q.r.Uint64N(q.most), 1+q.r.IntN(30)
	for name, read := range map[string]func(query.Reader, context.Context, *query.UserPage) error{
		"following": func(r query.Reader, ctx context.Context, p *query.UserPage) error {
			return r.Following(ctx, user, after, limit, p, true)
		},
		"followers": func(r query.Reader, ctx context.Context, p *query.UserPage) error {
			return r.Followers(ctx, user, after, limit, p, true)
		},
	} {
		var got, want query.UserPage
		if err := read(q.whole, context.Background(), &want); err != nil {
			q.t.Fatal(err)
		}
		q.ask(name, func(ctx context.Context, far query.Reader) error {
			err := read(far, ctx, &got)
			if errors.Is(err, query.ErrStopped) && !q.justified(user) {
				q.t.Errorf("%s of %d: %v", name, user, err)
			}
			return err
		}, func() error {
			if !q.answered(user) || !slices.Equal(got.Users, want.Users) || got.More != want.More {
				return fmt.Errorf("user %d: %v %v, not %v %v", user, got.Users, got.More, want.Users, want.More)
			}
			return nil
		})
	}
}
