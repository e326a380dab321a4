package generation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// flaw is a variant that is broken on purpose: the simulation must notice it.
type flaw string

const (
	sound           flaw = ""
	switchesEarly   flaw = "a switch before it has caught up"
	noCompareSet    flaw = "a switch without compare-and-set"
	clearsUsed      flaw = "a slot cleared while somebody still uses it"
	obeysOlder      flaw = "a node that obeys an older record"
	reusesNumbers   flaw = "numbers reused"
	ignoresFindings flaw = "a switch to what differs"
	takesAnySlot    flaw = "a node that appends to another generation's DELTAS"
	restoredOutbids flaw = "a restored node that raises its epoch above what is there"
)

// world is a record, two slots and a few nodes, and what is true of them. All that
// happens is decided by one seed. Nothing of it is how jetlog or a node does it: it is
// what they promise each other.
type world struct {
	r    *rand.Rand
	flaw flaw

	record   []byte // nil: the key is not there
	revision uint64
	views    [][]byte                            // all that the record ever was, to come late and twice
	slots    [generation.Slots]generation.Number // whose DELTAS it is; 0: there is none
	nodes    []*simNode
	end      int                          // of the log: what a generation must reach
	truth    generation.Set               // the last record that a leader wrote, or that was put back
	facts    map[generation.Number]*facts // by number
	said     []string                     // the last steps
	fault    string                       // the first promise that was broken
	known    map[string]judged
	did      map[string]int // how often things happened
}

// facts are what is true of a generation, whatever the record says.
type facts struct {
	counting          string
	caught, compared  bool // all nodes had reached the end of the log; and then it was compared
	differs, accepted bool
}

// simNode is a process, and its disk.
type simNode struct {
	name  string
	up    bool
	view  []byte // what it saw last of the record
	saw   bool   // in this life
	plan  *plan  // what it is about to write, as a leader
	leads bool   // it thinks so

	own   generation.Set            // on disk
	dirs  map[generation.Number]int // on disk: how far each generation has counted
	waits bool                      // it has started, and does not know what it may serve

	backup *simBackup // what it is restored from
}

// simBackup is what a node was at some time.
type simBackup struct {
	own  generation.Set
	dirs map[generation.Number]int
}

// plan is a change that was decided and is not written yet.
type plan struct {
	what       string
	from, next generation.Set
	revision   uint64
	clear      bool // the slot of next.Building, before
}

func newWorld(seed uint64, f flaw) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 4)), flaw: f, end: 2, facts: map[generation.Number]*facts{1: {counting: `"first"`, caught: true, compared: true}}, did: map[string]int{}, known: map[string]judged{}}
	w.slots[0] = 1
	w.truth, _ = generation.Start(json.RawMessage(`"first"`))
	text, _ := w.truth.Encode()
	w.set(text)
	for i := range 2 + w.r.IntN(3) {
		w.nodes = append(w.nodes, &simNode{name: string(rune('a' + i)), up: true, own: w.truth, dirs: map[generation.Number]int{1: w.end}})
	}
	return w
}

func (w *world) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.did[strings.Join(strings.Fields(text)[1:min(2, len(strings.Fields(text)))], " ")]++
	w.said = append(w.said, text)
	w.said = w.said[max(0, len(w.said)-60):]
}

// broken notes the first promise that does not hold.
func (w *world) broken(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// put writes the record if it is still at a revision.
func (w *world) put(value []byte, revision uint64) bool {
	if revision != w.revision && w.flaw != noCompareSet {
		return false
	}
	w.set(value)
	return true
}

func (w *world) set(value []byte) {
	w.record = value
	w.revision++
	w.views = append(w.views, value)
}

// read is a value as bucket.Generations gives it.
func (w *world) read(value []byte) (generation.Set, error) {
	if value == nil {
		return generation.Set{}, nil
	}
	if is, known := w.known[string(value)]; known {
		return is.set, is.err
	}
	is := w.judge(value)
	w.known[string(value)] = is
	return is.set, is.err
}

// judged is what a value was found to be.
type judged struct {
	set generation.Set
	err error
}

func (w *world) judge(value []byte) (is judged) {
	is.set, is.err = generation.Decode(value)
	return is
}

// step has one thing happen.
func (w *world) step(faults bool) {
	n := w.nodes[w.r.IntN(len(w.nodes))]
	switch what := w.r.IntN(100); {
	case what < 2 && faults && n.up:
		w.say("%s crashes", n.name)
		n.up, n.plan, n.view, n.saw, n.leads, n.waits = false, nil, nil, false, false, false
	case what == 2 && faults && n.up:
		w.backUp(n)
	case what == 3 && faults && !n.up && n.backup != nil && w.intact(n):
		w.restoreBackup(n)
	case what < 12:
		if !n.up {
			n.up, n.waits = true, true
		}
	case n.up && n.waits:
		w.start(n)
	case what < 14 && faults:
		w.lose()
	case what < 17:
		w.end++ // events come
	case !n.up:
	case what < 20:
		n.leads = !n.leads // by what it has heard of the lease
	case what < 24 && faults && len(w.views) > 0:
		n.view, n.saw = w.views[w.r.IntN(len(w.views))], true // late, or twice
	case what < 45:
		n.view, n.saw = w.record, true
		w.act(n)
	case what < 55:
		w.act(n)
	case what < 80:
		w.count(n)
	case n.plan != nil:
		w.write(n)
	case n.leads:
		w.decide(n)
	}
	w.look()
}

// lose has the record be gone, malformed, or as it was before.
func (w *world) lose() {
	switch w.r.IntN(3) {
	case 0:
		w.say("somebody deletes the record")
		w.set(nil)
	case 1:
		w.say("somebody writes garbage")
		w.set([]byte(`{"epoch":"9`))
	case 2:
		w.say("somebody writes an older record")
		if len(w.views) > 0 {
			value := w.views[w.r.IntN(len(w.views))]
			if s, err := w.read(value); err != nil || s.Epoch < w.truth.Epoch {
				w.set(value)
			}
		}
	}
}

// act has a node do what its view says, or put its copy back.
func (w *world) act(n *simNode) {
	if !n.saw {
		return
	}
	s, err := w.read(n.view)
	follows := err == nil && (s.Epoch > 0 && generation.Newest(n.own, s).Equal(s) || w.flaw == obeysOlder && s.Epoch > 0)
	if follows && !s.Equal(n.own) {
		w.say("%s follows epoch %d (serving %d, building %d, kept %d)", n.name, s.Epoch, s.Serving, s.Building, s.Kept)
		n.own, n.plan = s, nil
	}
	if !follows {
		w.restore(n)
	}
	w.tidy(n)
}

// backUp keeps what a node is: its record as a backup has it.
func (w *world) backUp(n *simNode) {
	only, err := n.own.Only()
	at, has := n.dirs[n.own.Serving]
	if n.waits || err != nil || !has {
		return
	}
	w.say("%s is backed up: generation %d", n.name, n.own.Serving)
	n.backup = &simBackup{only, map[generation.Number]int{n.own.Serving: at}}
}

// intact says whether another node holds what serves: a system of which nobody does has
// lost it, and a person decides.
func (w *world) intact(n *simNode) bool {
	return slices.ContainsFunc(w.nodes, func(o *simNode) bool {
		_, has := o.dirs[w.truth.Serving]
		return o != n && has && o.own.Serving == w.truth.Serving && o.own.Epoch >= w.truth.Epoch
	})
}

// restoreBackup puts an old directory in the place of a node's.
func (w *world) restoreBackup(n *simNode) {
	w.say("%s restored: generation %d", n.name, n.backup.own.Serving)
	n.own, n.dirs = n.backup.own, maps.Clone(n.backup.dirs)
	if s, err := w.read(w.record); w.flaw == restoredOutbids && err == nil {
		n.own.Epoch, n.own.Newest = max(n.own.Epoch, s.Epoch)+1, max(n.own.Newest, s.Newest)
		w.flawed(n)
	}
}

// flawed has a restored record be put over what is there.
func (w *world) flawed(n *simNode) {
	if text, err := n.own.Encode(); err == nil {
		w.set(text)
	}
}

// start has a node that has started find out what serves.
func (w *world) start(n *simNode) {
	n.view, n.saw, n.waits = w.record, true, false
	w.act(n)
}

// restore puts a node's own copy back, as bucket.Generations.Restore does: by what is
// there now.
func (w *world) restore(n *simNode) {
	s, err := w.read(w.record)
	if err == nil && s.Epoch >= n.own.Epoch {
		return
	}
	text, err := n.own.Encode()
	if err != nil {
		w.broken("%s has a copy that cannot be written: %v", n.name, err)
		return
	}
	w.say("%s restores epoch %d", n.name, n.own.Epoch)
	w.put(text, w.revision)
	if n.own.Epoch >= w.truth.Epoch {
		w.truth = n.own
	}
}

// tidy deletes what a node has of generations that its record does not name, once it has
// what serves.
func (w *world) tidy(n *simNode) {
	own := n.own
	if _, open := n.dirs[own.Serving]; !open || n.waits {
		return
	}
	for number := range n.dirs {
		if _, named := own.All[number]; named {
			continue
		}
		if t := w.truth; own.Epoch >= t.Epoch && (number == t.Serving || number == t.Building) {
			w.broken("%s drops generation %d: %d serves and %d is building", n.name, number, t.Serving, t.Building)
		}
		w.say("%s drops generation %d", n.name, number)
		delete(n.dirs, number)
	}
}

// count has a node go on with a generation: it opens it, in its slot, and derives.
func (w *world) count(n *simNode) {
	own := n.own
	if n.waits {
		return
	}
	for number, g := range own.All {
		if own.Beside() != 0 && number == own.Serving && w.r.IntN(2) == 0 {
			continue
		}
		switch is := w.slots[g.Slot]; {
		case is == 0, is < number: // made, or evicted: by jetlog.Evict
			w.slots[g.Slot] = number
		case is > number && w.flaw != takesAnySlot:
			continue // jetlog.ErrGeneration
		}
		if is := w.slots[g.Slot]; is != number {
			w.broken("%s appends windows of generation %d to slot %d, which is generation %d's", n.name, number, g.Slot, is)
		}
		n.dirs[number] = min(n.dirs[number]+1, w.end)
	}
}
