package twin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	sequences := max(sequencesFor(true)/10, 1)
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
		if err := c.tell(generate(r, number, c.ages.once)); err != nil {
			return 0, fmt.Errorf("story %d: %w", number, err)
		}
	}
	return c.derived, nil
}

// tell publishes a sequence, and asks now and then.
func (c *cluster) tell(s sequence) error {
	m := &model{ages: c.ages, defaults: c.defaults}
	for rest := s.messages; len(rest) > 0; {
		n := min(1+c.IntN(25), len(rest))
		if err := c.publish(rest[:n], c.IntN(len(windowEvents)), m); err != nil {
			return err
		}
		rest = rest[n:]
		if err := c.happen(); err != nil {
			return err
		}
		if len(rest) == 0 || c.IntN(4) == 0 {
			if err := c.same(m, s.people, 1+c.IntN(6)); err != nil {
				return fmt.Errorf("with %d messages left: %w", len(rest), err)
			}
		}
	}
	if end := s.finish(); len(end) > 0 {
		if err := c.publish(end, 3, m); err != nil {
			return err
		}
	}
	c.notices = nil // none of them lives
	return nil
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
	if err := h.node.Hold(context.Background(), number); err != nil {
		return err
	}
	if h.IntN(2) == 0 {
		return nil
	}
	return h.partway()
}

// partway brings the shards that stand lowest to somewhere, amid a window of
// DELTAS perhaps: as one is that another node has given.
func (h *holder) partway() error {
	positions := h.node.Positions()
	from := positions[0]
	next := int(from.Next()) - 1
	if next >= len(h.log) {
		return nil
	}
	run := h.log[next : next+1+h.IntN(len(h.log)-next)]
	windows, err := pipeline.DeriveRun(h.lanes[h.IntN(len(h.lanes))], from, run, positions[1:])
	if err != nil {
		return err
	}
	for _, d := range windows {
		if d.To > h.end {
			break
		}
		if err := h.node.Hand(context.Background(), pipeline.Entry{Window: d.Window}); err != nil {
			return err
		}
	}
	return h.node.Settle(context.Background())
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
			return &entriesOf{h.entries[after:end]}, nil
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
func (c *cluster) same(m *model, p people, page int) error {
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

// refuses asks for everybody and compares who is missing with who is not held.
func (h *holder) refuses(p people) error {
	ctx := context.Background()
	elsewhere := func(id uint64) bool { return !slices.Contains(h.shards, pipeline.ShardOf(id, h.world.shards)) }
	var missing []int
	for i, user := range p.users {
		if elsewhere(user) {
			missing = append(missing, i)
		}
	}
	var rows query.Rows
	var profiles query.Profiles
	var unread query.Unreads
	var counts query.Counts
	var list query.UserPage
	var feed query.FeedPage
	counter, _ := h.schema.Counter("user")
	var asks []query.CountAsk
	for _, user := range p.users {
		asks = append(asks, query.CountAsk{Followees: []query.Followee{{User: user}}})
	}
	if err := errors.Join(
		h.node.Rows(ctx, counter, h.schema.Visible(counter), p.users, &rows, true),
		h.node.Profiles(ctx, p.users, nil, &profiles, true),
		h.node.Unread(ctx, p.users, nil, &unread, true),
		h.node.CountPosts(ctx, asks, &counts, true),
	); err != nil {
		return err
	}
	for what, got := range map[string][]int{"rows": rows.Missing, "profiles": profiles.Missing, "counts": counts.Missing} {
		if slices.Sort(got); !slices.Equal(got, missing) {
			return fmt.Errorf("%s are missing for %v, want %v", what, got, missing)
		}
	}
	for i, user := range p.users {
		if rest := len(profiles.Rest[i].Followees) > 0; slices.Contains(unread.Missing, i) != (elsewhere(user) || rest) {
			return fmt.Errorf("user %d: unread misses %v; followees are elsewhere: %v", user, unread.Missing, rest)
		}
		_, followees := h.node.Followees(ctx, user, 0, 10, &list, true)
		for what, err := range map[string]error{
			"following": h.node.Following(ctx, user, 0, 10, &list, true),
			"followers": h.node.Followers(ctx, user, 0, 10, &list, true),
			"followees": followees,
			"feed":      h.node.Feed(ctx, user, 0, 10, &feed, true),
		} {
			if errors.Is(err, query.ErrElsewhere) != elsewhere(user) || !elsewhere(user) && err != nil {
				return fmt.Errorf("%s of user %d: %v", what, user, err)
			}
		}
	}
	if err := h.unusual(p); err != nil {
		return err
	}
	err := h.node.Posts(ctx, p.users, 0, 0, 10, &feed, true)
	if feed.Missing != (len(missing) > 0) {
		return fmt.Errorf("posts of %v are missing: %v", p.users, feed.Missing)
	}
	return err
}

// unusual asks what no node does: the same followee many times, and numbers that
// no log has. It is counted as it is asked, and nothing stops.
func (h *holder) unusual(p people) error {
	var twice []query.Followee
	var ids []uint64
	for range 2 {
		for _, user := range p.users {
			if slices.Contains(h.shards, pipeline.ShardOf(user, h.world.shards)) {
				twice, ids = append(twice, query.Followee{User: user}), append(ids, user)
			}
		}
	}
	slices.SortFunc(twice, func(a, b query.Followee) int { return cmp.Compare(b.User, a.User) })
	most := pipeline.Position(math.MaxUint64)
	late := []query.Followee{{User: math.MaxUint64, Since: most}, {User: 0, Since: most}}
	late = slices.DeleteFunc(late, func(f query.Followee) bool {
		return !slices.Contains(h.shards, pipeline.ShardOf(f.User, h.world.shards))
	})
	var counts query.Counts
	var feed query.FeedPage
	ctx := context.Background()
	asks := []query.CountAsk{{Followees: twice[:len(twice)/2]}, {Followees: twice}, {Mark: most, Followees: twice}, {Followees: late}, {}}
	if err := h.node.CountPosts(ctx, asks, &counts, true); err != nil || len(counts.Missing) > 0 {
		return fmt.Errorf("%+v, %w", counts, err)
	}
	once := uint64(0)
	for _, f := range twice {
		var one query.Counts
		if err := h.node.CountPosts(ctx, []query.CountAsk{{Followees: []query.Followee{f}}}, &one, true); err != nil {
			return err
		}
		once += one.Posts[0]
	}
	if got := counts.Posts; got[1] != once || got[2]+got[3]+got[4] != 0 {
		return fmt.Errorf("%d posts of followees, each twice, one by one %d", got, once)
	}
	for _, span := range [][2]pipeline.Position{{0, most}, {most, 1}, {most, most}, {5, 5}} {
		if err := h.node.Posts(ctx, ids, span[0], span[1], 3, &feed, true); err != nil || feed.Missing || span[0] > 0 && len(feed.Posts) > 0 {
			return fmt.Errorf("posts in %d: %+v, %w", span, feed, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := h.node.CountPosts(ended, asks, &counts, true); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("after its context has ended: %w", err)
	}
	return h.node.Err()
}

// eventsOf is a world's EVENTS.
type eventsOf struct{ *world }

func (e eventsOf) Open(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
	return &messagesOf{e.log[from.Next()-1:]}, nil
}

func (e eventsOf) Last(context.Context) (uint64, error)                        { return uint64(len(e.log)), nil }
func (e eventsOf) FastForward(context.Context, uint64) error                   { return nil }
func (e eventsOf) Reclaim(context.Context, uint64, int64) (moved int, _ error) { return 0, nil }

// messagesOf gives some messages at a time.
type messagesOf struct{ rest []pipeline.Message }

func (m *messagesOf) Next(context.Context) (some []pipeline.Message, err error) {
	if len(m.rest) == 0 {
		return nil, io.EOF
	}
	n := min(5, len(m.rest))
	some, m.rest = m.rest[:n], m.rest[n:]
	return some, nil
}
func (m *messagesOf) Close() error { return nil }

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

// entriesOf gives some entries at a time, then io.EOF.
type entriesOf struct{ rest []pipeline.Entry }

func (e *entriesOf) Next(context.Context) (some []pipeline.Entry, err error) {
	if len(e.rest) == 0 {
		return nil, io.EOF
	}
	n := min(3, len(e.rest))
	some, e.rest = e.rest[:n], e.rest[n:]
	return some, nil
}
func (e *entriesOf) Close() error { return nil }
