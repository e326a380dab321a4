package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// holder is a member that is up and can hold.
func holder(name, zone string, weight int) State {
	return State{Member: &Member{Node: name, Session: "s", Roles: Route | Hold | Answer, Zone: zone, Weight: weight, Shards: pipeline.ShardsMax}}
}

func holders(n int) (members []State) {
	for i := range n {
		members = append(members, holder(fmt.Sprintf("node%d", i), "", 1))
	}
	return members
}

func loads(a Assignment) map[string]int {
	load := make(map[string]int)
	for _, holders := range a.ByShard {
		for _, name := range holders {
			load[name]++
		}
	}
	return load
}

// gained counts the copies that nodes have in b and had not in a.
func gained(a, b Assignment) map[string]int {
	got := make(map[string]int)
	for s, holders := range b.ByShard {
		for _, name := range holders {
			if s >= len(a.ByShard) || !slices.Contains(a.ByShard[s], name) {
				got[name]++
			}
		}
	}
	return got
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Where shards go must not change unnoticed: with another hash every cluster
// would move everything.
func TestDistanceGolden(t *testing.T) {
	var got []uint64
	for _, s := range []pipeline.Shard{0, 1, 63, 4095} {
		got = append(got, distance(nameHash("a"), s), distance(nameHash("node-with_a-longer-name"), s))
	}
	want := []uint64{5590560536, 35564819, 9947272255, 1211099503, 5426939742, 12437413322, 2676040978, 15264564409}
	if !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
	members := []State{holder("a", "x", 1), holder("b", "y", 1), holder("c", "z", 2)}
	text := ""
	for _, h := range Decide(Assignment{}, members, Options{Shards: 24, Replicas: 2}).ByShard {
		text += strings.Join(h, "") + " "
	}
	if want := "cb bc ac ab ac ba cb cb bc ca cb cb bc ca ca ca cb ca bc ca ca ac cb ca "; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestLog2(t *testing.T) {
	for range 100_000 {
		x := rand.Uint64() >> rand.IntN(64)
		if x == 0 {
			continue
		}
		want := math.Log2(float64(x))
		if got := float64(log2(x)) / (1 << logBits); math.Abs(got-want) > 1e-9 {
			t.Fatalf("log2(%d) is %v, want %v", x, got, want)
		}
	}
}

// A holder that is away keeps what it has until replace_after, and gets nothing.
func TestReplaceAfter(t *testing.T) {
	o := Options{Shards: 64, Replicas: 2, ReplaceAfter: 10 * time.Minute}
	members := holders(4)
	a := Decide(Assignment{}, members, o)
	members[1].Status, members[1].Unseen = Away, o.ReplaceAfter
	if next := Decide(a, members, o); !next.same(&a) || next.Epoch != a.Epoch {
		t.Error("a holder that is away for replace_after is replaced")
	}
	members[1].Unseen++
	next := Decide(a, members, o)
	if got, lost := sum(gained(a, next)), loads(a)["node1"]; got != lost || loads(next)["node1"] != 0 || next.Epoch != a.Epoch+1 {
		t.Errorf("it had %d, %d were placed again, it has %d", lost, got, loads(next)["node1"])
	}
	members[0].Status, members[2].Status, members[3].Status = Away, Away, Away
	for i := range members {
		members[i].Unseen = time.Hour
	}
	if after := Decide(next, members, o); !after.same(&next) || after.Epoch != next.Epoch {
		t.Error("nobody can hold, and the assignment changes")
	}
}

// Who has been drained and still has everything gets back what it had.
func TestUndrained(t *testing.T) {
	o := Options{Shards: 64, Replicas: 1}
	members := holders(4)
	a := Decide(Assignment{}, members, o)
	had := a.HeldSet("node2")
	members[2].Status, members[2].Drained = Draining, true
	drained := Decide(a, members, o)
	if n := loads(drained)["node2"]; n != 0 {
		t.Errorf("a drained node holds %d", n)
	}
	members[2] = holder("node2", "", 1)
	members[2].Ready = had
	back := Decide(drained, members, o)
	again := back.HeldSet("node2")
	for s := range again.All() {
		if !had.Has(s) {
			t.Errorf("it gets shard %d, which it had not, and has others ready", s)
		}
	}
	if again.Len() != had.Len() {
		t.Errorf("it had %d and gets %d", had.Len(), again.Len())
	}
}

// Everything that Decide promises, over random lives of random clusters.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Shards:       rapid.SampledFrom([]int{1, 2, 7, 16, 64, 100, 257}).Draw(t, "shards"),
			Replicas:     rapid.IntRange(1, ReplicasMax).Draw(t, "replicas"),
			ReplaceAfter: time.Minute,
		}
		zones := rapid.IntRange(1, 4).Draw(t, "zones")
		members := make(map[string]State)
		var a Assignment
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				change(t, members, zones, &o)
			}
			list := make([]State, 0, len(members))
			for _, m := range members { // in any order
				list = append(list, m)
			}
			next := Decide(a, list, o)
			checkDecision(t, a, next, list, o)
			slices.SortFunc(list, func(a, b State) int { return strings.Compare(b.Node, a.Node) })
			if other := Decide(a, list, o); !other.same(&next) || other.Epoch != next.Epoch {
				t.Fatal("the same members in another order give another assignment")
			}
			if again := Decide(next, list, o); !again.same(&next) || again.Epoch != next.Epoch {
				t.Fatal("deciding again changes something")
			}
			a = next
		}
	})
}

func change(t *rapid.T, members map[string]State, zones int, o *Options) {
	name := fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "node"))
	m, there := members[name]
	switch kind := rapid.IntRange(0, 9).Draw(t, "change"); {
	case !there || kind == 0:
		zone := fmt.Sprintf("z%d", rapid.IntRange(1, zones).Draw(t, "zone"))
		m = holder(name, zone, rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3, 10}).Draw(t, "weight"))
		for range rapid.IntRange(0, 3).Draw(t, "ready") {
			m.Ready.Add(pipeline.Shard(rapid.IntRange(0, o.Shards-1).Draw(t, "shard")))
		}
	case kind <= 2:
		delete(members, name)
		return
	case kind <= 4:
		m.Status, m.Unseen = Away, rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "unseen")
	case kind <= 6:
		m.Status, m.Unseen, m.Drained = Up, 0, false
	case kind == 7:
		m.Drained = true
		if m.Status == Up {
			m.Status = Draining
		}
	case kind == 8:
		o.Replicas = rapid.IntRange(1, ReplicasMax).Draw(t, "replicas")
	case kind == 9:
		another := *m.Member
		another.Roles = rapid.SampledFrom([]Roles{Route | Hold, Answer, Hold}).Draw(t, "roles")
		m.Member = &another
	}
	members[name] = m
}

// checkDecision holds a decision to what Decide says, by its words.
func checkDecision(t *rapid.T, before, after Assignment, members []State, o Options) {
	can := make(map[string]State)
	away := false
	zones := make(map[string]int)
	for _, m := range members {
		if m.Roles.Has(Hold) && m.Weight > 0 && !m.Drained && !(m.Status == Away && m.Unseen > o.ReplaceAfter) {
			can[m.Node] = m
			zones[m.Zone]++
			away = away || m.Status == Away
		}
	}
	if len(can) == 0 {
		if !after.same(&before) || after.Epoch != before.Epoch {
			t.Fatal("nobody can hold, and the assignment changes")
		}
		return
	}
	if changed := !after.same(&before); changed && after.Epoch != before.Epoch+1 || !changed && after.Epoch != before.Epoch {
		t.Fatalf("epoch %d after epoch %d, changed: %t", after.Epoch, before.Epoch, changed)
	}
	replicas := min(o.Replicas, len(can))
	inZoneMax := 1
	for room := 0; ; inZoneMax++ {
		room = 0
		for _, n := range zones {
			room += min(n, inZoneMax)
		}
		if room >= replicas {
			break
		}
	}
	for s, holders := range after.ByShard {
		inZone := make(map[string]int)
		for i, name := range holders {
			m, ok := can[name]
			if !ok || slices.Contains(holders[:i], name) {
				t.Fatalf("shard %d is held by %v", s, holders)
			}
			inZone[m.Zone]++
			if had := s < len(before.ByShard) && slices.Contains(before.ByShard[s], name); m.Status == Away && !had {
				t.Fatalf("shard %d is given to %s, which is away", s, name)
			}
			if inZone[m.Zone] > inZoneMax {
				t.Fatalf("shard %d is held by %v, %d of zone %s", s, holders, inZone[m.Zone], m.Zone)
			}
		}
		if len(holders) > replicas || len(holders) < replicas && !away {
			t.Fatalf("shard %d is held by %v, must be %d", s, holders, replicas)
		}
	}
	if away {
		return
	}
	load := loads(after)
	for name, share := range naiveShares(can, o.Shards, replicas, inZoneMax) {
		const round = 1e-6
		most := max(math.Ceil(share-round), math.Floor(1.15*share+round))
		least := min(math.Floor(share+round), math.Ceil(0.85*share-round))
		if n := float64(load[name]); n > most || n < least {
			t.Fatalf("%s holds %v, its share is %v", name, n, share)
		}
	}
}

// naiveShares pours copies, in steps that get smaller, into nodes in proportion
// to their weights until they or their zones are full.
func naiveShares(can map[string]State, shards, replicas, inZoneMax int) map[string]float64 {
	zones := make(map[string][]State)
	for _, m := range can {
		zones[m.Zone] = append(zones[m.Zone], m)
	}
	fillTo := func(nodes []State, level float64) (total float64) {
		for _, m := range nodes {
			total += min(float64(shards), level*float64(m.Weight))
		}
		return total
	}
	bisect := func(total func(level float64) float64, want float64) float64 {
		low, high := 0.0, 2*float64(shards)
		for range 200 {
			if middle := (low + high) / 2; total(middle) < want {
				low = middle
			} else {
				high = middle
			}
		}
		return high
	}
	room := func(nodes []State) float64 { return float64(shards * min(len(nodes), inZoneMax)) }
	level := bisect(func(level float64) (total float64) {
		for _, nodes := range zones {
			total += min(room(nodes), fillTo(nodes, level))
		}
		return total
	}, float64(shards*replicas))
	out := make(map[string]float64)
	for _, nodes := range zones {
		own := level
		if fillTo(nodes, level) > room(nodes) {
			own = bisect(func(l float64) float64 { return fillTo(nodes, l) }, room(nodes))
		}
		for _, m := range nodes {
			out[m.Node] = min(float64(shards), own*float64(m.Weight))
		}
	}
	return out
}

// What a change of one member may move at most: what it had, or gets, and what
// brings others back into their bounds. Without zones, nobody away.
func TestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Shards: rapid.SampledFrom([]int{16, 64, 256}).Draw(t, "shards"), Replicas: rapid.IntRange(1, 3).Draw(t, "replicas")}
		var a Assignment
		members := make(map[string]State)
		list := func() (all []State) {
			for _, m := range members {
				all = append(all, m)
			}
			return all
		}
		for range rapid.IntRange(2, 15).Draw(t, "steps") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 9).Draw(t, "node"))
			_, there := members[name]
			if there && len(members) > o.Replicas {
				delete(members, name)
			} else if !there {
				members[name] = holder(name, "", rapid.IntRange(1, 4).Draw(t, "weight"))
			}
			if a.Epoch == 0 {
				a = Decide(a, list(), o)
				continue
			}
			next := Decide(a, list(), o)
			got, had := gained(a, next), loads(a)
			outside := 0 // what others hold above their bounds, or lack below them, once the change is made
			p := newPlacing(candidates(list(), o), o)
			for n, c := range p.nodes {
				share, load := p.shares[n], had[c.name]
				outside += max(0, load-share.most())
				if c.name != name && load < share.least() {
					outside += share.floor() - load
				}
			}
			_, up := members[name]
			switch {
			case len(members) <= o.Replicas: // more copies, not other ones
			case up && !there && sum(got)-got[name] > outside:
				t.Fatalf("%s joins, others get %v, %d were outside their bounds", name, got, outside)
			case !up && sum(got) > 2*had[name]+outside: // what finds no room moves another one: seen with unequal weights
				t.Fatalf("%s leaves with %d, others get %v, %d were outside their bounds", name, had[name], got, outside)
			}
			a = next
		}
	})
}

// BenchmarkDecide is what a decision costs: the first one, one that changes
// nothing, and one after a node has joined.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct{ shards, nodes, replicas int }{{64, 4, 2}, {256, 16, 2}, {4096, 100, 3}} {
		o := Options{Shards: c.shards, Replicas: c.replicas}
		members := holders(c.nodes + 1)
		first := Decide(Assignment{}, members[:c.nodes], o)
		for name, run := range map[string]func(){
			"first":   func() { Decide(Assignment{}, members[:c.nodes], o) },
			"nothing": func() { Decide(first, members[:c.nodes], o) },
			"joined":  func() { Decide(first, members, o) },
		} {
			b.Run(fmt.Sprintf("shards=%d/nodes=%d/replicas=%d/%s", c.shards, c.nodes, c.replicas, name), func(b *testing.B) {
				for b.Loop() {
					run()
				}
			})
		}
	}
}
