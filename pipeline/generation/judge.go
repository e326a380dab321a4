package generation

import (
	"errors"
	"fmt"
	"slices"
)

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

// Ended are the generations that next gives up in normal order: one that was kept is
// dropped, or one that was building is aborted, and what serves goes on. Of any other that
// next does not name nobody can say that it was given up on purpose.
func (s Set) Ended(next Set) (numbers []Number) {
	if s.Owner(s.Serving) != next.Owner(next.Serving) {
		return nil
	}
	for _, n := range []Number{s.Kept, s.Building} {
		if _, named := next.All[n]; n != 0 && !named {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Found is what a node finds when it has to say which generation it may serve.
//
// A record alone proves nothing: it may be forged, or left over from before a restore. A
// DELTAS says whose it is, and a slot that is given to another generation is cleared
// first: while a generation serves, or is kept, its DELTAS is there, and afterwards it is
// not.
type Found struct {
	Own    Set          // what this node last acted on; the zero: nothing
	There  Set          // what the bucket says; the zero: nothing, or it is malformed
	Told   Set          // the newest that a running node which holds counts acts on; the zero: none is there
	Deltas [Slots]Owner // whose DELTAS each slot has
	First  Set          // by this node's own file
}

// The reasons why a node does not act on what the bucket says.
var (
	ErrGone    = errors.New("the record of the generations is gone")
	ErrOlder   = errors.New("the record of the generations is older than what this node knows")
	ErrUnknown = errors.New("the record of the generations does not follow from what this node knows")
	ErrWaits   = errors.New("it is not known which generation serves")
)

// Judge says which record the node acts on, and why that is not what the bucket says. The
// zero: it must wait; a superseded generation never serves by itself.
func (f *Found) Judge() (acts Set, why error) {
	switch {
	case f.Own.Epoch == 0:
		return f.judgeFresh()
	case f.Own.Equal(f.There), f.Own.Follows(f.There):
		return f.There, nil
	case f.There.Epoch == 0:
		return f.ownUnless(ErrGone)
	case f.There.Newer(f.Own):
		return f.judgeNewer()
	case f.Own.Newer(f.There):
		return f.ownUnless(ErrOlder)
	case f.has(f.Own): // one number was given out twice
		return f.Own, f.unknown()
	case f.has(f.There), f.Told.Epoch != 0 && f.Told.Equal(f.There):
		return f.There, nil
	}
	return Set{}, f.waits()
}

// judgeFresh is of a node that knows of no record.
func (f *Found) judgeFresh() (Set, error) {
	switch {
	case f.Told.Epoch != 0:
		return f.Told, nil
	case f.There.Epoch != 0 && (f.has(f.There) || f.nothing()):
		return f.There, nil
	case f.There.Epoch == 0 && (f.has(f.First) || f.nothing()):
		return f.First, nil
	}
	return Set{}, f.waits()
}

// judgeNewer is of a record that is newer than what this node knows, and does not follow
// from it. Another node that acts on it confirms it, and so does the DELTAS of what it
// says serves. Where that is what serves here too, there is nothing to follow.
func (f *Found) judgeNewer() (Set, error) {
	same := f.Own.Owner(f.Own.Serving) == f.There.Owner(f.There.Serving)
	switch {
	case f.Told.Epoch != 0 && f.Told.Owner(f.Told.Serving) == f.There.Owner(f.There.Serving) && !f.There.Newer(f.Told):
		return f.Told, nil
	case same:
		return f.Own, f.unknown()
	case f.has(f.Own) && !f.has(f.There):
		return f.ownUnless(f.unknown())
	case f.has(f.There):
		return f.There, nil
	}
	return Set{}, f.waits()
}

// ownUnless is what this node knows, where what the bucket says is not to be followed: it
// is older, or nothing confirms it. Where this node's may be superseded, it is what
// another node acts on, or the node must wait.
func (f *Found) ownUnless(why error) (Set, error) {
	switch {
	case !f.superseded():
		return f.Own, why
	case f.Told.Newer(f.Own):
		return f.Told, why
	}
	return Set{}, f.waits()
}

// superseded says whether a DELTAS is of a generation of which this node does not know what
// became, as after a restore, or of a later one than served here while none is of that.
func (f *Found) superseded() bool {
	has, known := f.has(f.Own), f.Own.Newest
	if f.Own.State == None { // of a backup (Only): later ones may have been building
		known = f.Own.Serving
	}
	return slices.ContainsFunc(f.Deltas[:], func(is Owner) bool {
		return is.Number > known || !has && is.Number >= f.Own.Serving
	})
}

// has says whether the DELTAS of what serves by s is there.
func (f *Found) has(s Set) bool {
	g := s.All[s.Serving]
	return g.Slot < Slots && f.Deltas[g.Slot] == s.Owner(s.Serving)
}

// nothing says that there is no DELTAS.
func (f *Found) nothing() bool { return f.Deltas == [Slots]Owner{} }

func (f *Found) unknown() error {
	return fmt.Errorf("%w: it has epoch %d and says that generation %d serves; this node knows epoch %d, in which generation %d serves, and no other node confirms it",
		ErrUnknown, f.There.Epoch, f.There.Serving, f.Own.Epoch, f.Own.Serving)
}

func (f *Found) waits() error {
	text := "the bucket has no record"
	if f.There.Epoch != 0 {
		text = fmt.Sprintf("by the record in the bucket (epoch %d) generation %d serves", f.There.Epoch, f.There.Serving)
	}
	if f.Own.Epoch != 0 {
		text += fmt.Sprintf(", this node holds generation %d (epoch %d)", f.Own.Serving, f.Own.Epoch)
	}
	for slot, is := range f.Deltas {
		if is != (Owner{}) {
			text += fmt.Sprintf(", the windows in slot %d are of %v", slot, is)
		}
	}
	return fmt.Errorf("%w: %s", ErrWaits, text)
}
