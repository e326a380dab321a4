package shard_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// window is the next one of a shard, with one section.
func window(s *shard.Shard, operations ...pipeline.Operation) *pipeline.Window {
	from := s.State().Applied
	w := &pipeline.Window{Header: pipeline.Header{From: from, To: from + max(10, pipeline.Position(len(operations))+1)}, Sections: make([][]byte, 2)}
	for i := range operations {
		operations[i].Position = from + pipeline.Position(i) + 1
		operations[i].Mark = operations[i].Position
		w.Sections[0] = pipeline.AppendOperation(w.Sections[0], from, &operations[i])
	}
	return w
}

func newCommons(limits shard.ChannelLimits, state shard.State) *shard.Commons {
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

// noticeDisk is a dumb disk of channels and log time.
type noticeDisk struct {
	shard.Sink
	notices map[string]map[uint64]pipeline.Position
	seconds map[int64]pipeline.Position
}

func (d *noticeDisk) Notice(channel string, notice uint64, position pipeline.Position) {
	if d.notices[channel] == nil {
		d.notices[channel] = map[uint64]pipeline.Position{}
	}
	if delete(d.notices[channel], notice); position > 0 {
		d.notices[channel][notice] = position
	}
}

func (d *noticeDisk) Second(second int64, position pipeline.Position) {
	if delete(d.seconds, second); position > 0 {
		d.seconds[second] = position
	}
}

func (d *noticeDisk) State(shard.State) {}

func newNoticeDisk() *noticeDisk {
	return &noticeDisk{notices: map[string]map[uint64]pipeline.Position{}, seconds: map[int64]pipeline.Position{}}
}

// save is a checkpoint that succeeds.
func (d *noticeDisk) save(c *shard.Commons) {
	c.HandOver()
	c.Write(d)
	c.Settle(true, func() {})
}

// open is channels as they are on the disk.
func (d *noticeDisk) open(t testing.TB, limits shard.ChannelLimits, state shard.State) *shard.Commons {
	t.Helper()
	c, live := newCommons(limits, state), shard.Live{}
	for channel, notices := range d.notices {
		for notice, position := range notices {
			live.Add(channel, notice, position)
		}
	}
	if err := c.Notices(live); err != nil {
		t.Fatal(err)
	}
	return c
}

// handedOver is a checkpoint whose changes nobody keeps.
func handedOver(u interface {
	HandOver()
	Settle(committed bool, publish func())
}, committed bool,
) {
	u.HandOver()
	u.Settle(committed, func() {})
}

// Channels against plain lists, through checkpoints and restarts (STYLE 21).
func TestCommonsTwin(t *testing.T) {
	type listed struct {
		position pipeline.Position
		id       uint64
	}
	random := rand.New(rand.NewPCG(5, 6))
	limits := shard.ChannelLimits{Channels: 4, Notices: 150}
	disk := newNoticeDisk()
	c, want := newCommons(limits, shard.State{}), map[string][]listed{"system": nil, "games": nil}
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
		before, _, _ := c.Names()
		answer := slices.Clone(before)
		applyNotices(t, c, ops...)
		if !slices.Equal(before, answer) {
			t.Fatal("the list that an answer holds was changed")
		}
		switch step % 14 {
		case 0:
			disk.save(c)
		case 5: // a commit that fails: what it had is handed over again
			handedOver(c, false)
		}
		if step%50 == 49 {
			state := c.State()
			disk.save(c)
			c = disk.open(t, limits, state)
			unopened, replaced = 0, 0
		}
		notices, dots, _ := c.Names()
		if got := slices.Sorted(slices.Values(slices.Concat(notices, dots))); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("step %d: channels %q, want %q", step, got, slices.Sorted(maps.Keys(want)))
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

// Notices are counted and packed: tens of bytes, not 220: what notices take is known, and
// little.
func TestNoticeBytes(t *testing.T) {
	for name, id := range map[string]func(i int) uint64{
		"ascending": func(i int) uint64 { return 1<<60 + uint64(i)*4096 },
		"random":    func(int) uint64 { return rand.Uint64() },
	} {
		const channels, each = 20, 2_000
		c, disk := newCommons(shard.ChannelLimits{}, shard.State{}), newNoticeDisk()
		for i := range each {
			var ops []pipeline.Operation
			for n := range channels {
				ops = append(ops, notice(fmt.Sprint("channel", n), id(i)))
			}
			if applyNotices(t, c, ops...); i%100 == 99 {
				disk.save(c)
			}
		}
		state := c.State()
		if got := c.Bytes() / (channels * each); got > 40 || got < 8 {
			t.Errorf("%s: %d bytes for a notice", name, got)
		}
		c = disk.open(t, shard.ChannelLimits{}, state)
		if got := c.Bytes() / (channels * each); got > 40 || got < 8 {
			t.Errorf("%s, loaded: %d bytes for a notice", name, got)
		}
	}
}

// Two commons apply the same windows; one of them a notice more, which pushes the oldest out of a
// full channel and opens a channel. Once that is corrected they are the same, in memory and on
// disk, and go on alike. What has changed since it was compared stays.
func TestCorrect(t *testing.T) {
	limits := shard.ChannelLimits{Channels: 8, Notices: 2}
	right, wrong, disks := newCommons(limits, shard.State{}), newCommons(limits, shard.State{}), []*noticeDisk{newNoticeDisk(), newNoticeDisk()}
	applyNotices(t, right, notice("system", 1), notice("system", 2), withdraw("other", 9), withdraw("other", 9))
	applyNotices(t, wrong, notice("system", 1), notice("system", 2), notice("system", 9), notice("other", 9))
	same := func() {
		t.Helper()
		disks[0].save(right)
		disks[1].save(wrong)
		for _, name := range []string{"system", "other"} {
			want, _, _ := right.List(name)
			if got, _, err := wrong.List(name); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v, %v", name, got, want, err)
			}
			if got, want := disks[1].notices[name], disks[0].notices[name]; !maps.Equal(got, want) {
				t.Errorf("%s on disk: %v, want %v", name, got, want)
			}
		}
		if got, _, _ := wrong.Names(); !slices.Equal(got, []string{"system"}) {
			t.Errorf("channels %v", got)
		}
	}
	disks[1].save(wrong)
	if n := wrong.Correct([]shard.Correction{{"system", 2, 7, 0}, {"system", 5, 5, 0}, {"nowhere", 5, 5, 0}}); n != 0 {
		t.Errorf("%d notices are corrected that are not where it was said", n)
	}
	if n := wrong.Correct([]shard.Correction{{"system", 1, 0, 1}, {"system", 9, 3, 0}, {"other", 9, 4, 0}}); n != 3 {
		t.Errorf("%d of 3 are corrected", n)
	}
	same()
	for _, c := range []*shard.Commons{right, wrong} {
		applyNotices(t, c, notice("system", 3), withdraw("system", 2), notice("system", 4))
	}
	same()
	if n := wrong.Correct([]shard.Correction{{"system", 1, 0, 1}}); n != 0 {
		t.Error("a notice is put back that newer ones have pushed out")
	}
	same()
}

// A notice costs the same whatever the channel holds, and so does its end.
func BenchmarkNotice(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCommons(shard.ChannelLimits{}, shard.State{})
			id := uint64(0)
			for range n {
				id++
				applyNotices(b, c, notice("system", id))
			}
			handedOver(c, true)
			for b.Loop() {
				id++
				applyNotices(b, c, notice("system", id), withdraw("system", id-uint64(n)))
				if id%1024 == 0 {
					handedOver(c, true)
				}
			}
		})
	}
}

// "Changes is the most rows and entries that the operation changes": lanes cut
// windows by it, whatever a shard and the channels make of the operations.
func TestChangesBoundsWhatIsDirty(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	schema := schemaOf(t, "user.following", "user.follower", "user.friend", "unread.follower")
	limits := shard.Limits{PostsMax: 5, PostsKept: 9, Retention: 3, Inactive: 100}
	clock := shard.NewClock(100)
	s, c := shard.New(0, schema, limits, clock, shard.State{}), newCommons(shard.ChannelLimits{Channels: 4, Notices: 6}, shard.State{})
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
		handedOver(s, true)

		o = notice(fmt.Sprint("c", random.IntN(6)), 1+random.Uint64N(20))
		if random.IntN(4) == 0 {
			o.Op = pipeline.OpWithdraw
		}
		applyNotices(t, c, o)
		if c.Dirty() > o.Changes() {
			t.Fatalf("%+v made %d entries dirty, at most %d", o, c.Dirty(), o.Changes())
		}
		most[o.Op] = max(most[o.Op], c.Dirty())
		handedOver(c, true)
	}
	if most[pipeline.OpPost] < 1+pipeline.PostDropsMax || most[pipeline.OpFollowed] < 3 || most[pipeline.OpNotice] < 2 {
		t.Errorf("the most that were met: %v", most)
	}
}

// Stored notices that no log can have led to are damage that is named; to go on
// with them would be a panic when one is withdrawn.
func TestStoredNoticesThatCannotBe(t *testing.T) {
	const applied = 100
	for name, positions := range map[string][]pipeline.Position{
		"two at one position":      {7, 7},
		"behind what is applied":   {7, applied + 1},
		"none that is wrong":       {7, 8},
		"the last one, and before": {applied, applied - 1},
	} {
		t.Run(name, func(t *testing.T) {
			live := shard.Live{}
			for i, p := range positions {
				live.Add("news", uint64(i+1), p)
			}
			err := newCommons(shard.ChannelLimits{}, shard.State{Applied: applied, Sequence: 1}).Notices(live)
			wrong := positions[0] == positions[1] || positions[1] > applied
			if errors.Is(err, shard.ErrStored) != wrong || wrong == (err == nil) {
				t.Errorf("positions %v: %v", positions, err)
			}
		})
	}
}
