package generation_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// decide has a leader look what is to be done.
func (w *world) decide(n *simNode) {
	s, err := w.read(w.record)
	if err != nil || !s.Equal(n.own) {
		return
	}
	p := &plan{from: s, revision: w.revision}
	try := func(what string, next generation.Set, err error) {
		if err == nil {
			p.what, p.next, n.plan = what, next, p
		}
	}
	ask := w.r.IntN(30) // what people ask for
	switch {
	case ask == 0:
		next, err := s.Abort("asked")
		try("abort", next, err)
	case ask == 1:
		next, err := s.Back(uint64(w.end))
		try("back", next, err)
	case ask == 2 && s.Building != 0 && w.facts[s.Building] != nil:
		w.facts[s.Building].accepted = true
		next, err := s.Accepted()
		try("accept", next, err)
	default:
		w.nextStep(n, p, try, generation.Seen{
			CaughtUp: s.State == generation.Comparing || w.allCaught(s.Building) || w.flaw == switchesEarly, Compared: true, KeptLong: ask < 12,
		})
	}
}

// nextStep has a leader take the step that is due.
func (w *world) nextStep(n *simNode, p *plan, try func(what string, next generation.Set, err error), seen generation.Seen) {
	switch s := p.from; s.Next(seen) {
	case generation.StepDrop:
		next, err := s.Drop()
		try("drop", next, err)
	case generation.StepTidy:
		w.decideToBegin(n, p)
	case generation.StepCompare:
		next, err := s.Compare()
		try("compare", next, err)
	case generation.StepCheck:
		f := w.facts[s.Building]
		f.compared = f.caught
		next, err := s.Found(map[bool]uint64{true: 3}[f.differs], "")
		if w.flaw == ignoresFindings {
			next, err = s.Found(0, "")
		}
		try("found", next, err)
	case generation.StepSwitch:
		next, err := s.Switch(uint64(w.end))
		try("switch", next, err)
	}
}

func (w *world) decideToBegin(n *simNode, p *plan) {
	// Nobody may have the earlier generation there open any more.
	slot := 1 - p.from.All[p.from.Serving].Slot
	for _, o := range w.nodes {
		for _, g := range o.own.All {
			if o.up && g.Slot == slot && w.flaw != clearsUsed {
				return
			}
		}
	}
	if w.flaw == reusesNumbers && p.from.Newest > 1 {
		p.from = with(p.from, p.from.Serving, p.from.All[p.from.Serving])
	}
	from := p.from
	if w.flaw == reusesNumbers {
		from.Newest = from.Serving
	}
	counting, _ := json.Marshal(fmt.Sprint(w.r.Uint64()))
	next, err := from.Begin(counting, false)
	if err == nil {
		p.what, p.next, p.clear = "begin", next, true
		n.plan = p
	}
}

// write does what a leader has decided before: the record may be another by now.
func (w *world) write(n *simNode) {
	p := n.plan
	if p.clear {
		p.clear = false
		w.clear(n, p)
		return
	}
	n.plan = nil
	text, err := p.next.Encode()
	if err != nil {
		w.broken("%s cannot write %s: %v", n.name, p.what, err)
		return
	}
	// Write compares what is there, and then its revision.
	s, err := w.read(w.record)
	if w.flaw != noCompareSet && (err != nil || !s.Equal(p.from)) || !w.put(text, p.revision) {
		w.did["decided by others"]++
		return
	}
	w.say("%s %ss: epoch %d", n.name, p.what, p.next.Epoch)
	if err != nil || !s.Equal(p.from) {
		w.broken("%s writes epoch %d, made of epoch %d, over epoch %d", n.name, p.next.Epoch, p.from.Epoch, s.Epoch)
	}
	w.truth = p.next
	if p.what == "begin" {
		number := p.next.Building
		counting := string(p.next.All[number].Counting)
		if f := w.facts[number]; f != nil && f.counting != counting && w.used(number) {
			if p.from.Newest >= number {
				w.broken("%s begins generation %d for a second time", n.name, number)
			}
			w.begunAgain(number)
		}
		w.facts[number] = &facts{counting: counting, differs: w.r.IntN(4) == 0}
	}
	if w.r.IntN(8) > 0 { // otherwise it crashes before it has noted what it wrote
		n.own = p.next
	}
}

// begunAgain is for a number that is used again by a record that does not know that it was
// used: the record was lost, and those that know more are down. What is left under the
// number is distinguished by what it counts by (Owner), and is counted again from the start.
func (w *world) begunAgain(number generation.Number) {
	w.did["begun again"]++
	for _, n := range w.nodes {
		delete(n.dirs, number)
	}
	for slot, is := range w.slots {
		if is == number {
			w.slots[slot] = 0
		}
	}
}

// used says whether anything was counted under a number. A record that is lost before
// anybody has acted on it leaves nothing.
func (w *world) used(number generation.Number) bool {
	for _, n := range w.nodes {
		if _, has := n.dirs[number]; has {
			return true
		}
	}
	return slices.Contains(w.slots[:], number)
}

// clear is bucket.Clear: it leaves what began there meanwhile.
func (w *world) clear(n *simNode, p *plan) {
	slot := p.next.All[p.next.Building].Slot
	if is := w.slots[slot]; is >= p.next.Building && w.flaw != clearsUsed && w.flaw != reusesNumbers {
		n.plan = nil
		return
	}
	if s, err := w.read(w.record); err == nil && w.flaw == sound {
		for _, g := range s.All {
			if g.Slot == slot { // by the record as it stands it is another generation's
				n.plan = nil
				return
			}
		}
	}
	w.say("%s clears slot %d", n.name, slot)
	for number, g := range w.truth.All {
		// Of one that is built a leader may know nothing that was restored from before it, or
		// that follows the record of a restored node, which knows the number and names no
		// such generation: its windows are derived again.
		_, named := n.own.All[number]
		restored := n.own.Newest >= number && n.own.Epoch < w.truth.Epoch && !named
		known := number == w.truth.Serving || !restored && n.backup == nil
		if g.Slot == slot && w.slots[slot] == number && known {
			w.broken("%s clears slot %d, which generation %d uses", n.name, slot, number)
		}
	}
	w.slots[slot] = 0
}

func (w *world) allCaught(number generation.Number) bool {
	for _, n := range w.nodes {
		if n.dirs[number] < w.end {
			return false
		}
	}
	return true
}
