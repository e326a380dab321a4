package generation_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

var (
	simSeeds = flag.Int("generation.seeds", 150, "how many histories are simulated")
	simSeed  = flag.Uint64("generation.seed", 0, "simulate this one alone")
)

// look checks what must hold at every moment.
func (w *world) look() {
	for number, f := range w.facts {
		f.caught = f.caught || w.allCaught(number)
	}
	for _, n := range w.nodes {
		own := n.own
		f := w.facts[own.Serving]
		switch {
		case f == nil:
			w.broken("%s obeys what no node wrote: generation %d serves", n.name, own.Serving)
		case !f.caught:
			w.broken("generation %d serves at %s and has not caught up", own.Serving, n.name)
		case !f.compared:
			w.broken("generation %d serves at %s and was not compared", own.Serving, n.name)
		case f.differs && !f.accepted:
			w.broken("generation %d serves at %s, differs, and nobody accepted that", own.Serving, n.name)
		}
		if w.slotsOf(own) != nil {
			w.broken("%s: %v", n.name, w.slotsOf(own))
		}
	}
}

// slotsOf is an error when two generations of a set have one slot.
func (w *world) slotsOf(s generation.Set) error {
	used := map[uint8]generation.Number{}
	for number, g := range s.All {
		if is, twice := used[g.Slot]; twice {
			return fmt.Errorf("slot %d is used by generations %d and %d", g.Slot, is, number)
		}
		used[g.Slot] = number
	}
	return nil
}

// settle lets everything heal, without leaders, and checks that all nodes end with the
// same.
func (w *world) settle() {
	for _, n := range w.nodes {
		n.up, n.leads, n.plan, n.waits = true, false, nil, true
	}
	for range 12 * len(w.nodes) {
		for _, n := range w.nodes {
			n.view, n.saw = w.record, true
			if n.waits {
				w.start(n)
			}
			w.act(n)
			w.count(n)
			w.look()
		}
	}
	for _, n := range w.nodes {
		if !n.own.Equal(w.nodes[0].own) {
			w.broken("%s ends at epoch %d and %s at epoch %d, or they differ", n.name, n.own.Epoch, w.nodes[0].name, w.nodes[0].own.Epoch)
		}
		for number := range n.own.All {
			if _, has := n.dirs[number]; !has && number == n.own.Serving {
				w.broken("%s has nothing of generation %d, which serves", n.name, number)
			}
		}
	}
	if s, err := w.read(w.record); err != nil || !s.Equal(w.nodes[0].own) {
		w.broken("the record ends as %+v, %v", s, err)
	}
}

func simulate(seed uint64, f flaw) *world {
	w := newWorld(seed, f)
	for range 1500 {
		w.step(true)
		if w.fault != "" {
			return w
		}
	}
	w.settle()
	return w
}

// By seed: lost, late and doubled views, crashes at any step, several that think they
// lead, records that are deleted, malformed and old, and people who ask for
// anything at any time. "What serves was caught up and compared, or
// accepted; no two live generations use one slot; numbers never repeat; no node drops the
// serving or the building generation; all nodes end with the same."
func TestSimulation(t *testing.T) {
	did := map[string]int{}
	for seed := range uint64(*simSeeds) {
		if *simSeed != 0 {
			seed = *simSeed
		}
		w := simulate(seed, sound)
		if w.fault != "" {
			t.Fatalf("seed %d (-generation.seed=%d): %s\n%s", seed, seed, w.fault, strings.Join(w.said, "\n"))
		}
		for what, n := range w.did {
			did[what] += n
		}
		if *simSeed != 0 {
			break
		}
	}
	t.Logf("%v", did)
	for _, what := range []string{"begins:", "compares:", "founds:", "switchs:", "backs:", "aborts:", "drops:", "accepts:", "restores", "crashes", "decided by others", "restored:"} {
		if did[what] == 0 && *simSeed == 0 {
			t.Errorf("it never happened: %s", what)
		}
	}
}

// Each variant that is broken on purpose is noticed.
func TestSimulationNoticesBrokenVariants(t *testing.T) {
	for _, f := range []flaw{switchesEarly, noCompareSet, clearsUsed, obeysOlder, reusesNumbers, ignoresFindings, takesAnySlot, restoredOutbids} {
		noticed := ""
		for seed := uint64(0); seed < 200 && noticed == ""; seed++ {
			if w := simulate(seed, f); w.fault != "" {
				noticed = fmt.Sprintf("seed %d: %s", seed, w.fault)
			}
		}
		if noticed == "" {
			t.Errorf("not noticed: %s", f)
		}
		t.Logf("%s: %s", f, noticed)
	}
}
