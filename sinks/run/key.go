package run

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
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
)

// Key is what an entry is found by. Fields that the kind does not have are 0.
type Key struct {
	Kind    Kind
	Counter uint8 // of a Row: the dictionary's number
	A, B    uint64
	Name    string
}

// Compare is negative where k comes before o, by Kind, Counter, A, B, Name.
func (k *Key) Compare(o *Key) int {
	if c := cmp.Compare(uint(k.Kind)<<8|uint(k.Counter), uint(o.Kind)<<8|uint(o.Counter)); c != 0 {
		return c
	}
	if k.A != o.A {
		return cmp.Compare(k.A, o.A)
	}
	if k.B != o.B {
		return cmp.Compare(k.B, o.B)
	}
	return strings.Compare(k.Name, o.Name)
}

// ErrCorrupt wraps every complaint about stored bytes.
var ErrCorrupt = errors.New("cold: corrupt value")

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
