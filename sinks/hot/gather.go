package hot

import (
	"encoding/binary"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// gatherChunk is how many ids Gather has on the way at once. Each round
	// ends with a miss that nothing overlaps, so there should be many; but
	// what is loaded for them, some 200 bytes each, should stay in the first
	// cache.
	gatherChunk = 128
	// gatherBytes is how much of a segment Gather loads for an id in a round:
	// two or three cache lines, in which three of four rows are found.
	gatherBytes = 128
)

// Gather puts word 0 of each id (the A of a pair, never 0) into out, 0 when it
// is not there: an id is in the table that pipeline.ShardOf chooses. It marks
// nothing as used. The tables are alike, with one word at least; callers hold
// the read locks of all.
//
// Nearly every id is a cache miss, and to wait for each takes some ten times as
// long as memory needs to answer many. So ids go in rounds: a first loop
// computes where their rows' homes are; a second one loads from there, without
// a branch that depends on what it loads, so that the processor runs far ahead;
// a third one compares, and the few that stand further on go into the next
// round.
func Gather(tables []*Lists, ids []Pair, out []uint64) {
	for len(ids) > 0 {
		n := min(len(ids), gatherChunk)
		gather(tables, ids[:n], out[:n])
		ids, out = ids[n:], out[n:]
	}
}

func gather(tables []*Lists, ids []Pair, out []uint64) {
	var (
		rows [gatherChunk][]byte // of each id: its segment from where its row may stand
		late [gatherChunk]uint8  // ids that were not found yet
		n    int
	)
	gatherHomes(tables, ids, out, &rows)
	gatherFetch(rows[:len(ids)])
	g := gazeOf(tables[0])
	for i := range ids {
		var ok bool
		if out[i], ok = g.look(rows[i], out[i]); !ok {
			late[n&(gatherChunk-1)] = uint8(i)
			n++
		}
	}
	for round := 1; n > 0; round++ {
		n = g.again(tables, ids, out, &rows, late[:n], round)
	}
}

// gatherHomes finds where the rows of ids should stand, and what their last
// words are.
func gatherHomes(tables []*Lists, ids []Pair, wants []uint64, rows *[gatherChunk][]byte) {
	n := uint64(len(tables))
	for i, p := range ids {
		h := pipeline.Mix(p.A)
		shard := h & (n - 1)
		if n&(n-1) != 0 { // pipeline.ShardOf, but most numbers of shards need no division
			shard = h % n
		}
		x := &tables[shard].index
		s, at := x.home(h)
		rows[i&(gatherChunk-1)] = s.buf[at*s.stride:]
		wants[i] = s.field(h)
	}
}

// gatherFetch loads from rows, for the cache only. It returns something, and is
// not inlined where that is ignored, or the compiler would leave the loads out.
//
//go:noinline
func gatherFetch(rows [][]byte) (sum byte) {
	for _, row := range rows {
		if len(row) >= gatherBytes {
			sum += row[0] + row[gatherBytes/2] + row[gatherBytes-1]
		}
	}
	return sum
}

// gatherFetchLate is gatherFetch for the late ones.
//
//go:noinline
func gatherFetchLate(rows *[gatherChunk][]byte, late []uint8) (sum byte) {
	for _, i := range late {
		if row := rows[i&(gatherChunk-1)]; len(row) >= gatherBytes {
			sum += row[0] + row[gatherBytes/2] + row[gatherBytes-1]
		}
	}
	return sum
}

// gaze is how far Gather looks in one round.
type gaze struct {
	stride int
	span   int // whole rows, in bytes
	least  int // bytes that a segment must go on for, so that the span is all rows
}

func gazeOf(b *Lists) gaze {
	stride := b.index.least
	span := max(gatherBytes/stride, 1) * stride
	return gaze{stride: stride, span: span, least: span + stride + spare}
}

// look looks for a row in one span, by its last word, which is then in the place
// of the result; ok is false when it may stand further on, or at the segment's
// beginning.
func (g gaze) look(rows []byte, want uint64) (word uint64, ok bool) {
	if len(rows) < g.least {
		return want, false
	}
	for at := 0; at < g.span; at += g.stride {
		switch binary.LittleEndian.Uint64(rows[at+g.stride-8:]) {
		case want:
			return rowWord(rows[at:], 0), true
		case 0:
			return 0, true
		}
	}
	return want, false
}

// again looks one span further on for the late ids of a chunk, and returns how
// many of them are left.
func (g gaze) again(tables []*Lists, ids []Pair, out []uint64, rows *[gatherChunk][]byte, late []uint8, round int) int {
	n, places := 0, round*g.span/g.stride
	for _, i := range late {
		row := &rows[i&(gatherChunk-1)]
		switch {
		case len(*row) < g.least: // the segment ends
			out[i] = gatherOne(tables, ids[i].A)
		case round > 1 && gatherPast(tables, ids[i].A, places-1): // in round 1 most are not
			out[i] = 0
		default:
			*row = (*row)[g.span:]
			late[n] = i
			n++
		}
	}
	late, n = late[:n], 0
	gatherFetchLate(rows, late)
	for _, i := range late {
		var ok bool
		if out[i], ok = g.look(rows[i&(gatherChunk-1)], out[i]); !ok {
			late[n] = i
			n++
		}
	}
	return n
}

// gatherPast says that an id's row does not stand behind the nth place from its
// home, by the row that stands there.
func gatherPast(tables []*Lists, id uint64, n int) bool {
	h := pipeline.Mix(id)
	x := &tables[pipeline.ShardOf(id, len(tables))].index
	s, at := x.home(h)
	return s.past(at+n, n, h)
}

// gatherOne is word 0 of an id, 0 when it is not there.
func gatherOne(tables []*Lists, id uint64) uint64 {
	x := &tables[pipeline.ShardOf(id, len(tables))].index
	if row, ok := x.find1(id); ok {
		return rowWord(row, 0)
	}
	return 0
}
