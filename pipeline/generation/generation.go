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
// (slots) are enough for ever. The first node of a system writes the first record,
// by what its own file counts; all others count by the record.
//
// It is safe as long as nodes do this, which the simulation in sim_test.go does:
//
//   - Of two records the one of the higher epoch holds: a node follows one that is newer
//     than its own copy, and puts its copy in the place of one that is older, malformed or
//     gone. A node that was restored from a backup has epoch 1 (Only), and obeys.
//   - It deletes what it has of a generation only where its record does not name that, and
//     it has what serves.
//   - A leader writes only over what is its own copy, by compare-and-set.
//   - Before Begin it clears the slot, once no node has a generation there; that does
//     not remove a generation's DELTAS with the new number or a higher one. Of one that
//     nobody remembers the number is past (Past).
//   - DELTAS says whose it is; a lower number's is replaced, of a higher one's nothing
//     is read or written.
package generation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Number names a generation. The first is 1; none is used twice.
type Number uint32

// At is a node as the subjects have it on which it answers for a generation.
func (n Number) At(node string) string { return node + ".g" + max(n, First).String() }

// String is its decimal digits.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// First is the generation of a system that was never rebuilt.
const First Number = 1

// Slots is how many places there are; see jetlog.Slot.
const Slots = 2

// What bounds a Set.
const (
	ConfigBytesMax = 256 << 10 // what is noted of a configuration
	WhyBytesMax    = 1 << 10
)

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
	// Letters is the position behind which this one owes dead letters of what it had
	// routed before it served: those up to it are stored already. 0: it owes none.
	Letters uint64 `json:"letters,string"`
}

// CountsBy is the fingerprint of all that decides what is counted. Two generations
// with one number are different if it differs: where a record was lost, or a backup
// was restored, a number comes again.
func (g Generation) CountsBy() string {
	text, err := json.Marshal(g.Counting) // without spaces, and escaped alike wherever it was kept
	if err != nil {
		text = g.Counting
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Set is which generations there are. The zero says that nothing is known.
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
	Lost     bool                  `json:"lost,omitempty"`     // the one that serves, or that is kept, has counted what EVENTS has lost (Again)
	Why      string                `json:"why,omitempty"`      // it was aborted, or does not go on
}

// The reasons why a change is refused.
var (
	ErrUnderWay = errors.New("a rebuild is under way: 'tidemark rebuild --status' shows it, '--abort' ends it")
	ErrNone     = errors.New("there is no rebuild under way")
	ErrKept     = errors.New("there is no earlier generation to go back to")
	ErrNotYet   = errors.New("the new generation was not compared with the one that serves yet")
	ErrDiffers  = errors.New("the new generation differs from the one that serves")

	ErrGone       = errors.New("the bucket has no record of the generations")
	ErrNotServing = errors.New("this generation does not serve any more")
)

// Start is the first record of a system: generation 1 serves and counts by counting.
func Start(counting json.RawMessage) (Set, error) {
	s := Set{Epoch: 1, Serving: First, Newest: First}
	return s.only(Generation{Counting: counting})
}

// Newest is the record that holds of the two that a node knows: its own copy and what the
// bucket has, of which the zero stands for none. Of two of one epoch the one that knows of
// more generations holds: a restored one (Only) is newer than the first of a node without
// counts. Otherwise one was written while the bucket was lost, and what stands there holds.
func Newest(own, there Set) Set {
	if own.Epoch > there.Epoch || own.Epoch == there.Epoch && own.Newest > there.Newest {
		return own
	}
	return there
}

// Owner is whose a DELTAS is. The zero: there is none, or its metadata does not say.
type Owner struct {
	Number   Number
	CountsBy string // "": not known
}

// Is says whether both are one generation, as far as what they count by is known.
func (o Owner) Is(other Owner) bool {
	return o.Number == other.Number && (o.CountsBy == other.CountsBy || o.CountsBy == "" || other.CountsBy == "")
}

func (o Owner) String() string {
	if o.CountsBy == "" {
		return fmt.Sprintf("generation %d", o.Number)
	}
	return fmt.Sprintf("generation %d, which counts by %s", o.Number, o.CountsBy)
}

// Owner is a generation of s, as its DELTAS names it.
func (s Set) Owner(n Number) Owner { return Owner{n, s.All[n].CountsBy()} }

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
	case s.Lost && s.State != Building && s.Kept == 0:
		return fmt.Errorf("the state is %s, and of no generation that has counted what EVENTS has lost", s.State)
	case s.State == Building && s.Compared, s.State == Switched && !s.compared(), s.State != Switched && s.Kept != 0:
		return fmt.Errorf("the state is %s, compared %v, %d ids differ, accepted %v, and generation %d is kept", s.State, s.Compared, s.Differs, s.Accept, s.Kept)
	case len(s.Why) > WhyBytesMax:
		return fmt.Errorf("why has %d bytes, %d at most", len(s.Why), WhyBytesMax)
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

// compared says whether what was compared may serve.
func (s Set) compared() bool { return s.Compared && (s.Differs == 0 || s.Accept) }

// next is a copy to change, one epoch on.
func (s Set) next() Set {
	all := make(map[Number]Generation, len(s.All))
	for n, g := range s.All {
		all[n] = g
	}
	s.All = all
	s.Epoch++
	return s
}

// Past is the set where numbers up to one were used, which the set may know nothing of:
// what a generation has left is found, and nobody remembers it.
func (s Set) Past(used Number) Set {
	s.Newest = max(s.Newest, used)
	return s
}

// Begin is the set with a generation more, which counts by counting. What was kept
// must be dropped before, and its slot cleared.
func (s Set) Begin(counting json.RawMessage, accept bool) (Set, error) {
	switch {
	case s.Building != 0:
		return s, ErrUnderWay
	case s.Kept != 0:
		return s, fmt.Errorf("generation %d is kept still", s.Kept)
	}
	s = s.next()
	s.Newest++
	s.Building, s.State, s.Accept, s.Compared, s.Differs, s.Lost, s.Why = s.Newest, Building, accept, false, 0, false, ""
	s.All[s.Building] = Generation{Slot: 1 - s.All[s.Serving].Slot, Counting: counting}
	return s, s.Fault()
}

// Compare is the set once the new generation has caught up with the log.
func (s Set) Compare() (Set, error) {
	if s.State != Building || s.Lost {
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
	s.Compared, s.Differs, s.Why = true, differs, cut(why)
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

// stored is up to where dead letters are stored, of what the one that serves has
// routed: later letters are its own to store, and it will not.
func (s Set) stored(routed uint64) uint64 {
	if owed := s.All[s.Serving].Letters; owed != 0 {
		return min(routed, owed)
	}
	return routed
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
	g.Letters = s.stored(letters)
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
	case s.Lost:
		return s, fmt.Errorf("%w: generation %d has counted events that EVENTS has lost", ErrKept, s.Kept)
	}
	s = s.next()
	g := s.All[s.Kept]
	g.Letters = s.stored(letters)
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
	s.Building, s.State, s.Accept, s.Compared, s.Differs, s.Lost, s.Why = 0, Aborted, false, false, 0, false, cut(why)
	return s, nil
}

// Drop is the set without the generation that is kept.
func (s Set) Drop() (Set, error) {
	if s.Kept == 0 {
		return s, ErrKept
	}
	s = s.next()
	delete(s.All, s.Kept)
	s.Kept, s.Lost = 0, false
	return s, nil
}

// Settled is the set once the generation that serves has stored all dead letters that
// it owes: those behind Letters that it had routed before it served.
func (s Set) Settled() (Set, error) {
	g := s.All[s.Serving]
	if g.Letters == 0 {
		return s, errors.New("no dead letters are owed")
	}
	s = s.next()
	g.Letters = 0
	s.All[s.Serving] = g
	return s, nil
}

// Anew is the set in which a new generation serves, alone: everything is counted
// again, and nothing that was counted before is used.
func (s Set) Anew(counting json.RawMessage) (Set, error) {
	s = s.next()
	s.Newest++
	s.Serving = s.Newest
	s, err := s.only(Generation{Counting: counting})
	s.State, s.Why = Aborted, "everything is counted again"
	return s, err
}

// Again is the set with a generation more that counts everything again, by the same as the
// one that serves: that has counted events that EVENTS has lost. What was beside it must be
// dropped before, and its slot cleared.
func (s Set) Again() (Set, error) {
	begun, err := s.Begin(s.All[s.Serving].Counting, true)
	if err != nil {
		return s, err
	}
	begun.Lost = true
	return begun, nil
}

// Keeps says whether a generation stores the dead letters of what it routes: the one that
// serves, and one that counts everything again, since nobody else counts any more.
func (s Set) Keeps(n Number) bool { return n == s.Serving || n == s.Building && s.Recounts() }

// Recounts says whether everything is counted again because of a lost tail.
func (s Set) Recounts() bool { return s.Lost && s.Building != 0 }

// Replace is the set once that generation has caught up with the log: it serves, and is not
// compared with the one before, to which there is no way back.
func (s Set) Replace() (Set, error) {
	if !s.Recounts() {
		return s, ErrNone
	}
	s = s.next()
	s.Serving, s.Kept, s.Building, s.State, s.Compared = s.Building, s.Serving, 0, Switched, true
	return s, s.Fault()
}

// Only is the set with nothing but what serves, for a backup. Every other record of the
// same history is newer, so a node that was restored obeys the others.
func (s Set) Only() (Set, error) {
	s.Epoch = 1
	return s.only(s.All[s.Serving])
}

// only is the set with nothing but what serves.
func (s Set) only(is Generation) (Set, error) {
	is.Letters = 0
	s.Building, s.Kept, s.State, s.Why = 0, 0, None, ""
	s.Accept, s.Compared, s.Differs, s.Lost = false, false, 0, false
	s.All = map[Number]Generation{s.Serving: is}
	return s, s.Fault()
}

// Alone is the set without a generation beside the one that serves, whatever it is.
func (s Set) Alone(why string) Set {
	if next, err := s.Abort(why); err == nil {
		return next
	}
	if next, err := s.Drop(); err == nil {
		return next
	}
	return s
}
