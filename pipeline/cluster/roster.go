package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The keys in the bucket.
const (
	MemberPrefix  = "member." // + node: a Member
	AssignmentKey = "assignment"
	DrainPrefix   = "drain." // + node: it is to hold nothing
	DegradeKey    = "degrade"
)

// Entry is one value of one key, as the bucket has it.
type Entry struct {
	Key      string
	Revision uint64
	Nanos    int64 // when it was stored, by the bucket's clock; only ever compared for equality
	Value    []byte
	Deleted  bool
	Purged   bool // deleted with all that was: by Members.Forget
}

// ErrIgnored says that the value of a key cannot be decoded, or is older than what is known.
var ErrIgnored = errors.New("cluster: the value is ignored")

// Roster makes views of the keys as they come. Not for concurrent use.
//
// A member's silence is measured by the roster's own clock, which goes on only
// while something is heard: an observer that was cut off for a minute has not
// heard a minute of silence. A process that beats hears at least its own beats.
type Roster struct {
	gap, expiry time.Duration

	heard time.Duration // the clock, when something was last heard
	last  time.Time     // that moment
	begun time.Duration // when it was begun, or the bucket was made

	created    time.Time       // the bucket
	listing    map[string]bool // keys of members listed so far; nil when all are
	members    map[string]*sighted
	gone       map[string]farewell // members deleted
	drained    map[string]bool
	degrade    Degrade
	assignment Assignment
	stored     bool
	revision   uint64 // of the key assignment
	previous   *View
}

// sighted is a member's value and when it was first seen.
type sighted struct {
	member   *Member
	revision uint64
	nanos    int64
	since    time.Duration
	heard    time.Time // the same moment; the roster's clock may stop, time does not
}

// farewell is a member's key that was deleted.
type farewell struct {
	revision uint64
	since    time.Duration
}

// NewRoster makes an empty one. beat is how often every member writes its key; it
// is away when it has not for expiry.
func NewRoster(beat, expiry time.Duration) *Roster {
	return &Roster{
		gap: 2 * beat, expiry: expiry, degrade: Normal,
		members: make(map[string]*sighted), gone: make(map[string]farewell), drained: make(map[string]bool),
	}
}

// Begin says that all keys come now, of a bucket that was made then; Listed ends
// that. Of a new bucket, members that are not listed are still remembered: they
// will come, or be away.
func (r *Roster) Begin(now, created time.Time) {
	if r.last.IsZero() {
		r.last = now
	}
	if !created.Equal(r.created) {
		r.created, r.begun = created, r.clock(now)
		r.stored, r.revision = false, 0
		r.listing = nil
	} else {
		r.listing = make(map[string]bool)
	}
	r.degrade = Normal
	clear(r.drained)
	clear(r.gone)
}

// Listed says that all keys there are have come.
func (r *Roster) Listed() {
	if r.listing != nil {
		maps.DeleteFunc(r.members, func(node string, _ *sighted) bool { return !r.listing[node] })
	}
	r.listing = nil
}

// Take takes what a key is now. An error wraps ErrIgnored, and says why the value is ignored.
func (r *Roster) Take(now time.Time, e Entry) error {
	r.heard, r.last = r.clock(now), now
	var err error
	switch {
	case strings.HasPrefix(e.Key, MemberPrefix):
		err = r.takeMember(strings.TrimPrefix(e.Key, MemberPrefix), e)
	case strings.HasPrefix(e.Key, DrainPrefix):
		err = r.takeDrain(strings.TrimPrefix(e.Key, DrainPrefix), e)
	case e.Key == AssignmentKey:
		err = r.takeAssignment(e)
	case e.Key == DegradeKey && e.Deleted:
		r.degrade = Normal
	case e.Key == DegradeKey:
		var d Degrade
		if d, err = DecodeDegrade(e.Value); err == nil {
			r.degrade = d
		}
	}
	if err != nil {
		return fmt.Errorf("%w: key %.100q: %w", ErrIgnored, e.Key, err)
	}
	return nil
}

func (r *Roster) clock(now time.Time) time.Duration {
	return r.heard + min(now.Sub(r.last), r.gap)
}

func (r *Roster) takeMember(node string, e Entry) error {
	known := r.members[node]
	switch {
	case e.Deleted && !e.Purged && known != nil && known.member.Roles.Has(Hold) && !known.member.Stopped && r.heard-known.since < r.expiry:
		return nil // nobody deletes it that way: it writes its key again, or is silent from now on
	case e.Deleted:
		delete(r.members, node)
		if CheckNode(node) == nil && len(r.gone) < NodesMax {
			r.gone[node] = farewell{e.Revision, r.heard}
		}
		return nil
	}
	m, err := DecodeMember(node, e.Value)
	if err == nil && known == nil && len(r.members) >= NodesMax {
		err = fmt.Errorf("there are %d members, no more are looked at", NodesMax)
	}
	if err != nil {
		if r.listing != nil && known != nil {
			r.listing[node] = true // a known member is silent, not gone
		}
		return err
	}
	if r.listing != nil {
		r.listing[node] = true
	}
	if known == nil || known.revision != e.Revision || known.nanos != e.Nanos {
		r.members[node] = &sighted{m, e.Revision, e.Nanos, r.heard, r.last}
	}
	delete(r.gone, node)
	return nil
}

func (r *Roster) takeDrain(node string, e Entry) error {
	if e.Deleted {
		delete(r.drained, node)
		return nil
	}
	if len(r.drained) >= NodesMax {
		return fmt.Errorf("%d nodes are drained, no more are looked at", NodesMax)
	}
	if err := CheckNode(node); err != nil {
		return err
	}
	r.drained[node] = true
	return nil
}

// takeAssignment takes what is stored, unless a newer assignment is known: the process that
// decides writes that one again.
func (r *Roster) takeAssignment(e Entry) error {
	r.revision, r.stored = e.Revision, false
	if e.Deleted {
		return nil
	}
	a, err := DecodeAssignment(e.Value)
	if known := r.assignment.Epoch; err == nil && a.Epoch < known {
		err = fmt.Errorf("epoch %d came after epoch %d", a.Epoch, known)
	}
	if err == nil {
		r.assignment, r.stored = a, true
	}
	return err
}

// Session is that of the process that a member's key is of; "": there is no such key.
func (r *Roster) Session(node string) string {
	if s := r.members[node]; s != nil {
		return s.member.Session
	}
	return ""
}

// Others are the members known now, but for one, those that have stopped left out.
func (r *Roster) Others(than string) (others []*Member) {
	for node, s := range r.members {
		if node != than && !s.member.Stopped {
			others = append(others, s.member)
		}
	}
	return others
}

// Silent is how long nothing has been heard.
func (r *Roster) Silent(now time.Time) time.Duration { return now.Sub(r.last) }

// View is what is known now.
func (r *Roster) View(now time.Time) *View {
	clock := r.clock(now)
	v := &View{
		Members: make([]State, 0, len(r.members)), Degrade: r.degrade,
		Drained: slices.Sorted(maps.Keys(r.drained)), Gone: slices.Sorted(maps.Keys(r.gone)),
		Assignment: r.assignment, Stored: r.stored, Revision: r.revision,
		Settled: clock-r.begun >= r.expiry,
	}
	for node, s := range r.members {
		state := State{Member: s.member, Drained: r.drained[node], Unseen: clock - s.since, Heard: s.heard}
		switch {
		case s.member.Stopped || state.Unseen >= r.expiry:
			state.Status = Away
		case state.Drained:
			state.Status = Draining
		}
		v.Members = append(v.Members, state)
	}
	slices.SortFunc(v.Members, func(a, b State) int { return strings.Compare(a.Node, b.Node) })
	if r.previous != nil {
		v.Layout = r.previous.Layout
		if !sameLayout(r.previous, v) {
			v.Layout++
		}
	}
	r.previous = v
	return v
}

func sameLayout(a, b *View) bool {
	return a.Degrade == b.Degrade && a.Assignment.Epoch == b.Assignment.Epoch && a.Assignment.same(&b.Assignment) &&
		slices.EqualFunc(a.Members, b.Members, func(a, b State) bool {
			return a.Node == b.Node && a.Session == b.Session && a.Status == b.Status && (a.Member == b.Member ||
				a.Ready == b.Ready && a.Failed == b.Failed && a.Behind == b.Behind && a.Epoch == b.Epoch && a.Roles == b.Roles && maps.Equal(a.Formats, b.Formats))
		})
}

// Forgotten are members whose keys have said nothing for longer than age, with their
// revisions: those deleted, and those away that hold nothing.
func (r *Roster) Forgotten(now time.Time, age time.Duration) (deleted, away map[string]uint64) {
	clock := r.clock(now)
	deleted, away = make(map[string]uint64), make(map[string]uint64)
	for node, f := range r.gone {
		if clock-f.since > age {
			deleted[node] = f.revision
		}
	}
	for node, s := range r.members {
		if clock-s.since > age && !s.member.Roles.Has(Hold) {
			away[node] = s.revision
		}
	}
	return deleted, away
}

// Tidied says that the marks of these deleted members are gone from the bucket.
func (r *Roster) Tidied(deleted map[string]uint64) {
	for node, revision := range deleted {
		if r.gone[node].revision == revision {
			delete(r.gone, node)
		}
	}
}
