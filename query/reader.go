package query

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Reader is the state that answers come from: one node's shards, or several
// nodes' put together. All methods may be called concurrently.
type Reader interface {
	// Applied is a position that every later answer of this node reflects:
	// all events at or before it (I6). It never goes back and costs no more
	// than a few atomic loads.
	Applied() pipeline.Position

	// WaitApplied blocks until Applied() >= p, or returns ctx's error when
	// ctx ends first. Any other error means that p cannot be reached.
	WaitApplied(ctx context.Context, p pipeline.Position) error

	// Rows reads columns of one counter for ids into rows, in the order of
	// ids, the same id as often as it is asked. It calls rows.Reset first and
	// keeps neither ids nor columns nor rows. It may block for as long as a
	// disk read takes.
	//
	// An id whose shard is stopped goes to rows.Missing and is no error: an
	// error means that there is no answer at all, and rows is void.
	//
	// An answer that is put together from parts (shards, nodes) reaches as
	// far as the part that is furthest behind: AsOf is their minimum, and at
	// least what Applied() was when Rows was called.
	Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *Rows) error
}

// Rows is a Reader's answer: a matrix of ids by columns. It belongs to the
// caller, who uses it again and again; Reset keeps its memory.
type Rows struct {
	// Values holds column j of the i-th id at [i*columns+j], as it is stored:
	// a sum may be below zero for a while. It means nothing where !Exist[i].
	Values []int64
	// Exist tells whether the i-th id has a row at all.
	Exist []bool
	// Missing lists the indexes of ids that could not be read, in any order,
	// each once.
	Missing []int
	// AsOf is the position that the answer reaches.
	AsOf pipeline.Position
}

// Reset makes room for an answer of that size: all values 0, no row exists,
// nothing is missing.
func (r *Rows) Reset(ids, columns int) {
	r.Values = zeroed(r.Values, ids*columns)
	r.Exist = zeroed(r.Exist, ids)
	r.Missing = r.Missing[:0]
	r.AsOf = 0
}

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Publisher puts events into the log. It is for tidemark.read, which answers
// with the position that it got; no other endpoint writes.
//
// Publish returns when the event is stored in EVENTS. An error means that it
// is not known whether it was. Event is one JSON object and is not kept.
// It may be called concurrently.
type Publisher interface {
	Publish(ctx context.Context, event []byte) (pipeline.Position, error)
}
