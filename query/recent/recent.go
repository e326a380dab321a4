// Package recent remembers the newest posts of authors on other nodes, so that
// not every poll asks for them again.
//
// The holder of a user says which authors may have something new, and up to where that
// author's outbox has not changed (query.Followee.Changed): windows say to every holder
// which authors posted or deleted a post. What was listed of the outbox at that
// position or later is still what it is:
//
//	outbox   ──┬──── posts ────┬──────────────┬────────────► log
//	         From            Changed         To
//	           └─ of these all are remembered ─┘└ nothing changed ─► as far as the user's holder knows
package recent

import (
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Outbox is what an author's holder listed.
type Outbox struct {
	From, To pipeline.Position   // all that is listed after From, as of To
	Posts    []pipeline.Position // of these posts, newest first
	Cut      bool                // there are more posts before From, too many to remember
}

// After counts the posts after a position; false where it does not know them all.
func (o *Outbox) After(p pipeline.Position) (n int, knows bool) {
	if p < o.From {
		return 0, false
	}
	for n < len(o.Posts) && o.Posts[n] > p {
		n++
	}
	return n, true
}

// PostsMax is how many posts of an author are remembered, the newest.
const PostsMax = 32

// keep is the outbox as it is remembered, in memory of its own.
func (o Outbox) keep() Outbox {
	if len(o.Posts) > PostsMax {
		o.From, o.Posts, o.Cut = o.Posts[PostsMax], o.Posts[:PostsMax], true
	}
	o.Posts = append([]pipeline.Position(nil), o.Posts...)
	return o
}

const (
	// outboxBytes is what an outbox takes besides its posts, in a map, at most.
	outboxBytes = 160
	// Age is how long an outbox is remembered. Nothing needs it but what changes without
	// a window and without a change of who answers: what a repair found wrong.
	Age = time.Minute
)

// Outboxes are those of many authors. All methods may be called concurrently.
type Outboxes struct {
	begun      time.Time
	mu         sync.RWMutex
	epoch      uint64
	half       int // bytes of young, at most
	bytes      [2]int
	young, old map[uint64]remembered // old goes when young is full
}

type remembered struct {
	Outbox
	asked time.Duration // after begun, which no clock that is set moves
}

// New makes room for so many bytes.
func New(bytes int) *Outboxes {
	return &Outboxes{half: bytes / 2, begun: time.Now(), young: map[uint64]remembered{}}
}

// Ask asks for the posts of an author after a position, of whose outbox nothing has
// changed after another.
type Ask struct {
	Author         uint64
	After, Changed pipeline.Position

	Posts int               // the answer, where it is known
	Known bool              // else there are none
	From  pipeline.Position // of what is remembered, however it is by now; 0: nothing is
	Cut   bool              // not known, and not to be: the author had too many posts since
}

// Answer answers asks, and returns how many of them are not known. epoch numbers the
// assignment of answers: under another one everything is forgotten.
func (o *Outboxes) Answer(asks []Ask, epoch uint64, now time.Time) (unknown int) {
	since := now.Sub(o.begun)
	o.mu.RLock()
	defer o.mu.RUnlock()
	for i := range asks {
		a := &asks[i]
		b, is := o.young[a.Author]
		if !is {
			b, is = o.old[a.Author]
		}
		if is && o.epoch == epoch {
			a.From, a.Cut = b.From, b.Cut && a.After < b.From
			if b.To >= a.Changed && since-b.asked < Age {
				a.Posts, a.Known = b.After(a.After)
			}
		}
		if !a.Known {
			unknown++
		}
	}
	return unknown
}

// Put remembers an outbox that was asked for under an epoch.
func (o *Outboxes) Put(author uint64, b Outbox, epoch uint64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch != o.epoch {
		if epoch < o.epoch {
			return // it was asked of the nodes that answered before
		}
		o.epoch, o.bytes = epoch, [2]int{}
		o.young, o.old = map[uint64]remembered{}, nil
	}
	if was, is := o.young[author]; is {
		if was.To > b.To {
			return
		}
		o.bytes[0] -= size(&was.Outbox)
	}
	b = b.keep()
	o.young[author] = remembered{b, now.Sub(o.begun)}
	if o.bytes[0] += size(&b); o.bytes[0] > o.half {
		o.bytes = [2]int{0, o.bytes[0]}
		o.young, o.old = map[uint64]remembered{}, o.young
	}
}

func size(b *Outbox) int { return outboxBytes + 8*len(b.Posts) }

// Bytes is the memory taken.
func (o *Outboxes) Bytes() int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.bytes[0] + o.bytes[1]
}
