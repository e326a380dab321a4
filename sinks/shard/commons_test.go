package shard_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

func newCommons(limits shard.ChannelLimits, state cold.State) *shard.Commons {
	return shard.NewCommons(1, shard.NewClock(100), state, []string{"system"}, []string{"games"}, limits)
}

// applyNotices hands over one window of operations, at the positions that they
// have, or one after the other.
func applyNotices(t testing.TB, c *shard.Commons, ops ...pipeline.Operation) {
	t.Helper()
	from := c.State().Applied
	w := &pipeline.Window{Header: pipeline.Header{From: from, To: from + pipeline.Position(len(ops)) + 1}, Sections: [][]byte{nil, nil}}
	for i := range ops {
		ops[i].Position = from + pipeline.Position(i) + 1
		w.Sections[1] = pipeline.AppendOperation(w.Sections[1], from, &ops[i])
	}
	if err := c.Apply(uint64(w.To), w, nil); err != nil {
		t.Fatal(err)
	}
}

func notice(channel string, id uint64) pipeline.Operation {
	return pipeline.Operation{Op: pipeline.OpNotice, ID: id, Channels: []string{channel}}
}

func withdraw(channel string, id uint64) pipeline.Operation {
	return pipeline.Operation{Op: pipeline.OpWithdraw, ID: id, Channels: []string{channel}}
}

func unreadOf(t testing.TB, c *shard.Commons, after pipeline.Position, names ...string) (out []uint64) {
	t.Helper()
	_, err := c.Unread(names, func(string) pipeline.Position { return after }, func(_ int, n uint64) { out = append(out, n) })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func saveCommons(t testing.TB, store *cold.Store, c *shard.Commons) {
	t.Helper()
	batch := store.Begin()
	c.HandOver(batch.Version())
	if err := c.Write(store, batch); err != nil {
		t.Fatal(err)
	}
	if err := batch.Commit(); err != nil {
		t.Fatal(err)
	}
	c.Settle(true)
	batch.Settle()
}

// Channels against plain lists, through checkpoints and restarts (STYLE 21).
func TestCommonsTwin(t *testing.T) {
	type listed struct {
		position pipeline.Position
		id       uint64
	}
	random := rand.New(rand.NewPCG(5, 6))
	limits := shard.ChannelLimits{Channels: 4, Notices: 150}
	store := openStore(t)
	c, want := newCommons(limits, cold.State{}), map[string][]listed{"system": nil, "games": nil}
	unopened, replaced := uint64(0), uint64(0)
	for step := range 600 {
		var ops []pipeline.Operation
		for i := range 1 + random.IntN(20) {
			name := []string{"system", "games", "a", "b", "c"}[random.IntN(5)]
			id := 1 + random.Uint64N(400)<<(20*(step%3))
			position := c.State().Applied + pipeline.Position(i) + 1
			list, open := want[name]
			at := slices.IndexFunc(list, func(l listed) bool { return l.id == id })
			if random.IntN(4) == 0 || step%100 > 80 {
				ops = append(ops, withdraw(name, id))
				if at >= 0 {
					if want[name] = slices.Delete(list, at, at+1); len(want[name]) == 0 && name != "system" && name != "games" {
						delete(want, name)
					}
				}
				continue
			}
			ops = append(ops, notice(name, id))
			switch {
			case at >= 0:
				continue
			case !open && len(want) >= limits.Channels:
				unopened++
				continue
			case len(list) >= limits.Notices:
				replaced++
				list = list[1:]
			}
			want[name] = append(list, listed{position, id})
		}
		applyNotices(t, c, ops...)
		switch step % 14 {
		case 0:
			saveCommons(t, store, c)
		case 5: // a commit that fails: what it had is handed over again
			c.HandOver(0)
			c.Settle(false)
		}
		if step%50 == 49 {
			state := c.State()
			saveCommons(t, store, c)
			c = newCommons(limits, state)
			if err := c.Load(store); err != nil {
				t.Fatal(err)
			}
			unopened, replaced = 0, 0
		}
		notices, dots, _ := c.Names()
		if got := len(notices) + len(dots); got != len(want) {
			t.Fatalf("step %d: %d channels, want %d", step, got, len(want))
		}
		after := pipeline.Position(random.Uint64N(uint64(c.State().Applied)))
		for name, list := range want {
			at, _ := slices.BinarySearchFunc(list, after+1, func(l listed, p pipeline.Position) int { return cmp.Compare(l.position, p) })
			if got := unreadOf(t, c, after, name); got[0] != uint64(len(list)-at) {
				t.Fatalf("step %d: %d unread in %s after %d, want %d", step, got[0], name, after, len(list)-at)
			}
		}
		if u, r := c.PassedOver(); u != unopened || r != replaced {
			t.Fatalf("step %d: %d passed over and %d taken out, want %d and %d", step, u, r, unopened, replaced)
		}
	}
}

// "Count them, pack them (tens of bytes, not 220)": what notices take is known,
// and little.
func TestNoticeBytes(t *testing.T) {
	for name, id := range map[string]func(i int) uint64{
		"ascending": func(i int) uint64 { return 1<<60 + uint64(i)*4096 },
		"random":    func(int) uint64 { return rand.Uint64() },
	} {
		const channels, each = 20, 4_000
		c, store := newCommons(shard.ChannelLimits{}, cold.State{}), openStore(t)
		for i := range each {
			var ops []pipeline.Operation
			for n := range channels {
				ops = append(ops, notice(fmt.Sprint("channel", n), id(i)))
			}
			if applyNotices(t, c, ops...); i%100 == 99 {
				saveCommons(t, store, c)
			}
		}
		state := c.State()
		if got := c.Bytes() / (channels * each); got > 40 || got < 8 {
			t.Errorf("%s: %d bytes for a notice", name, got)
		}
		c = newCommons(shard.ChannelLimits{}, state)
		if err := c.Load(store); err != nil {
			t.Fatal(err)
		}
		if got := c.Bytes() / (channels * each); got > 40 || got < 8 {
			t.Errorf("%s, loaded: %d bytes for a notice", name, got)
		}
	}
}

// A notice costs the same whatever the channel holds, and so does its end.
func BenchmarkNotice(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCommons(shard.ChannelLimits{}, cold.State{})
			id := uint64(0)
			for range n {
				id++
				applyNotices(b, c, notice("system", id))
			}
			c.HandOver(0)
			c.Settle(true)
			for b.Loop() {
				id++
				applyNotices(b, c, notice("system", id), withdraw("system", id-uint64(n)))
				if id%1024 == 0 {
					c.HandOver(0)
					c.Settle(true)
				}
			}
		})
	}
}

// "90,000 notices with 19-digit ids in one channel" stopped the channels, since
// bytes of a section were taken for rows: what a lane puts into one window is
// taken, and more is handed over before.
func TestNoticesFit(t *testing.T) {
	c := newCommons(shard.ChannelLimits{}, cold.State{})
	var ops []pipeline.Operation
	for i := range uint64(pipeline.SectionChangesMax / (1 + pipeline.NoticeDropsMax)) {
		ops = append(ops, notice("a-channel-with-a-name-of-sixty-four-bytes-0123456789012345678901", 1<<63+i))
	}
	w := &pipeline.Window{Header: pipeline.Header{To: pipeline.Position(len(ops))}, Sections: [][]byte{nil, nil}}
	for i := range ops {
		ops[i].Position = pipeline.Position(i) + 1
		w.Sections[1] = pipeline.AppendOperation(w.Sections[1], 0, &ops[i])
	}
	if !c.Fits(w, shard.SectionRowsMax) {
		t.Errorf("%d notices in %d bytes do not fit %d rows", len(ops), len(w.Sections[1]), shard.SectionRowsMax)
	}
	applyNotices(t, c, ops...)
	if c.Fits(w, shard.SectionRowsMax) {
		t.Error("as many more fit, while nothing was handed over")
	}
}

// "Changes is the most rows and entries that the operation changes": lanes cut
// windows by it, whatever a shard and the channels make of the operations.
func TestChangesBoundsWhatIsDirty(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	store := openStore(t, "user.following", "user.follower", "user.friend", "unread.follower")
	limits := shard.Limits{PostsMax: 5, PostsKept: 9, Retention: 3, Inactive: 100}
	clock := shard.NewClock(100)
	s, c := shard.New(0, store.Schema(), limits, clock, cold.State{}), newCommons(shard.ChannelLimits{Channels: 4, Notices: 6}, cold.State{})
	ops := []pipeline.Op{pipeline.OpFollow, pipeline.OpUnfollow, pipeline.OpFollowed, pipeline.OpUnfollowed, pipeline.OpPost, pipeline.OpPost, pipeline.OpUnpost, pipeline.OpRead}
	most := map[pipeline.Op]int{}
	for range 20_000 {
		o := pipeline.Operation{Op: ops[random.IntN(len(ops))], ID: 1 + random.Uint64N(3), Other: 10 + random.Uint64N(40)}
		if o.Op == pipeline.OpRead {
			o.Other = 0
			for range random.IntN(4) {
				o.Channels = append(o.Channels, fmt.Sprint("c", random.IntN(9)))
			}
		}
		at := s.State().Applied
		clock.Note([]pipeline.TimeMark{{Second: int64(at) / 400 * 50, Position: at + 1}})
		if err := s.Apply(s.State().Sequence+1, window(s, o), nil); err != nil {
			t.Fatal(err)
		}
		if s.Dirty() > o.Changes() {
			t.Fatalf("%+v made %d rows and entries dirty, at most %d", o, s.Dirty(), o.Changes())
		}
		most[o.Op] = max(most[o.Op], s.Dirty())
		s.HandOver(0)
		s.Settle(true)

		o = notice(fmt.Sprint("c", random.IntN(6)), 1+random.Uint64N(20))
		if random.IntN(4) == 0 {
			o.Op = pipeline.OpWithdraw
		}
		applyNotices(t, c, o)
		if c.Dirty() > o.Changes() {
			t.Fatalf("%+v made %d entries dirty, at most %d", o, c.Dirty(), o.Changes())
		}
		most[o.Op] = max(most[o.Op], c.Dirty())
		c.HandOver(0)
		c.Settle(true)
	}
	if most[pipeline.OpPost] < 1+pipeline.PostDropsMax || most[pipeline.OpFollowed] < 3 || most[pipeline.OpNotice] < 2 {
		t.Errorf("the most that were met: %v", most)
	}
}

// A channel costs those that are there nothing: names are listed again once a
// window, however many it opens and closes.
func TestChannelsOpenAndClose(t *testing.T) {
	c := newCommons(shard.ChannelLimits{Channels: 100}, cold.State{})
	want := map[string]bool{"system": true}
	random := rand.New(rand.NewPCG(9, 1))
	for range 300 {
		var ops []pipeline.Operation
		for range random.IntN(12) {
			name := fmt.Sprint("c", random.IntN(30))
			if want[name] {
				ops = append(ops, withdraw(name, 1))
			} else {
				ops = append(ops, notice(name, 1))
			}
			want[name] = !want[name]
		}
		before, _, _ := c.Names()
		held := slices.Clone(before)
		applyNotices(t, c, ops...)
		if !slices.Equal(before, held) {
			t.Fatal("the list that an answer holds was changed")
		}
		var names []string
		for name, open := range want {
			if open {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if got, _, _ := c.Names(); !slices.Equal(got, names) {
			t.Fatalf("channels %q, want %q", got, names)
		}
	}
}
