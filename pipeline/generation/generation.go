// Package generation says which generations of counts a system has, and how one
// takes the place of another. It is pure: [Set] is one value that all nodes see,
// changed by compare-and-set; every change is a function from one Set to the next.
//
//	          Begin            Compare             Switch              Drop
//	none ───────────► building ───────► comparing ───────► switched ──────────► switched
//	                      │  Abort          │ Abort          │ ▲                (nothing kept)
//	                      └─────► aborted ◄─┘                └─┘ Back
//
// A generation is all that is counted by one configuration. One serves; beside it
// there may be one more, which is building or is kept to go back to. So two places
// (slots) are enough for ever.
package generation

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Number names a generation. The first is 1; none is used twice.
type Number uint32

// First is the generation of a system that was never rebuilt.
const First Number = 1

// Slots is how many places there are; see jetlog.Slot.
const Slots = 2

// ConfigBytesMax bounds what is noted of a configuration.
const ConfigBytesMax = 256 << 10

// State is how the newest rebuild stands.
type State string

// The states.
const (
	None      State = "none" // there was no rebuild
	Building  State = "building"
	Comparing State = "comparing"
	Switched  State = "switched"
	Aborted   State = "aborted"
)

// Generation is what is known of one.
type Generation struct {
	Slot uint8 `json:"slot"`
	// Counting is what decides, of a configuration, what is counted; JSON. It holds
	// for the generation whatever a node's own file says.
	Counting json.RawMessage `json:"counting"`
	// Letters is the position behind which this one stores dead letters: those up to
	// it are stored already. Of the first: 0.
	Letters uint64 `json:"letters,string"`
}

// Set is which generations there are. The zero is that of a system that was never
// rebuilt: generation 1 serves, by each node's own configuration.
type Set struct {
	Epoch    uint64                `json:"epoch,string"` // counts the changes
	State    State                 `json:"state"`
	Serving  Number                `json:"serving"`
	Building Number                `json:"building,omitempty"` // 0: none
	Kept     Number                `json:"kept,omitempty"`     // served before; 0: none
	Newest   Number                `json:"newest"`             // of all that there ever were
	All      map[Number]Generation `json:"generations"`        // those named above
	Accept   bool                  `json:"accept,omitempty"`   // switch although they differ
	Compared bool                  `json:"compared,omitempty"` // the comparison has ended
	Differs  uint64                `json:"differs,omitempty"`  // ids that it found different
	Why      string                `json:"why,omitempty"`      // it was aborted, or does not go on
}

// The reasons why a change is refused.
var (
	ErrUnderWay = errors.New("a rebuild is under way: 'tidemark rebuild --status' shows it, '--abort' ends it")
	ErrNone     = errors.New("there is no rebuild under way")
	ErrKept     = errors.New("there is no earlier generation to go back to")
	ErrNotYet   = errors.New("the new generation was not compared with the one that serves yet")
	ErrDiffers  = errors.New("the new generation differs from the one that serves")
)

// Served is s, or for the zero what it stands for.
func (s Set) Served() Set {
	if s.Serving == 0 {
		s.Serving, s.Newest, s.State = First, First, None
		s.All = map[Number]Generation{First: {}}
	}
	return s
}

// Beside is the generation beside the one that serves; 0: none.
func (s Set) Beside() Number { return max(s.Building, s.Kept) }

// Fault is what is wrong with a Set that somebody wrote; nil: nothing.
func (s Set) Fault() error {
	named := map[Number]bool{s.Serving: true}
	for _, n := range []Number{s.Building, s.Kept} {
		if n != 0 {
			named[n] = true
		}
	}
	switch {
	case s.Epoch == 0, s.Serving == 0:
		return errors.New("it names no epoch, or none that serves")
	case s.Building != 0 && s.Kept != 0:
		return fmt.Errorf("generations %d and %d are both beside %d", s.Building, s.Kept, s.Serving)
	case s.Building == s.Serving, s.Kept == s.Serving:
		return fmt.Errorf("generation %d is named twice", s.Serving)
	case (s.State == Building || s.State == Comparing) != (s.Building != 0):
		return fmt.Errorf("the state is %s and generation %d is building", s.State, s.Building)
	case s.State != None && s.State != Building && s.State != Comparing && s.State != Switched && s.State != Aborted:
		return fmt.Errorf("there is no state %q", s.State)
	case len(s.All) != len(named):
		return fmt.Errorf("%d generations are described, and %d named", len(s.All), len(named))
	}
	slots := map[uint8]bool{}
	for n := range named {
		g, known := s.All[n]
		switch {
		case !known:
			return fmt.Errorf("generation %d is not described", n)
		case n > s.Newest:
			return fmt.Errorf("generation %d is newer than the newest, %d", n, s.Newest)
		case g.Slot >= Slots || slots[g.Slot]:
			return fmt.Errorf("generation %d has slot %d, which is no free one", n, g.Slot)
		case len(g.Counting) == 0 || len(g.Counting) > ConfigBytesMax || !json.Valid(g.Counting):
			return fmt.Errorf("generation %d has a configuration of %d bytes that cannot be read", n, len(g.Counting))
		}
		slots[g.Slot] = true
	}
	return nil
}

// next is a copy to change, one epoch on.
func (s Set) next() Set {
	s = s.Served()
	all := make(map[Number]Generation, len(s.All))
	for n, g := range s.All {
		all[n] = g
	}
	s.All = all
	s.Epoch++
	return s
}

// Begin is the set with a generation more, which counts by next. now is what the
// one that serves counts by: it is noted the first time, so that no node counts on
// with a file that was edited meanwhile. What was kept must be dropped before, and
// its slot cleared.
func (s Set) Begin(now, next json.RawMessage, accept bool) (Set, error) {
	was := s.Served()
	switch {
	case was.Building != 0:
		return s, ErrUnderWay
	case was.Kept != 0:
		return s, fmt.Errorf("generation %d is kept still", was.Kept)
	}
	s = s.next()
	serving := s.All[s.Serving]
	if len(serving.Counting) == 0 {
		serving.Counting = now
	}
	s.All[s.Serving] = serving
	s.Newest++
	s.Building, s.State, s.Accept, s.Compared, s.Differs, s.Why = s.Newest, Building, accept, false, 0, ""
	s.All[s.Building] = Generation{Slot: 1 - serving.Slot, Counting: next}
	return s, s.Fault()
}

// Compare is the set once the new generation has caught up with the log.
func (s Set) Compare() (Set, error) {
	if s.State != Building {
		return s, ErrNone
	}
	s = s.next()
	s.State = Comparing
	return s, nil
}

// Found is the set once they were compared. Differs are ids; why says more.
func (s Set) Found(differs uint64, why string) (Set, error) {
	if s.State != Comparing {
		return s, ErrNone
	}
	s = s.next()
	s.Compared, s.Differs, s.Why = true, differs, why
	return s, nil
}

// Accepted is the set once somebody wants it although they differ.
func (s Set) Accepted() (Set, error) {
	if s.Building == 0 {
		return s, ErrNone
	}
	s = s.next()
	s.Accept = true
	return s, nil
}

// Switch is the set in which the new generation serves. Dead letters up to a
// position are stored.
func (s Set) Switch(letters uint64) (Set, error) {
	switch {
	case s.State != Comparing:
		return s, ErrNone
	case !s.Compared:
		return s, ErrNotYet
	case s.Differs > 0 && !s.Accept:
		return s, fmt.Errorf("%w: in %d ids", ErrDiffers, s.Differs)
	}
	s = s.next()
	g := s.All[s.Building]
	g.Letters = letters
	s.All[s.Building] = g
	s.Serving, s.Kept, s.Building, s.State = s.Building, s.Serving, 0, Switched
	return s, nil
}

// Back is the set in which the generation serves that is kept; the one that serves
// is kept.
func (s Set) Back(letters uint64) (Set, error) {
	switch {
	case s.Building != 0:
		return s, ErrUnderWay
	case s.Kept == 0:
		return s, ErrKept
	}
	s = s.next()
	g := s.All[s.Kept]
	g.Letters = letters
	s.All[s.Kept] = g
	s.Serving, s.Kept, s.State = s.Kept, s.Serving, Switched
	return s, nil
}

// Abort is the set without the new generation.
func (s Set) Abort(why string) (Set, error) {
	if s.Building == 0 {
		return s, ErrNone
	}
	s = s.next()
	delete(s.All, s.Building)
	s.Building, s.State, s.Accept, s.Compared, s.Differs, s.Why = 0, Aborted, false, false, 0, why
	return s, nil
}

// Drop is the set without the generation that is kept.
func (s Set) Drop() (Set, error) {
	if s.Kept == 0 {
		return s, ErrKept
	}
	s = s.next()
	delete(s.All, s.Kept)
	s.Kept = 0
	return s, nil
}

// Follows says whether a node that knows s may do as next says: it is newer, and
// what serves in it is something that this node knows of. A node that was away for
// longer needs others to tell it the same.
func (s Set) Follows(next Set) bool {
	known := s.Served()
	_, named := known.All[next.Serving]
	return next.Epoch > known.Epoch && named
}
