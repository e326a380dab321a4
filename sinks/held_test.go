package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

// sameHeld compares the answers of shards that answer with the twin; the others'
// ids are missing. all: each of held must answer.
func (w *world) sameHeld(t fataler, n *sinks.Node, ids []uint64, held []pipeline.Shard, all bool) {
	t.Helper()
	byShard := map[pipeline.Shard][]uint64{}
	for _, id := range ids {
		s := pipeline.ShardOf(id, w.shards)
		byShard[s] = append(byShard[s], id)
	}
	for number, ids := range byShard {
		is := slices.Contains(held, number)
		switch {
		case n.Holds(number) && !is:
			t.Fatalf("holds shard %d, and is to hold %v", number, held)
		case n.Holds(number):
			w.same(t, n, ids)
		case is && all:
			t.Fatalf("shard %d does not answer", number)
		default:
			if got := missing(t, n, ids); len(got) != len(ids) && !n.Holds(number) {
				t.Fatalf("of %v of shard %d, which is not held, %v are missing", ids, number, got)
			}
		}
	}
}

// "A reader that began before a shard was given up answers right or
// says that it cannot, never zero": beside windows, holds, releases and drops every
// answer is the twin's as of its position, or names the id as missing.
func TestReadersBesideHolds(t *testing.T) {
	const shards, many = 8, 400
	for _, memory := range []int{0, 1} { // 1: most is read from the disk
		store := openStore(t, t.TempDir(), shards)
		w := newWorld(shards)
		w.random(rand.New(rand.NewPCG(3, uint64(memory))), 400, 60, many)
		o := options(shards)
		o.CheckpointEvery, o.MemoryBytes, o.DirtyRowsMax = time.Millisecond, memory, 200
		n := newNode(t, store, o)
		var stop atomic.Bool
		var readers sync.WaitGroup
		var answered, missed atomic.Int64
		for i := range 3 {
			readers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for !stop.Load() {
					if err := w.readOne(n, r, many, &answered, &missed); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		r := rand.New(rand.NewPCG(9, 9))
		held := []pipeline.Shard{0, 1, 2, 3, 4, 5, 6, 7}
		for round := 0; (round < 100 || missed.Load() < 50) && !t.Failed(); round++ {
			at, end := n.Sequence(), min(uint64(4*round+4), uint64(len(w.entries)))
			if round%4 == 3 {
				end = at + (end-at)/2 // some are behind then
			}
			follow(t, n, &slice{w.entries[at:end]})
			number := pipeline.Shard(r.IntN(shards))
			var err error
			if at := slices.Index(held, number); at < 0 {
				held = append(held, number)
				err = n.Hold(t.Context(), number)
			} else if len(held) > 2 {
				held = slices.Delete(held, at, at+1)
				if err = n.Release(t.Context(), number); err == nil && round%2 == 0 {
					err = store.Drop(number)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(true)
		readers.Wait()
		t.Logf("%d answers, %d missing", answered.Load(), missed.Load())
		if err := errors.Join(n.Err(), n.Close(), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader that began before a Release, and reads the disk after the shard was
// dropped there, finds no zeros.
func TestReadAfterRelease(t *testing.T) {
	store := openStore(t, t.TempDir(), 2)
	defer store.Close()
	o, w, ids := options(2), newWorld(2), upTo(20)
	n := newNode(t, store, o)
	w.likes(ids...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	o.MemoryBytes = 1 // nothing is loaded
	n = newNode(t, store, o)
	defer n.Close()
	began := n.Hindsight()
	if err := errors.Join(n.Release(t.Context(), 0, 1), store.Drop(0), store.Drop(1)); err != nil {
		t.Fatal(err)
	}
	began()
	if got := missing(t, n, ids); len(got) != len(ids) {
		t.Errorf("missing %v", got)
	}
	var unread query.Unreads
	var page query.UserPage
	var feed query.FeedPage
	if err := n.Unread(t.Context(), ids, nil, &unread, true); err != nil || len(unread.Missing) != len(ids) {
		t.Errorf("missing %v, %v", unread.Missing, err)
	}
	if err := n.Following(t.Context(), 1, 0, 10, &page, true); !errors.Is(err, query.ErrElsewhere) {
		t.Error(err)
	}
	if err := n.Feed(t.Context(), 1, 0, 10, &feed, true); !errors.Is(err, query.ErrElsewhere) {
		t.Error(err)
	}
}

// readOne asks for some ids of one shard, and for users' numbers.
func (w *world) readOne(n *sinks.Node, r *rand.Rand, many uint64, answered, missed *atomic.Int64) error {
	ctx := context.Background()
	number, ids := pipeline.Shard(r.IntN(w.shards)), []uint64{}
	for len(ids) < 4 {
		if id := 1 + r.Uint64N(many); pipeline.ShardOf(id, w.shards) == number {
			ids = append(ids, id)
		}
	}
	before := n.Applied()
	var rows query.Rows
	if err := n.Rows(ctx, 0, []pipeline.Column{0, 1, 2}, ids, &rows, true); err != nil {
		return err
	}
	if len(rows.Missing) > 0 {
		missed.Add(1)
		if len(rows.Missing) != len(ids) {
			return fmt.Errorf("of one shard's %v only %v are missing", ids, rows.Missing)
		}
	} else {
		answered.Add(1)
		if rows.AsOf < before {
			return fmt.Errorf("as of %d, and applied was %d", rows.AsOf, before)
		}
		for i, id := range ids {
			for j := range 3 {
				if want := w.at(cell{j, id}, rows.AsOf); rows.Values[i*3+j] != want {
					return fmt.Errorf("%s of %d is %d, want %d as of %d", columnNames[j], id, rows.Values[i*3+j], want, rows.AsOf)
				}
			}
		}
	}
	var profiles query.Profiles
	var counts query.Counts
	var page query.UserPage
	var feed query.FeedPage
	asks := []query.CountAsk{{Followees: []query.Followee{{User: ids[0]}, {User: 1 + r.Uint64N(many)}}}}
	if err := errors.Join(n.Profiles(ctx, ids, nil, &profiles, true), n.CountPosts(ctx, asks, &counts, true), n.Posts(ctx, ids, 0, 0, 3, &feed, true)); err != nil {
		return err
	}
	if err := n.Following(ctx, ids[0], 0, 3, &page, true); err != nil && !errors.Is(err, query.ErrElsewhere) {
		return err
	}
	return nil
}

// What was asked wrongly says which shard and why, and changes nothing.
func TestHoldRefuses(t *testing.T) {
	const shards = 4
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o := options(shards)
	for what, held := range map[string][]pipeline.Shard{"shard 4": {0, 4}, "twice": {1, 1}} {
		o.Held = held
		if n, err := sinks.NewNode(store, o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("a node of %v: %v", held, err)
			n.Close()
		}
	}
	o.Held = []pipeline.Shard{0, 1}
	n := newNode(t, store, o)
	for _, c := range []struct {
		change func(context.Context, ...pipeline.Shard) error
		shards []pipeline.Shard
		says   string
	}{
		{n.Hold, []pipeline.Shard{2, 4}, "there is no shard 4: the shards are 0 to 3"},
		{n.Hold, []pipeline.Shard{2, 0}, "shard 0: it is held already"},
		{n.Hold, []pipeline.Shard{2, 2}, "shard 2: it is held already"},
		{n.Release, []pipeline.Shard{0, 2}, "shard 2: it is not held"},
		{n.Release, []pipeline.Shard{0, 0}, "shard 0: it is not held"},
	} {
		if err := c.change(t.Context(), c.shards...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.shards, err)
		}
		if _, all := n.Warmth(); all != 2 || !n.Holds(0) || n.Holds(2) {
			t.Errorf("after %q it holds %v", c.says, n.Standings())
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Hold(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}

// Sums of what is counted since the start do not go down when a shard is given up.
func TestCountsStay(t *testing.T) {
	n, w := started(t, options(2)), newWorld(2)
	w.likes(upTo(20)...)
	follow(t, n, w.tail(0))
	wait(t, n, w.last())
	w.same(t, n, upTo(20))
	sums := func() (sets, gets uint64, rows int) {
		all := n.ShardStats()
		for _, c := range sinks.ColumnStats(n.Schema(), all) {
			sets += c.Sets
		}
		for _, c := range sinks.CounterStats(n.Schema(), all) {
			gets, rows = gets+c.Gets, rows+c.Rows
		}
		return sets, gets, rows
	}
	sets, gets, rows := sums()
	if err := n.Release(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	if s, g, r := sums(); s != sets || g != gets || sets == 0 || gets == 0 || rows != 20 || r != 0 {
		t.Errorf("%d sets, %d gets, %d rows; then %d, %d, %d", sets, gets, rows, s, g, r)
	}
}

// A node beside another, over the same store, brings a shard to where the other
// takes it up; it does not write the commons.
func TestBeside(t *testing.T) {
	const shards = 4
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	o, w := options(shards), newWorld(shards)
	o.Held = []pipeline.Shard{0, 2, 3}
	w.random(rand.New(rand.NewPCG(5, 5)), 20, 30, 50)
	n := newNode(t, store, o)
	follow(t, n, w.tail(0))
	o.Held, o.Beside = []pipeline.Shard{1}, true
	for _, until := range []int{7, 20} { // it is cut short and goes on
		beside := newNode(t, store, o)
		follow(t, beside, &slice{w.entries[beside.Sequence():until]})
		wait(t, beside, w.ends[until])
		if err := beside.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := store.Stack(shards).State(); err != nil || state.Applied != 0 {
		t.Errorf("it wrote the commons: %+v, %v", state, err)
	}
	w.random(rand.New(rand.NewPCG(5, 6)), 2, 30, 50)
	if err := n.Hold(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if n.Sequence() != 20 {
		t.Errorf("it goes on after window %d, and the shard stands at 20", n.Sequence())
	}
	follow(t, n, w.tail(n.Sequence()))
	if err := n.Settle(t.Context()); err != nil || w.same(t, n, upTo(50)) != w.last() {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// What the clock has learned of a window is stored, also if Hand was interrupted
// before any owner had the window, as it is whenever what is held changes.
func TestTimeOfAnInterruptedWindow(t *testing.T) {
	const windows = 20
	o, w := options(1), newWorld(1)
	o.Owners = 1
	store := openStore(t, t.TempDir(), 1)
	defer store.Close()
	n := newNode(t, store, o)
	ended, end := context.WithCancel(t.Context())
	end()
	for i := range windows {
		w.likes(1)
		win, err := pipeline.DecodeWindow(w.entries[i].Window)
		if err != nil {
			t.Fatal(err)
		}
		win.Marks = []pipeline.TimeMark{{Second: int64(1_000_000 * (i + 1)), Position: win.From + 1}}
		e := pipeline.Entry{Sequence: uint64(i + 1), Window: pipeline.AppendWindow(nil, win)}
		for n.Hand(ended, e) != nil { // it is a matter of chance
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	var stored []int64
	view := store.Stack(1).View()
	defer view.Close()
	if err := view.Seconds(func(second int64, _ pipeline.Position) { stored = append(stored, second) }); err != nil || len(stored) != windows {
		t.Errorf("of %d marks these are stored: %v, %v", windows, stored, err)
	}
}

// Of a shard that has stopped, another node may count the followees.
func TestFolloweesOfAStoppedShard(t *testing.T) {
	const shards = 2
	o := options(shards)
	o.Users.PostsMax, o.Users.PostsKept = 10, 40
	n := started(t, o)
	user := uint64(1)
	home := pipeline.ShardOf(user, shards)
	var here, there uint64 // followees
	for id := user + 1; here == 0 || there == 0; id++ {
		if pipeline.ShardOf(id, shards) == home {
			here = id
		} else {
			there = id
		}
	}
	of := func(id uint64) int { return int(pipeline.ShardOf(id, shards)) }
	w := pipeline.Window{Header: pipeline.Header{To: 10}, Sections: make([][]byte, shards+1)}
	add := func(o pipeline.Operation) {
		w.Sections[of(o.ID)] = pipeline.AppendOperation(w.Sections[of(o.ID)], w.From, &o)
	}
	add(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: here, Position: 1})
	add(pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: there, Position: 2})
	add(pipeline.Operation{Op: pipeline.OpPost, ID: here, Other: 70, Position: 3})
	add(pipeline.Operation{Op: pipeline.OpPost, ID: there, Other: 71, Position: 4})
	bad := pipeline.Window{Header: pipeline.Header{From: 10, To: 20}, Sections: make([][]byte, shards+1)}
	bad.Sections[of(there)] = unknown
	follow(t, n, &slice{[]pipeline.Entry{{Sequence: 1, Window: pipeline.AppendWindow(nil, &w)}, {Sequence: 2, Window: pipeline.AppendWindow(nil, &bad)}}})
	await(t, "stopped", func() bool { return n.Failed() == 1 })
	wait(t, n, 20) // the other shard
	var profiles query.Profiles
	if err := n.Profiles(t.Context(), []uint64{user}, nil, &profiles, true); err != nil || len(profiles.Missing) > 0 {
		t.Fatalf("missing %v, %v", profiles.Missing, err)
	}
	rest := profiles.Rest[0].Followees
	if profiles.Users[0].Feed != 1 || len(rest) != 1 || rest[0].User != there {
		t.Errorf("%d posts here, elsewhere %v", profiles.Users[0].Feed, rest)
	}
	var unread query.Unreads
	if err := n.Unread(t.Context(), []uint64{user}, nil, &unread, true); err != nil || len(unread.Missing) != 1 {
		t.Errorf("alone: missing %v, %v", unread.Missing, err)
	}
	// "An answer with min_position P reflects every event at or before P" (I6): what is
	// missing takes nothing from what others are told beside it.
	if err := n.Unread(t.Context(), []uint64{here, user}, nil, &unread, true); err != nil || len(unread.Missing) != 1 || unread.AsOf != 20 {
		t.Errorf("beside others: missing %v, as of %d, %v", unread.Missing, unread.AsOf, err)
	}
}

// A poll asks other nodes for those followees alone who may have posted since, as of what was
// handed over. internal/twin TestHolders holds that nobody is left out, also after a start.
func TestPollsAskForThoseWhoPosted(t *testing.T) {
	const shards, message = 2, pipeline.Position(1 << 16) // positions that are told apart
	o := options(shards)
	o.Users.PostsMax, o.Users.PostsKept = 10, 40
	user := uint64(1)
	home := pipeline.ShardOf(user, shards)
	o.Held = []pipeline.Shard{home}
	var here uint64
	var there []uint64
	for id := user + 1; here == 0 || len(there) < 3; id++ {
		if pipeline.ShardOf(id, shards) != home {
			there = append(there, id)
		} else if here == 0 {
			here = id
		}
	}
	store := openStore(t, t.TempDir(), shards)
	defer store.Close()
	n := newNode(t, store, o)
	defer n.Close()
	at, sequence := pipeline.Position(0), uint64(0)
	window := func(ops ...pipeline.Operation) pipeline.Entry {
		w := pipeline.Window{Header: pipeline.Header{From: at, To: at + 100*message}, Authors: []uint64{}, Sections: make([][]byte, shards+1)}
		for i, o := range ops {
			o.Position = at + message*pipeline.Position(10*(i+1))
			if o.Op == pipeline.OpRead {
				o.Mark, o.Looked = o.Position, pipeline.LookedFeed
			}
			s := &w.Sections[pipeline.ShardOf(o.ID, shards)]
			*s = pipeline.AppendOperation(*s, w.From, &o)
			if o.Op == pipeline.OpPost {
				w.Authors = append(w.Authors, o.ID)
			}
		}
		at, sequence = w.To, sequence+1
		return pipeline.Entry{Sequence: sequence, Window: pipeline.AppendWindow(nil, &w)}
	}
	hand := func(e pipeline.Entry) {
		t.Helper()
		if err := errors.Join(n.Hand(t.Context(), e), n.Settle(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(when string, feed uint64, want ...uint64) {
		t.Helper()
		var profiles query.Profiles
		if err := n.Profiles(t.Context(), []uint64{user}, nil, &profiles, true); err != nil || len(profiles.Missing) > 0 {
			t.Fatalf("%s: missing %v, %v", when, profiles.Missing, err)
		}
		var ids []uint64
		for _, f := range profiles.Rest[0].Followees {
			ids = append(ids, f.User)
		}
		if profiles.Users[0].Feed != feed || !slices.Equal(ids, want) || profiles.AsOf != at {
			t.Errorf("%s: %d posts here, asks for %v as of %d; want %d, %v, %d", when, profiles.Users[0].Feed, ids, profiles.AsOf, feed, want, at)
		}
		var unread query.Unreads
		if err := n.Unread(t.Context(), []uint64{user}, nil, &unread, true); err != nil || (len(unread.Missing) > 0) != (len(want) > 0) {
			t.Errorf("%s, this node alone: missing %v, %v", when, unread.Missing, err)
		}
	}
	post := func(author, post uint64) pipeline.Operation {
		return pipeline.Operation{Op: pipeline.OpPost, ID: author, Other: post}
	}
	read := pipeline.Operation{Op: pipeline.OpRead, ID: user}
	hand(window(post(there[0], 1)))
	hand(window(
		pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: here},
		pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: there[0]},
		pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: there[1]},
		pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: there[2]}))
	asks("they posted before they were followed", 0)
	hand(window(post(there[1], 2), post(here, 3)))
	asks("one posted", 1, there[1])
	hand(window())
	hand(window(read))
	asks("it was read", 0)
	hand(window(post(there[2], 4)))
	asks("another one posted", 0, there[2])
	hand(window())

	if n.Stats.Elsewhere.Load() == 0 || n.Stats.Quiet.Load() == 0 {
		t.Errorf("counted: %d elsewhere, %d quiet", n.Stats.Elsewhere.Load(), n.Stats.Quiet.Load())
	}
}
