package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Status is how a member looks to one observer.
type Status uint8

// The states. Away comes before draining.
const (
	Up       Status = iota
	Away            // stopped in order, or silent for the expiry
	Draining        // up, and to hold nothing
)

func (s Status) String() string { return [...]string{"up", "away", "draining"}[s] }

// ErrNobody: nothing can be asked yet.
var ErrNobody = errors.New("no node that holds counters is known")

// State is a member as one observer sees it.
type State struct {
	*Member // never nil; nobody changes it
	Status  Status
	Drained bool          // to hold nothing, up or away
	Unseen  time.Duration // since its key last changed, by the observer's own watch, when the view was made
	Heard   time.Time     // when its key last changed: unlike Unseen it grows old while nothing is heard of anybody
}

// Reads is how far queries are answered.
type Reads string

// Writes says whether events are taken in.
type Writes string

// The steps that are set by hand for all nodes.
const (
	ReadsAll    Reads = "all"
	ReadsMemory Reads = "memory" // what is only on disk is missing
	ReadsOff    Reads = "off"

	WritesOn     Writes = "on"
	WritesRefuse Writes = "refuse"
)

// Degrade is what all nodes must leave undone. Its JSON is
// {"reads":"all","writes":"on"}.
type Degrade struct {
	Reads  Reads  `json:"reads"`
	Writes Writes `json:"writes"`
}

// Normal is everything done.
var Normal = Degrade{ReadsAll, WritesOn}

// Check refuses what is no step.
func (d Degrade) Check() error {
	if !slices.Contains([]Reads{ReadsAll, ReadsMemory, ReadsOff}, d.Reads) {
		return fmt.Errorf("reads is %.20q, must be all, memory or off", string(d.Reads))
	}
	if d.Writes != WritesOn && d.Writes != WritesRefuse {
		return fmt.Errorf("writes is %.20q, must be on or refuse", string(d.Writes))
	}
	return nil
}

// DecodeDegrade is what a value of DegradeKey says; with an error, Normal.
func DecodeDegrade(b []byte) (d Degrade, err error) {
	if err = json.Unmarshal(b, &d); err == nil {
		err = d.Check()
	}
	if err != nil {
		return Normal, fmt.Errorf("cluster: degrade: %w", err)
	}
	return d, nil
}

// View is what one observer knows at one moment. Nobody changes it.
type View struct {
	Members []State // by name
	Drained []string
	Gone    []string // nodes that left or were forgotten, as long as the bucket has marks of them
	Degrade Degrade

	// Assignment is the last one known. It is the one in the bucket, under
	// Revision, unless Stored is false: the bucket was deleted, or somebody wrote
	// something else. Revision is what the next write must replace.
	Assignment Assignment
	Stored     bool
	Revision   uint64

	// Settled: each process that is up has had the time to say so since the bucket was
	// made, or this observer began.
	Settled bool

	// Layout counts the changes of who answers what: views with the same number
	// give the same Answering.
	Layout uint64
}

// Member finds a member by its name.
func (v *View) Member(node string) (State, bool) {
	i, found := slices.BinarySearchFunc(v.Members, node, func(s State, name string) int { return strings.Compare(s.Node, name) })
	if !found {
		return State{}, false
	}
	return v.Members[i], true
}

// Answering lists who can be asked about a shard: members that are not away and
// say that they are ready. Those assigned come first, the most preferred first;
// then those that have it still. Members that lag are listed only where
// no other is: their answers are old.
func (v *View) Answering(s pipeline.Shard) []string {
	names, behind := v.answering(s)
	if names == nil {
		return behind
	}
	return names
}

// Behind lists who can be asked about a shard when none of Answering is left after
// all: members that have it and lag. It is nil where these are the answering.
func (v *View) Behind(s pipeline.Shard) []string {
	names, behind := v.answering(s)
	if names == nil {
		return nil
	}
	return behind
}

func (v *View) answering(s pipeline.Shard) (names, behind []string) {
	add := func(m State) {
		switch {
		case !m.answers(s):
		case m.Behind:
			behind = append(behind, m.Node)
		default:
			names = append(names, m.Node)
		}
	}
	holders := v.Assignment.Holders(s)
	for _, name := range holders {
		if m, there := v.Member(name); there {
			add(m)
		}
	}
	for _, m := range v.Members {
		if !slices.Contains(holders, m.Node) {
			add(m)
		}
	}
	return names, behind
}

func (s State) answers(shard pipeline.Shard) bool {
	return s.Status != Away && s.Ready.Has(shard)
}

// Freshness is how old an answer may be that is not said to be degraded, whichever member
// gives it: the longest that one says. Those away count, because they may go on as they are.
func (v *View) Freshness() (longest time.Duration) {
	for _, m := range v.Members {
		if !m.Stopped {
			longest = max(longest, time.Duration(m.FreshnessMS)*time.Millisecond)
		}
	}
	return longest
}

// LetGo are, of the shards that a node has, those that it should not have and
// need not keep: all to whom they are assigned answer for them and do not lag.
//
// What they say counts only if they act on this assignment: by an earlier one they may
// be about to let go of the shard themselves, because this node has it. A member that
// gives up a shard must stop saying that it is ready for it before it looks at the view
// by which it gives it up.
func (v *View) LetGo(node string, has ShardSet) (set ShardSet) {
	for s := range has.All() {
		holders := v.Assignment.Holders(s)
		if len(holders) == 0 || slices.Contains(holders, node) {
			continue
		}
		waits := slices.ContainsFunc(holders, func(name string) bool {
			m, there := v.Member(name)
			return !there || !m.answers(s) || m.Behind || m.Epoch < v.Assignment.Epoch
		})
		if !waits {
			set.Add(s)
		}
	}
	return set
}

// MayHave says whether a member other than node may have a shard for which nobody
// answers: one that is starting and has said nothing yet, or one that had it and has
// been away for no longer than replaceAfter. A node that does not wait for that member
// derives the shard from all of the log.
func (v *View) MayHave(s pipeline.Shard, node string, replaceAfter time.Duration) bool {
	return slices.ContainsFunc(v.Members, func(m State) bool {
		switch {
		case m.Node == node || !m.Roles.Has(Hold):
			return false
		case m.Status != Away:
			return m.Epoch == 0
		}
		return m.Ready.Has(s) && m.Unseen <= replaceAfter
	})
}

// Next is what the process that decides writes: an assignment that is not the
// stored one, or false when there is nothing to write, or not yet.
//
// When no assignment is known, because the bucket was deleted and this process
// has just begun, what the members say that they have takes its place
// (Reported). It waits for them until the view is settled; a cluster that is
// new, where nobody has acted on any assignment, waits for nobody.
func (v *View) Next(o Options) (Assignment, bool) {
	previous := v.Assignment
	if previous.Shards() == 0 {
		previous = v.Reported(o)
	}
	if !v.Settled && (previous.Epoch > 0 && v.Assignment.Shards() == 0 || v.unlisted()) {
		return Assignment{}, false
	}
	next := Decide(previous, v.Members, o)
	ahead := v.ahead(previous.Epoch)
	if len(next.Nodes()) == 0 || v.Stored && next.Epoch == v.Assignment.Epoch && ahead == 0 {
		return Assignment{}, false
	}
	next.Epoch = max(next.Epoch, ahead+1)
	if !v.Stored {
		next.Epoch = max(next.Epoch, previous.Epoch+1) // nobody may take it for the one before
	}
	return next, true
}

// ahead is the newest epoch past one that a member acts on; 0: none does. A process that began
// with a bucket that was restored decides on from an old assignment: members that know a newer
// one follow what is newer still.
func (v *View) ahead(epoch uint64) (newest uint64) {
	for _, m := range v.Members {
		if m.Status != Away && m.Epoch > epoch {
			newest = max(newest, m.Epoch)
		}
	}
	return newest
}

// unlisted says that an assigned holder has said nothing yet, not even farewell.
func (v *View) unlisted() bool {
	return slices.ContainsFunc(v.Assignment.Nodes(), func(name string) bool {
		_, there := v.Member(name)
		return !there && !slices.Contains(v.Gone, name)
	})
}

// Reported is the assignment that the members' own words amount to: a member that is
// ready, or is becoming so, holds. Its epoch is the newest that any of them acts on.
func (v *View) Reported(o Options) Assignment {
	a := Assignment{Replicas: o.Replicas, ByShard: make([][]string, o.Shards)}
	for _, m := range v.Members {
		if m.Shards != o.Shards {
			continue
		}
		a.Epoch = max(a.Epoch, m.Epoch)
		has := m.Ready
		for s := range m.Loading {
			has.Add(s)
		}
		for s := range has.All() {
			a.ByShard[s] = append(a.ByShard[s], m.Node)
		}
	}
	return a
}
