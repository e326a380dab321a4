package twin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Holders of some shards each, fed by the same log, put together by a dumb
// merger, answer what the naive model answers, in all six queries, while shards
// are taken up and given up, with kills between, and windows that a holder lacks
// are gone from DELTAS. What a holder does not hold it says so of.
func TestHolders(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	sequences := max(sequencesOfRun()/20, 1)
	if *sequencesFlag > 0 {
		sequences = *sequencesFlag
	}
	t.Logf("%d sequences, seed %d: go test ./internal/twin -run 'TestHolders$' -seed=%d", sequences, seed, seed)
	derived := 0
	for number := range sequences {
		if *onlyFlag >= 0 && *onlyFlag != number {
			continue
		}
		n, err := heldSequences(t.TempDir(), chances(seed, number))
		if err != nil {
			t.Fatalf("sequence %d: %v", number, err)
		}
		derived += n
	}
	if t.Logf("holders derived windows from EVENTS %d times", derived); derived == 0 && sequences > 20 {
		t.Error("no holder ever derived a window")
	}
}

// heldSequences tells a few sequences to a world and to holders, and returns how
// often these derived windows.
func heldSequences(root string, r *rand.Rand) (derived int, err error) {
	w, err := newWorld(root, draw(r))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c := &cluster{world: w, Rand: r, first: 1}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.start(3); err != nil {
		return 0, err
	}
	for number := range 3 {
		if err := c.tell(generate(r, number, c.ages)); err != nil {
			return 0, fmt.Errorf("story %d: %w", number, err)
		}
	}
	return c.derived, nil
}

// tell publishes a sequence, and asks now and then.
func (c *cluster) tell(s sequence) error {
	m := &model{ages: c.ages, defaults: c.defaults}
	ask := func() error { return c.same(m, s.people, 1+c.IntN(6)) }
	return errors.Join(c.runs(c.Rand, s.messages, m, c.happen, ask), c.finish(s, m))
}

// cluster is holders of a world's shards.
type cluster struct {
	*world
	*rand.Rand
	holders []*holder
	first   uint64 // the oldest window that DELTAS holds
	derived int    // how often a holder derived windows from EVENTS
}

// holder is a node that holds some of the shards, and is fed by a follower.
type holder struct {
	*cluster
	dir    string
	store  *cold.Store
	node   *sinks.Node
	shards []pipeline.Shard // what it is to hold
}

// start makes holders; every shard has one, or several.
func (c *cluster) start(holders int) (err error) {
	for range holders {
		c.holders = append(c.holders, &holder{cluster: c})
	}
	for i := range c.world.shards {
		for {
			h := c.holders[c.IntN(holders)]
			if !slices.Contains(h.shards, pipeline.Shard(i)) {
				h.shards = append(h.shards, pipeline.Shard(i))
			}
			if c.IntN(3) > 0 {
				break
			}
		}
	}
	for _, h := range c.holders {
		if h.dir, err = os.MkdirTemp(c.root, "holder"); err != nil {
			return err
		}
		if err := h.open(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) close() (err error) {
	for _, h := range c.holders {
		if h.node != nil {
			err = errors.Join(err, h.node.Close(), h.store.Close())
		}
	}
	return err
}

func (h *holder) open() (err error) {
	h.store, err = cold.Open(h.dir, h.schema, cold.Options{Shards: h.world.shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		return err
	}
	o := h.options()
	o.Held = append([]pipeline.Shard{}, h.shards...)
	h.node, err = sinks.NewNode(h.store, o)
	return err
}

// happen is what may happen between two runs of the followers.
func (c *cluster) happen() error {
	if c.IntN(10) == 0 {
		c.first += c.Uint64N(uint64(len(c.entries)) - c.first + 1) // a purge
	}
	for i, h := range c.holders {
		var err error
		switch c.IntN(8) {
		case 0, 1:
			err = h.hold()
		case 2, 3:
			err = h.release()
		case 4:
			if c.IntN(4) == 0 {
				err = h.crash()
			}
		}
		if err == nil && c.IntN(2) == 0 {
			err = h.follow(c.IntN(2) == 0)
		}
		if err != nil {
			return fmt.Errorf("holder %d: %w", i, err)
		}
	}
	return nil
}

// hold takes up a shard that the holder does not hold.
func (h *holder) hold() error {
	number := pipeline.Shard(h.IntN(h.world.shards))
	if slices.Contains(h.shards, number) {
		return nil
	}
	h.shards = append(h.shards, number)
	return h.node.Hold(context.Background(), number)
}

// release gives up a shard that another holder is to hold as well, and mostly
// drops what the store has of it; a kill may come between.
func (h *holder) release() error {
	for at, number := range h.shards {
		if !slices.ContainsFunc(h.holders, func(other *holder) bool { return other != h && slices.Contains(other.shards, number) }) {
			continue
		}
		h.shards = slices.Delete(h.shards, at, at+1)
		if err := h.node.Release(context.Background(), number); err != nil {
			return err
		}
		switch h.IntN(4) {
		case 0:
			return nil // what is stored stays, and may be taken up again
		case 1:
			if err := h.crash(); err != nil {
				return err
			}
		}
		return h.store.Drop(number)
	}
	return nil
}

// crash kills the holder, and starts it again.
func (h *holder) crash() error {
	if err := h.crashOf(h.node); err != nil {
		return err
	}
	if err := h.store.Close(); err != nil {
		return err
	}
	return h.open()
}

// follow is a run of the follower, to the end of the log or to somewhere.
func (h *holder) follow(some bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	end := uint64(len(h.entries))
	f := pipeline.Follower{
		Guard: pipeline.NewGuard(h.node, eventsOf{h.world}, logOf{h.cluster}, quiet),
		Tailer: func(_ context.Context, after uint64) (pipeline.Tailer, error) {
			if after+1 < h.first {
				return nil, fmt.Errorf("it asks for the window after %d, and the oldest is %d", after, h.first)
			}
			after = min(after, end)
			if some {
				end = after + h.Uint64N(end-after+1)
			}
			return &runsOf[pipeline.Entry]{h.entries[after:end], 3, io.EOF}, nil
		},
		Lane: func() pipeline.Deriver {
			h.derived++
			return h.lanes[h.IntN(len(h.lanes))]
		},
	}
	if err := f.Join(ctx); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := f.Follow(ctx); !errors.Is(err, io.EOF) {
		return fmt.Errorf("follow: %w", err)
	}
	return nil
}

// same asks all holders together, and each for what it does not hold.
func (c *cluster) same(m *model, p people, page int) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case nobody:
			err = errors.New(string(p))
		default:
			panic(p)
		}
	}()
	all := &merged{Rand: c.Rand, shards: c.world.shards}
	for i, h := range c.holders {
		if err := h.follow(false); err != nil {
			return fmt.Errorf("holder %d: %w", i, err)
		}
		if err := h.node.Settle(context.Background()); err != nil {
			return err
		}
		if err := errors.Join(h.node.Err(), h.stands(), h.refuses(p)); err != nil {
			return fmt.Errorf("holder %d: %w", i, err)
		}
		all.holders = append(all.holders, h.node)
	}
	c.other = all
	defer func() { c.other = nil }()
	return c.world.same(m, p, page)
}

// stands says that all that is to be held is there, and answers.
func (h *holder) stands() error {
	if h.node.Applied() != h.end || h.node.Sequence() != uint64(len(h.entries)) {
		return fmt.Errorf("it stands at %d, window %d, want %d, %d", h.node.Applied(), h.node.Sequence(), h.end, len(h.entries))
	}
	for i := range h.world.shards {
		number := pipeline.Shard(i)
		if want := slices.Contains(h.shards, number); h.node.Holds(number) != want {
			return fmt.Errorf("holds shard %d: %v, want %v", number, !want, want)
		}
	}
	if _, all := h.node.Warmth(); all != len(h.shards) || len(h.node.Standings()) != all {
		return fmt.Errorf("it counts %d shards, and holds %v", all, h.shards)
	}
	return nil
}

// refuses asks for everybody, and is an error unless it says of whom it does not hold.
func (h *holder) refuses(p people) error {
	ctx := context.Background()
	counter, _ := h.schema.Counter("user")
	for _, user := range p.users {
		var rows query.Rows
		var profiles query.Profiles
		var counts query.Counts
		var posts, feed query.FeedPage
		var list query.UserPage
		one := []uint64{user}
		if err := errors.Join(
			h.node.Rows(ctx, counter, h.schema.Visible(counter), one, &rows, true),
			h.node.Profiles(ctx, one, nil, &profiles, true),
			h.node.CountPosts(ctx, []query.CountAsk{{Followees: []query.Followee{{User: user}}}}, &counts, true),
			h.node.Posts(ctx, one, 0, 0, 10, &posts, true),
		); err != nil {
			return err
		}
		_, err := h.node.Followees(ctx, user, 0, 10, &list, true)
		elsewhere := !slices.Contains(h.shards, pipeline.ShardOf(user, h.world.shards))
		for what, refused := range map[string]bool{
			"rows": len(rows.Missing) > 0, "profiles": len(profiles.Missing) > 0, "counts": len(counts.Missing) > 0, "posts": posts.Missing,
			"followees": errors.Is(err, query.ErrElsewhere),
			"following": errors.Is(h.node.Following(ctx, user, 0, 10, &list, true), query.ErrElsewhere),
			"followers": errors.Is(h.node.Followers(ctx, user, 0, 10, &list, true), query.ErrElsewhere),
			"feed":      errors.Is(h.node.Feed(ctx, user, 0, 10, &feed, true), query.ErrElsewhere),
		} {
			if refused != elsewhere {
				return fmt.Errorf("%s of user %d are refused: %v, and held elsewhere: %v", what, user, refused, elsewhere)
			}
		}
	}
	return h.node.Err()
}

// eventsOf is a world's EVENTS.
type eventsOf struct{ *world }

func (e eventsOf) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return &runsOf[pipeline.Message]{e.log[from.Next()-1:], 5, io.EOF}, nil
}

func (e eventsOf) Holds(context.Context, uint64, int64) error { return nil }

// logOf is a world's DELTAS, as far as it was not purged.
type logOf struct{ *cluster }

func (l logOf) At(_ context.Context, sequence uint64) (pipeline.Header, error) {
	if sequence < l.first || sequence > uint64(len(l.entries)) {
		return pipeline.Header{}, errors.New("there is no such window")
	}
	return pipeline.DecodeHeader(l.entries[sequence-1].Window)
}

func (l logOf) Tail(ctx context.Context) (pipeline.Header, uint64, error) {
	h, err := l.At(ctx, uint64(len(l.entries)))
	return h, uint64(len(l.entries)), err
}

func (l logOf) First(ctx context.Context) (pipeline.Header, uint64, error) {
	h, err := l.At(ctx, l.first)
	return h, l.first, err
}

func (l logOf) Append(context.Context, uint64, []byte) (uint64, error) {
	return 0, errors.New("nobody routes here")
}
