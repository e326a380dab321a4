package tier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/sim"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

var twinColumns = []string{"user.following", "user.follower", "user.friend", "user.post", "user.pair", "unread.follower", "post.like", "post.once", "post.kept"}

// twinLimits are so short that posts go because they are old, and because there
// are too many.
var twinLimits = shard.Limits{PostsMax: 4, PostsKept: 6, Retention: 40, Inactive: 1000}

// twins are a shard that has everything in memory and never a checkpoint, and
// one that is checkpointed, evicted, merged, loaded, moved to another store and started
// again.
type twins struct {
	*testing.T
	*rand.Rand
	open  func(t *testing.T) *cold.Store
	store *cold.Store
	clock *shard.Clock
	all   *tier.Shard
	some  *tier.Shard

	windows []*pipeline.Window // all there were; the first begins at 0
	columns []pipeline.Column
	under   *cold.Checkpoint // handed over; nil: none
	sets    *setsTwin
	merges  uint64 // of stores before
	moves   int
}

// A shard answers the same, wherever what is asked lies (I8): in memory, in
// flight, in one run or in several.
func TestTwins(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *cold.Store{
		"badger": func(t *testing.T) *cold.Store { return openStore(t, twinColumns...) },
		"sim": func(t *testing.T) *cold.Store {
			schema := openStore(t, twinColumns...).Schema()
			mount := sim.NewServer().NewClient(0, nil).Mount(context.Background(), new(sim.Disk))
			store, err := cold.OpenOn(mount, schema, 1, "n")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(20)
			if name == "badger" || testing.Short() {
				seeds = 4
			}
			merges, moves := uint64(0), 0
			for seed := range seeds {
				w := &twins{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), open: open, store: open(t), clock: shard.NewClock(100)}
				w.sets = newSetsTwin(w.store.Schema())
				for i := range w.store.Schema().Columns {
					w.columns = append(w.columns, pipeline.Column(i))
				}
				w.all, w.some = w.shard(shard.State{}), w.shard(shard.State{})
				for range 400 {
					w.step()
				}
				merges, moves = merges+w.merges+w.store.Stats.Merges.Load(), moves+w.moves
			}
			if t.Logf("%d merges, %d moves", merges, moves); merges == 0 || moves == 0 {
				t.Error("too little happened")
			}
		})
	}
}

func (w *twins) shard(state shard.State) *tier.Shard {
	return tier.New(shard.New(0, w.store.Schema(), twinLimits, w.clock, state), w.store)
}

func (w *twins) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

func (w *twins) step() {
	switch w.IntN(12) {
	case 0, 1, 2, 3:
		w.apply(w.window())
	case 4, 5:
		w.checkpoint()
	case 6:
		w.some.Watch()
		for range 1 + w.IntN(3) {
			w.some.Shed(w.Float64())
		}
	case 7:
		w.merge()
	case 8:
		switch w.IntN(8) {
		case 0:
			w.restart()
		case 1:
			w.move()
		}
	case 9:
		bytes, left := int64(tier.Everything), w.IntN(8)
		if w.IntN(2) == 0 {
			bytes = w.Int64N(4000)
		}
		w.must(w.some.Warm(tier.WarmOptions{
			Bytes: bytes, Bounds: w.IntN(2) << 10, Entries: 1 + w.IntN(40), Tight: w.IntN(2) == 0,
			More: func() bool { left--; return left > 0 || left < -20 },
		}))
	default:
		w.compare()
	}
}

const twinIDs = 12

func (w *twins) id() uint64 { return 1 + w.Uint64N(twinIDs) }

// window is the next one.
func (w *twins) window() *pipeline.Window {
	from := w.all.State().Applied
	win := &pipeline.Window{Header: pipeline.Header{From: from}, Sections: make([][]byte, 2)}
	for range w.IntN(5) {
		d := []pipeline.Delta{pipeline.Add(1), pipeline.Add(70_000), pipeline.Take(3), pipeline.Set(0)}[w.IntN(4)]
		win.Sections[0] = pipeline.AppendChange(win.Sections[0], 3+3*w.IntN(2), w.id(), d)
	}
	at := from
	for range w.IntN(6) {
		at++
		o := pipeline.Operation{Position: at, ID: w.id(), Other: w.id()}
		o.Op = []pipeline.Op{
			pipeline.OpFollow, pipeline.OpUnfollow, pipeline.OpFollowed, pipeline.OpUnfollowed, pipeline.OpPost, pipeline.OpPost, pipeline.OpPost, pipeline.OpUnpost, pipeline.OpRead,
		}[w.IntN(9)]
		switch o.Op {
		case pipeline.OpPost, pipeline.OpUnpost:
			o.Other = 1 + w.Uint64N(60)
		case pipeline.OpRead:
			o.Other, o.Mark = 0, at
			if o.Looked = pipeline.LookedFeed; w.IntN(2) == 0 {
				o.Looked, o.Channels = 0, []string{fmt.Sprint("c", w.IntN(5))}
			}
		}
		win.Sections[0] = pipeline.AppendOperation(win.Sections[0], from, &o)
	}
	second := int64(len(w.windows))
	for range w.IntN(8) {
		at++
		win.Sections[0] = w.sets.operation(w.Rand, win.Sections[0], from, at, second)
	}
	win.To, win.Time = at+1, 1000*second
	if win.Sections[0] == nil {
		win.Sections[0] = []byte{}
	}
	win.Marks = []pipeline.TimeMark{{Second: second, Position: from + 1}}
	w.clock.Note(win.Marks)
	w.windows = append(w.windows, win)
	w.must(w.all.Apply(uint64(len(w.windows)), win, w.columns))
	return win
}

func (w *twins) apply(win *pipeline.Window) {
	was, err := w.some.Prepare(win, w.columns) // ahead, and then:
	w.must(err)
	switch w.IntN(6) {
	case 0:
		w.checkpoint()
	case 1:
		w.some.Shed(w.Float64())
	}
	if !w.some.Ready(was) {
		_, err = w.some.Prepare(win, w.columns)
	}
	w.must(err, w.some.Apply(uint64(slices.Index(w.windows, win)+1), win, w.columns))
}

// checkpoint hands over, or ends a checkpoint that has been handed over.
func (w *twins) checkpoint() {
	if w.under == nil {
		if w.some.Full() {
			return
		}
		w.under = w.store.Begin()
		w.some.HandOver()
		w.some.Write(w.under)
		return
	}
	committed := w.IntN(4) > 0
	if committed {
		w.must(w.under.Commit())
	} else {
		w.under.Discard()
	}
	w.under = nil
	if w.some.Settle(committed); committed {
		w.some.SetHorizon(w.clock.Horizon(w.some.Kept(), twinLimits.Retention))
	}
}

// restart begins again at what is on disk.
func (w *twins) restart() { w.restartIn(w.store) }

func (w *twins) restartIn(store *cold.Store) {
	if w.under != nil {
		w.under.Discard()
		w.under = nil
	}
	w.store = store
	state, err := w.store.Stack(0).State()
	w.must(err)
	w.some = w.shard(state)
	for _, win := range w.windows[state.Sequence:] {
		w.apply(win)
	}
}

func (w *twins) merge() {
	_, err := w.store.MergeOnce(nil)
	w.must(err)
}

// move goes on in another store, which has what the shard was when the move began, whatever
// is checkpointed and merged meanwhile, and however often it is cut off.
func (w *twins) move() {
	export, err := w.store.Export(0)
	w.must(err)
	to := w.open(w.T)
	in, err := to.Import(0)
	w.must(err)
	for err = in.Copy(context.Background(), cutOff{export, w.Rand}); errors.Is(err, errCut); err = in.Copy(context.Background(), cutOff{export, w.Rand}) {
		switch w.IntN(4) {
		case 0:
			w.checkpoint()
		case 1:
			w.merge()
		case 2: // by the next import
			in.Close()
			in, err = to.Import(0)
			w.must(err)
		}
	}
	w.must(err, in.Commit())
	in.Close()
	export.Close()
	w.merges, w.moves = w.merges+w.store.Stats.Merges.Load(), w.moves+1
	w.restartIn(to)
}

var errCut = errors.New("cut off")

// cutOff is an export that comes in pieces, and is cut off now and then.
type cutOff struct {
	cold.Source
	*rand.Rand
}

// Read implements [cold.Source].
func (c cutOff) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	if c.IntN(10) == 0 {
		return 0, errCut
	}
	return c.Source.Read(ctx, run, b[:min(len(b), 1+c.IntN(500))], at)
}

// compare asks both everything.
func (w *twins) compare() {
	horizon := w.clock.Horizon(w.all.State().Applied, twinLimits.Retention)
	page, after := 1+w.IntN(4), w.Uint64N(twinIDs)
	if w.IntN(3) == 0 {
		after = 0
	}
	a, b := w.answers(w.all, &tier.Disk{}, horizon, page, after), w.answers(w.some, onDisk(), horizon, page, after)
	for i := range a {
		if a[i] != b[i] {
			w.Fatalf("after %d windows, in memory: %s; else: %s", len(w.windows), a[i], b[i])
		}
	}
	w.must(w.sets.compare(w.Rand, w.some, int64(len(w.windows))-1))
}

// answers is everything that a shard says. Of followers it says nothing where
// it may not read the disk: what a shard follows is asked in their place.
func (w *twins) answers(s *tier.Shard, d *tier.Disk, horizon pipeline.Position, page int, after uint64) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	var b tier.Batch
	var p shard.Profile
	var g shard.Gathering
	ids, all := []uint64{}, []hot.Pair{}
	for id := uint64(1); id <= twinIDs; id++ {
		ids, all = append(ids, id), append(all, hot.Pair{A: id, B: w.mark(id)})
	}
	for counter := range w.store.Schema().Counters {
		rows := make([]string, len(ids))
		state, err := s.Read(counter, ids, &b, d, func(i int, cells []int64) { rows[i] = fmt.Sprint(cells) })
		say("counter %d: %v, as of %d, %v", counter, rows, state.Applied, err)
	}
	for _, id := range ids {
		if page > 2 { // before anything else may have put the user into memory
			followees, more, _, err := s.Followees(id, after, page, nil, d)
			say("user %d follows, for all, %v above %d, %v, %v", id, followees, after, more, err)
		}
		if page%2 == 0 {
			following, more, _, err := s.Following(id, after, page, nil, d)
			say("user %d follows, at first, %v above %d, %v, %v", id, following, after, more, err)
		}
		_, err := s.Profile(id, 1, []string{"c0", "c1", "c2", "c3", "c4"}, &p, d)
		say("user %d: %v %v %v, %v", id, p.Marks, p.Cells, p.Cursors, err)
		for _, f := range p.Following { // when the follow was is said of those after the mark
			say("user %d follows %d since %d", id, f.A, max(f.B, uint64(p.Marks.Feed), uint64(p.Marks.All)))
		}
		following, more, _, err := s.Following(id, after, page, nil, d)
		say("user %d follows %v above %d, %v, %v", id, following, after, more, err)
		say("followers of %d: %s", id, w.followers(s, d, id, after, page))
		_, err = s.Posts([]hot.Pair{{A: id}}, horizon, pipeline.PositionMax, &g, d, func(_ uint64, p hot.Pair) bool {
			say("author %d: post %v", id, p)
			return true
		})
		say("posts of %d: %v", id, err)
	}
	if d.May {
		if err := followersOf(s, d, ids, after, page); err != nil {
			say("%v", err) // the other one does not
		}
	}
	n, _, err := tier.NewTimeline([]*tier.Shard{s}).CountPosts(all, max(horizon, 1)-1, &g, d)
	say("%d posts unread, %v", n, err)
	return out
}

// followersOf says, page by page, what single pages say of each.
func followersOf(s *tier.Shard, d *tier.Disk, users []uint64, after uint64, page int) error {
	var is, should [][2]uint64
	more, _, err := s.MembersOf(shard.NoColumn, users, pipeline.Member{A: after}, page, d, func(user uint64, m pipeline.Member, _ int64) {
		is = append(is, [2]uint64{user, m.A})
	})
	if err != nil {
		return err
	}
	left, rest := page, false
	for i, user := range users {
		some, cut, _, err := s.Followers(user, after, page, nil, d)
		if err != nil {
			return err
		}
		for _, follower := range some {
			should = append(should, [2]uint64{user, follower})
		}
		after, left = 0, left-len(some)
		if rest = cut || left <= 0 && i+1 < len(users); rest {
			break
		}
	}
	if !slices.Equal(is, should) || more != rest {
		return fmt.Errorf("followers of %v, %d at a time: %v, %v; want %v, %v", users, page, is, more, should, rest)
	}
	return nil
}

// mark is the same for both twins.
func (w *twins) mark(id uint64) uint64 { return uint64(w.all.State().Applied) * id / twinIDs }

// followers are pages from the disk, or where there is none, by the log.
func (w *twins) followers(s *tier.Shard, d *tier.Disk, user, after uint64, page int) string {
	if d.May {
		users, more, _, err := s.Followers(user, after, page, nil, d)
		return fmt.Sprint(users, more, err)
	}
	there := map[uint64]bool{}
	for _, win := range w.windows {
		section := pipeline.ReadSection(win.Sections[0], win.From)
		for c, ok := section.Next(); ok; c, ok = section.Next() {
			if o := section.Operation; o.ID == user && (c.Op == pipeline.OpFollowed || c.Op == pipeline.OpUnfollowed) {
				there[o.Other] = c.Op == pipeline.OpFollowed
			}
		}
	}
	users := []uint64{}
	for id := after + 1; id <= twinIDs; id++ {
		if there[id] {
			users = append(users, id)
		}
	}
	return fmt.Sprint(users[:min(page, len(users))], len(users) > page, nil)
}
