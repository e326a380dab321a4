package sim

import "context"

// Kind is what a call into the fake wants.
type Kind uint8

// The kinds of calls.
const (
	Open    Kind = iota // a reader of EVENTS or DELTAS
	Next                // of a reader
	Tail                // of DELTAS
	Append              // to DELTAS
	Keep                // dead letters
	Acquire             // the lease
	Look                // at a stream's state, or at one message
	Work                // no call at all: a place where code on the fake lets others go first
	Commit              // to a disk
	Put                 // a key of the bucket
	Watch               // the bucket's keys
	Fetch               // of a shard's runs, from another process's disk
	Ask                 // one process, for a part of an answer
)

func (k Kind) String() string {
	return [...]string{"open", "next", "tail", "append", "keep", "acquire", "look", "work", "commit", "put", "watch", "fetch", "ask"}[k]
}

// Call is one call into the fake, before it has done anything.
type Call struct {
	Process int    // the caller: NewClient's number
	Turn    int    // and in which of its lives: Client.Turn
	Kind    Kind   //
	Key     uint64 // distinguishes calls of one process and kind that are made at once

	// Ready says whether there is anything to do: a message to read, a lease
	// to take. nil: always.
	Ready func() bool
	// Land does the call's work when its caller is gone, or believes that it failed: a
	// request that was under way. nil: there is none.
	Land func()
}

// Fate is what becomes of a call. The zero Fate is that all goes well.
type Fate struct {
	Err  error // what the caller gets
	Done bool  // with Err: the work is done all the same, and its acknowledgement lost
	Size int   // of Next: the most messages of the run; 0: as many as the reader's options allow
}

// Gate stands before every call into the fake: it decides which goes on when, and what
// goes wrong with it. Holding back a gate's goroutines one by one makes a schedule that
// is a function of these choices alone.
//
// Pass blocks until the call may go on, or ctx ends: then it returns ctx's
// error, and the call has no effect but what the gate lands itself. A call let
// on before it is Ready takes what it waited for by force (Acquire), or comes
// to the gate again.
type Gate interface {
	Pass(ctx context.Context, c *Call) (Fate, error)
}

// open lets everyone on as soon as there is something to do.
type open struct{ s *Server }

func (g open) Pass(ctx context.Context, c *Call) (Fate, error) {
	for {
		changed := g.s.change()
		if err := ctx.Err(); err != nil {
			return Fate{}, err
		}
		if c.Ready == nil || c.Ready() {
			return Fate{}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
