package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	testBeat   = time.Second
	testExpiry = 5 * time.Second
)

// desk is a roster and the time.
type desk struct {
	*testing.T
	*Roster
	now      time.Time
	revision uint64
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, Roster: NewRoster(testBeat, testExpiry), now: time.Unix(1000, 0)}
	d.begin(1)
	d.Listed()
	return d
}

func (d *desk) begin(bucket int64) { d.Begin(d.now, time.Unix(bucket, 0)) }

func (d *desk) put(key string, value []byte, deleted bool) error {
	d.revision++
	return d.Take(d.now, Entry{Key: key, Revision: d.revision, Value: value, Deleted: deleted})
}

// beat has nodes write their keys.
func (d *desk) beat(nodes ...string) {
	d.Helper()
	for _, node := range nodes {
		m := someMember()
		m.Node = node
		b, err := m.Encode()
		if err == nil {
			err = d.put(MemberPrefix+node, b, false)
		}
		if err != nil {
			d.Fatal(err)
		}
	}
}

// beats goes on for n beats.
func (d *desk) beats(n int, nodes ...string) {
	d.Helper()
	for range n {
		d.now = d.now.Add(testBeat)
		d.beat(nodes...)
	}
}

func (d *desk) sees(want ...string) *View {
	d.Helper()
	v := d.View(d.now)
	var is []string
	for _, m := range v.Members {
		is = append(is, m.Node+" "+m.Status.String())
	}
	if !slices.Equal(is, want) {
		d.Fatalf("sees %v, want %v", is, want)
	}
	return v
}

func TestRosterSilence(t *testing.T) {
	d := newDesk(t)
	d.beat("a", "b")
	d.beats(4, "a")
	d.sees("a up", "b up")
	d.beats(1, "a")
	if m, _ := d.sees("a up", "b away").Member("b"); m.Unseen != testExpiry {
		t.Errorf("away after %v", m.Unseen)
	}
	d.beats(1, "a", "b")
	d.sees("a up", "b up")

	// Cut off for an hour: nobody has been heard to be silent.
	d.now = d.now.Add(time.Hour)
	d.sees("a up", "b up")
	if silent := d.Silent(d.now); silent != time.Hour {
		t.Errorf("nothing heard for %v", silent)
	}
	d.begin(1)
	d.beat("a") // b's is the same as before
	if err := d.Take(d.now, Entry{Key: MemberPrefix + "b", Revision: d.revision - 1, Value: d.encoded("b")}); err != nil {
		t.Fatal(err)
	}
	d.Listed()
	d.sees("a up", "b up")
	d.beats(4, "a")
	d.sees("a up", "b away")
}

func (d *desk) encoded(node string) []byte {
	m := someMember()
	m.Node = node
	b, err := m.Encode()
	if err != nil {
		d.Fatal(err)
	}
	return b
}

func TestRosterListings(t *testing.T) {
	d := newDesk(t)
	d.beat("a", "b", "c")
	if err := d.put(DrainPrefix+"a", nil, false); err != nil {
		t.Fatal(err)
	}
	d.sees("a draining", "b up", "c up")

	d.begin(1) // the same bucket: who is not in it any more is gone
	d.beat("a", "b")
	_ = d.put(MemberPrefix+"b", []byte("oops"), false) // is there, though somebody has written over it
	d.Listed()
	d.sees("a up", "b up")

	d.beats(5, "a", "b")
	if !d.View(d.now).Settled {
		t.Error("an expiry is over, and it is not settled")
	}
	d.begin(2) // another one: who is not in it has not had the time
	d.beat("a")
	d.Listed()
	if v := d.sees("a up", "b up"); v.Settled || v.Stored || v.Revision != 0 {
		t.Errorf("a new bucket: %+v", v)
	}
	// Somebody deletes keys: one who is there writes its own again.
	d.beats(1, "b")
	for _, node := range []string{"a", "b", "c"} {
		if err := d.put(MemberPrefix+node, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	d.sees("a up", "b up")
	d.beats(4, "b")
	d.sees("a away", "b up")
	if err := d.put(MemberPrefix+"a", nil, true); err != nil {
		t.Fatal(err)
	}
	d.sees("b up")
}

func TestRosterIgnores(t *testing.T) {
	d := newDesk(t)
	for range 2 { // they are there
		for i := range NodesMax {
			d.beat(fmt.Sprint("n", i))
		}
	}
	err := d.put(MemberPrefix+"one-more", d.encoded("one-more"), false)
	if !errors.Is(err, ErrIgnored) || !strings.Contains(err.Error(), "1000 members") {
		t.Errorf("one too many: %v", err)
	}
	layout := d.View(d.now).Layout
	for key, value := range map[string]string{
		AssignmentKey: "oops", DegradeKey: `{"reads":"all"}`, DrainPrefix + "a b": "{}", MemberPrefix + "n1": `{"node":"n1"}`,
	} {
		if err := d.put(key, []byte(value), false); !errors.Is(err, ErrIgnored) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if v := d.View(d.now); len(v.Members) != NodesMax || v.Degrade != Normal || v.Layout != layout || len(v.Drained) != 0 {
		t.Errorf("something is believed: %+v", v.Degrade)
	}
}

// Of two assignments the one of the higher epoch holds, in whatever order they come.
func TestHigherEpochHolds(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		epoch, acts uint64
		want        error
	}{
		{7, 7, nil}, {9, 9, nil}, {8, 9, ErrIgnored}, {10, 10, nil},
	} {
		a := Assignment{Epoch: c.epoch, Replicas: 1, ByShard: [][]string{{"a"}}}
		value, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.put(AssignmentKey, value, false); !errors.Is(err, c.want) {
			t.Errorf("epoch %d: %v", c.epoch, err)
		}
		if v := d.View(d.now); v.Assignment.Epoch != c.acts || v.Stored != (c.want == nil) {
			t.Errorf("after epoch %d it acts on %d, stored: %t", c.epoch, v.Assignment.Epoch, v.Stored)
		}
	}
}

func shardSet(shards ...pipeline.Shard) (set ShardSet) {
	for _, s := range shards {
		set.Add(s)
	}
	return set
}

// Moving: the old holder answers, and keeps what it has, until all new ones do.
func TestAnsweringAndLetGo(t *testing.T) {
	a, b, c := holder("a", "", 1), holder("b", "", 1), holder("c", "", 1)
	a.Ready, b.Ready = shardSet(0, 1), shardSet(1)
	b.Epoch, c.Epoch = 2, 2
	v := &View{Members: []State{a, b, c}, Assignment: Assignment{Epoch: 2, Replicas: 2, ByShard: [][]string{{"c", "b"}, {"b", "a"}, {"c"}}}}
	answering := func(s pipeline.Shard, want ...string) {
		t.Helper()
		if got := v.Answering(s); !slices.Equal(got, want) {
			t.Errorf("shard %d: %v answer, want %v", s, got, want)
		}
	}
	letsGo := func(want string) {
		t.Helper()
		if got := v.LetGo("a", shardSet(0, 1)); got.String() != want {
			t.Errorf("a lets go %q, want %q", got, want)
		}
	}
	answering(0, "a")
	answering(1, "b", "a")
	answering(2)
	letsGo("")
	b.Ready.Add(0)
	answering(0, "b", "a")
	letsGo("")
	c.Ready.Add(0)
	answering(0, "c", "b", "a")
	letsGo("0")
	c.Epoch = 1 // it may be letting go itself, because this node has the shard
	letsGo("")
	c.Epoch, c.Behind = 2, true
	letsGo("")
	answering(0, "b", "a")
	if got := v.Behind(0); !slices.Equal(got, []string{"c"}) {
		t.Errorf("%v are behind, want c", got)
	}
	a.Behind, b.Behind = true, true
	answering(0, "c", "b", "a")
	if got := v.Behind(0); got != nil {
		t.Errorf("%v are behind, and answering", got)
	}
	a.Behind, b.Behind, c.Behind = false, false, false
	v.Members[2].Status = Away
	answering(0, "b", "a")
	letsGo("")
	v.Members[0].Status = Draining // answers all the same
	answering(1, "b", "a")
}

// "Two nodes never give up the last copies of a shard, each because the
// other has it": whatever they have seen of each other, and of what is assigned.
func TestNobodyLetsGoOfTheLast(t *testing.T) {
	to := func(epoch uint64, node string) Assignment {
		return Assignment{Epoch: epoch, Replicas: 1, ByShard: [][]string{{node}}}
	}
	a, b := holder("a", "", 1), holder("b", "", 1)
	a.Ready, b.Ready = shardSet(0), shardSet(0)
	a.Epoch, b.Epoch = 1, 1
	// b has been assigned the shard, and a has not seen yet that it is a's again.
	before := &View{Members: []State{a, b}, Assignment: to(1, "b")}
	if set := before.LetGo("a", a.Ready); !set.Has(0) {
		t.Error("a keeps what it need not")
	}
	after := &View{Members: []State{a, b}, Assignment: to(2, "a")}
	if set := after.LetGo("b", b.Ready); set.Has(0) {
		t.Error("b lets go, and a does too")
	}
	a.Epoch = 2 // said by who knows that it is to keep it
	if set := after.LetGo("b", b.Ready); !set.Has(0) {
		t.Error("b keeps what it need not")
	}
}

// A shard for which nobody answers is not derived while a node that has it is
// away for a moment, or starts.
func TestMayHave(t *testing.T) {
	me, other := holder("me", "", 1), holder("other", "", 1)
	me.Epoch, other.Epoch = 3, 3
	v := &View{Members: []State{me, other}}
	for _, step := range []struct {
		what   string
		change func(*State)
		want   bool
	}{
		{"it is up and does not have it", func(*State) {}, false},
		{"it starts", func(m *State) { m.Epoch = 0 }, true},
		{"it starts, was the last heard of it", func(m *State) { m.Status = Away }, false},
		{"it is away and had it", func(m *State) { m.Epoch, m.Ready = 3, shardSet(5) }, true},
		{"it had another one", func(m *State) { m.Ready = shardSet(6) }, false},
		{"it stopped in order", func(m *State) { m.Ready, m.Stopped = shardSet(5), true }, true},
		{"it is replaced", func(m *State) { m.Unseen = time.Hour }, false},
	} {
		step.change(&v.Members[1])
		if got := v.MayHave(5, "me", time.Minute); got != step.want {
			t.Errorf("%s: %t", step.what, got)
		}
	}
}

func TestNext(t *testing.T) {
	o := Options{Shards: 8, Replicas: 1, ReplaceAfter: time.Minute}
	members := holders(2)
	fresh := &View{Members: members}
	first, ok := fresh.Next(o)
	if !ok || first.Epoch != 1 || first.Shards() != 8 {
		t.Fatalf("a new cluster: %+v, %t", first, ok)
	}
	stored := &View{Members: members, Assignment: first, Stored: true, Revision: 7}
	if next, ok := stored.Next(o); ok {
		t.Errorf("nothing has changed: %+v", next)
	}
	lost := &View{Members: members, Assignment: first}
	if next, ok := lost.Next(o); !ok || next.Epoch != 2 || !next.same(&first) {
		t.Errorf("it is not written again: %+v", next)
	}
	if _, ok := (&View{}).Next(o); ok {
		t.Error("nobody is there, and it decides")
	}
	// A holder of the assignment has not been heard of: it may be about to beat.
	alone := &View{Members: members[:1], Assignment: first, Stored: true}
	if next, ok := alone.Next(o); ok {
		t.Errorf("it does not wait: %+v", next)
	}
	alone.Settled = true
	if next, ok := alone.Next(o); !ok || len(next.Held("node0")) != 8 {
		t.Errorf("it waits for ever: %+v", next)
	}
	// The bucket and who decided are gone: what nodes hold takes the place of what was assigned.
	a, b := holder("a", "", 1), holder("b", "", 1)
	for i, m := range []State{a, b} {
		m.Epoch, m.Shards = 41, 8
		for s := range pipeline.Shard(4) {
			m.Ready.Add(s + pipeline.Shard(4*i))
		}
	}
	reports := &View{Members: []State{a, b}, Settled: true}
	next, ok := reports.Next(o)
	if !ok || next.Epoch <= 41 {
		t.Fatalf("epoch %d, %t", next.Epoch, ok)
	}
	for s, holders := range next.ByShard {
		if want := [2]string{"a", "b"}[s/4]; holders[0] != want {
			t.Errorf("shard %d, which %s has, goes to %v", s, want, holders)
		}
	}
}
