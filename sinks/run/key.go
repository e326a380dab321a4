package run

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Kind says what an entry is about, and with it which fields its key has.
type Kind uint8

// The kinds, in the order in which a run has them.
const (
	Row       Kind = 1 + iota // Counter, A: id → cells
	Following                 // A: user, B: followee → position of the follow
	Follower                  // A: user, B: follower → nothing
	Post                      // A: author, B: position → post
	Marks                     // A: user → feed, all, first, last
	Cursor                    // A: user, Name: channel → position
	Notice                    // A: notice, Name: channel → position
	Second                    // A: Unix second → its first position
	Member                    // Counter: set, A: id, B: member → nothing
	Pair                      // Counter: set, A: id, B and C: member → nothing
	Kept                      // Counter: set, A: id, B and C: member → Unix second at which it came
	Item                      // Counter: list, A: id, B: Newest of a position → AppendItem

	kinds // one more than the last
)

// Key is what an entry is found by. Fields that the kind does not have are 0.
//
// Of the kinds of sets, a key with B = 0 and C = 0 is that of a mark: the set of
// this id was emptied. Such an entry is gone, and so is each member that an older
// run has. Members of the same run came after it. Lists have such marks as well.
type Key struct {
	Kind    Kind
	Counter uint8 // of a Row and of sets: the dictionary's number
	A, B, C uint64
	Name    string
}

// Emptied is the key of the mark that the set which has k's entry was emptied.
func (k *Key) Emptied() Key { return Key{Kind: k.Kind, Counter: k.Counter, A: k.A} }

// IsMark says that k is the key of such a mark.
func (k *Key) IsMark() bool { return k.B|k.C == 0 && forms[k.Kind&kindMask].set }

// form is what a kind's keys and values are made of.
type form struct {
	name    string
	counted bool // the key has Counter
	pair    bool // the key has B
	triple  bool // and C, which may be 0
	set     bool // there are marks
	named   bool // the key has Name
	points  bool // filters have each key (without its name)
	owners  bool // filters have A, once for all entries with it
	bare    bool // there is no value
	newest  bool // B is Newest of a position
	numbers int  // in the value
}

// kindMask makes any Kind an index of forms.
const kindMask = 15

var forms = [kindMask + 1]form{
	Row:       {name: "row", counted: true, points: true},
	Following: {name: "following", pair: true, points: true, owners: true, numbers: 1},
	Follower:  {name: "follower", pair: true, points: true, bare: true},
	Post:      {name: "post", pair: true, owners: true, numbers: 1},
	Marks:     {name: "marks", points: true, numbers: 4},
	Cursor:    {name: "cursor", named: true, owners: true, numbers: 1},
	Notice:    {name: "notice", named: true, numbers: 1},
	Second:    {name: "second", numbers: 1},
	Member:    {name: "member", counted: true, pair: true, set: true, points: true, owners: true, bare: true},
	Pair:      {name: "pair", counted: true, pair: true, triple: true, set: true, points: true, owners: true, bare: true},
	Kept:      {name: "kept", counted: true, pair: true, triple: true, set: true, points: true, owners: true, numbers: 1},
	Item:      {name: "item", counted: true, pair: true, set: true, owners: true, newest: true},
}

// Newest puts positions in order, the newest first. Newest of that is the position again.
func Newest(position uint64) uint64 { return ^position }

// String is the kind's name.
func (k Kind) String() string {
	if k == 0 || k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return forms[k].name
}

// head is what a stretch of entries has in common, in its order.
func (k *Key) head() uint16 { return uint16(k.Kind)<<8 | uint16(k.Counter) }

// Compare is negative where k comes before o, by Kind, Counter, A, B, C, Name.
func (k *Key) Compare(o *Key) int {
	switch {
	case k.head() != o.head():
		return cmp.Compare(k.head(), o.head())
	case k.A != o.A:
		return cmp.Compare(k.A, o.A)
	case k.B != o.B:
		return cmp.Compare(k.B, o.B)
	case k.C != o.C:
		return cmp.Compare(k.C, o.C)
	case len(k.Name)|len(o.Name) == 0:
		return 0
	}
	return strings.Compare(k.Name, o.Name)
}

// equal is Compare = 0.
func (k *Key) equal(o *Key) bool {
	return k.A == o.A && k.B == o.B && k.C == o.C && k.Kind == o.Kind && k.Counter == o.Counter && k.Name == o.Name
}

// String is for messages.
func (k *Key) String() string {
	s := k.Kind.String()
	if forms[k.Kind&kindMask].counted {
		s += fmt.Sprintf(" of counter %d", k.Counter)
	}
	s += fmt.Sprintf(" %d", k.A)
	if forms[k.Kind&kindMask].pair {
		s += fmt.Sprintf(", %d", k.B)
	}
	if forms[k.Kind&kindMask].triple {
		s += fmt.Sprintf(", %d", k.C)
	}
	if forms[k.Kind&kindMask].named {
		s += fmt.Sprintf(", %q", k.Name)
	}
	return s
}

// check says why no entry can have this key. Second 0 is one; nobody has the
// id 0, and nothing has happened at position 0.
func (k *Key) check() error {
	f := &forms[k.Kind&kindMask]
	switch {
	case k.Kind == 0 || k.Kind >= kinds:
		return fmt.Errorf("an entry of %v", k.Kind)
	case !f.counted && k.Counter != 0, !f.pair && k.B != 0, !f.triple && k.C != 0, !f.named && k.Name != "":
		return fmt.Errorf("%v: a field that the kind does not have", k)
	case k.A == 0 && k.Kind != Second, f.pair && k.B == 0 && !k.IsMark():
		return fmt.Errorf("%v: an id or a position of 0", k)
	case k.Kind == Post && k.B > uint64(pipeline.PositionMax):
		return fmt.Errorf("%v: not a position", k)
	case len(k.Name) > pipeline.ChannelBytesMax:
		return fmt.Errorf("%v: a name of %d bytes", k, len(k.Name))
	}
	return nil
}

// ErrCorrupt wraps every complaint about stored bytes.
var ErrCorrupt = errors.New("run: corrupt")

// Damage is what is wrong with a run, and where.
type Damage struct {
	Block int // the block's number in the run; Index for the index
	Err   error
}

// Index is the Block of a Damage in a run's index.
const Index = -1

func (d *Damage) Error() string {
	if d.Block == Index {
		return fmt.Sprintf("index: %v", d.Err)
	}
	return fmt.Sprintf("block %d: %v", d.Block, d.Err)
}

func (d *Damage) Unwrap() error { return d.Err }
