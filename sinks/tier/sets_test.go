package tier_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// sets are the columns of which rules say `once`, in tests.
var sets = map[string]pipeline.SetSpec{
	"post.once": {Members: pipeline.MembersIDs},
	"user.pair": {Members: pipeline.MembersPairs},
	"post.kept": {Members: pipeline.MembersTokens, Keep: setsKeep},
}

// setsKeep is how many seconds members of post.kept are remembered.
const setsKeep = 3

// setsTwin is what the sets of columns have, in maps: of each row its members, with the
// second in which they came, and its number.
type setsTwin struct {
	schema *pipeline.Schema
	rows   map[pipeline.Column]map[uint64]map[pipeline.Member]int64
	counts map[pipeline.Column]map[uint64]int64
}

func newSetsTwin(schema *pipeline.Schema) *setsTwin {
	t := &setsTwin{schema, map[pipeline.Column]map[uint64]map[pipeline.Member]int64{}, map[pipeline.Column]map[uint64]int64{}}
	for _, column := range schema.Sets() {
		t.rows[column], t.counts[column] = map[uint64]map[pipeline.Member]int64{}, map[uint64]int64{}
	}
	return t
}

// operation appends one that changes a set, or a number beside it, and does the same
// to the twin.
func (t *setsTwin) operation(r *rand.Rand, section []byte, from, at pipeline.Position, second int64) []byte {
	column := t.schema.Sets()[r.IntN(len(t.schema.Sets()))]
	id := 1 + r.Uint64N(twinIDs)
	m := t.member(r, column, id)
	rows, counts := t.rows[column], t.counts[column]
	if rows[id] == nil {
		rows[id] = map[pipeline.Member]int64{}
	}
	came, there := rows[id][m]
	there = there && !t.forgot(column, came, second)
	o := pipeline.Operation{Op: pipeline.OpAdd, ID: id, Column: int(column), Member: m, By: 1, Position: at}
	switch r.IntN(12) {
	case 0:
		clear(rows[id])
		o = pipeline.Operation{Op: pipeline.OpEmpty, ID: id, Column: int(column)}
	case 1: // as an adjust does
		counts[id] += 10
		return pipeline.AppendChange(section, int(column), id, pipeline.Add(10))
	case 2, 3, 4, 5:
		o.Op = pipeline.OpTake
		if there {
			delete(rows[id], m)
			counts[id]--
		}
	default:
		if o.By = 1 + r.Int64N(2); !there {
			rows[id][m] = second
			counts[id] += o.By
		}
	}
	return pipeline.AppendOperation(section, from, &o)
}

// alike are two members of each set that have the same print in its filter.
var alike = sync.OnceValue(func() (pairs [1 + twinIDs][2]uint64) {
	for id := range pairs {
		seen := map[hot.Print]uint64{}
		for a := uint64(1); pairs[id][0] == 0; a++ {
			print := hot.PrintOf(uint64(id), pipeline.Member{A: a})
			if seen[print] != 0 {
				pairs[id] = [2]uint64{seen[print], a}
			}
			seen[print] = a
		}
	}
	return pairs
})

func (t *setsTwin) member(r *rand.Rand, column pipeline.Column, id uint64) pipeline.Member {
	if r.IntN(3) == 0 {
		return pipeline.Member{A: alike()[id][r.IntN(2)]}
	}
	m := pipeline.Member{A: 1 + r.Uint64N(9)}
	if t.schema.Columns[column].Set.Wide() {
		m.B = r.Uint64N(3)
	}
	return m
}

func (t *setsTwin) forgot(column pipeline.Column, came, now int64) bool {
	keep := t.schema.Columns[column].Set.Keep
	return keep > 0 && now-came > keep
}

// compare asks a shard about sets, as of a second.
func (t *setsTwin) compare(r *rand.Rand, s *tier.Shard, now int64) error {
	ids := make([]uint64, twinIDs)
	for i := range ids {
		ids[i] = uint64(i) + 1
	}
	for _, column := range t.schema.Sets() {
		if err := t.compareRows(r, s, column, ids, now); err != nil {
			return err
		}
		id := ids[r.IntN(len(ids))]
		if err := t.compareList(s, column, id, t.member(r, column, id), 1+r.IntN(5), now); err != nil {
			return err
		}
	}
	return nil
}

func (t *setsTwin) compareList(s *tier.Shard, column pipeline.Column, id uint64, after pipeline.Member, limit int, now int64) error {
	var want []pipeline.Member
	for m, came := range t.rows[column][id] {
		if m.Compare(after) > 0 && !t.forgot(column, came, now) {
			want = append(want, m)
		}
	}
	slices.SortFunc(want, pipeline.Member.Compare)
	members, more, _, err := s.Members(column, id, after, limit, onDisk())
	if err != nil {
		return err
	}
	if !slices.Equal(members, want[:min(limit, len(want))]) || more != (len(want) > limit) {
		return fmt.Errorf("%s of %d above %v, %d: %v, %v; want %v", t.schema.FullName(column), id, after, limit, members, more, want)
	}
	return nil
}

// compareRows reads counts and members of a column at once: no member, one or several.
func (t *setsTwin) compareRows(r *rand.Rand, s *tier.Shard, column pipeline.Column, ids []uint64, now int64) (err error) {
	counter := t.schema.Columns[column].Counter
	var b tier.Batch
	for range r.IntN(4) {
		b.Sets = append(b.Sets, pipeline.MemberOf{Column: column, Member: t.member(r, column, ids[0])})
	}
	_, failed := s.Read(counter, ids, &b, onDisk(), func(i int, cells []int64) {
		if is, want := cells[column-t.schema.Counters[counter].First], t.counts[column][ids[i]]; is != want && err == nil {
			err = fmt.Errorf("%s of %d is %d, want %d", t.schema.FullName(column), ids[i], is, want)
		}
	})
	if failed != nil {
		return failed
	}
	for i, id := range ids {
		for j, of := range b.Sets {
			came, there := t.rows[column][id][of.Member]
			if there = there && !t.forgot(column, came, now); b.Has(i)[j] != there {
				return fmt.Errorf("%s of %d: member %v is there: %v, want %v", t.schema.FullName(column), id, of.Member, b.Has(i)[j], there)
			}
		}
	}
	return err
}
