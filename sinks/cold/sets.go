package cold

import (
	"cmp"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// setCodec is where on disk the set of a column is.
type setCodec struct {
	run.Key // its kind and number
	column  pipeline.Column
}

// kindOf is what holds the members of a set.
func kindOf(spec pipeline.SetSpec) run.Kind {
	switch {
	case spec.Items > 0:
		return run.Item
	case spec.Keep > 0:
		return run.Kept
	case spec.Wide():
		return run.Pair
	}
	return run.Member
}

func (s *Store) translateSets() {
	s.sets = nil
	for _, column := range s.schema.Sets() {
		number := s.meta.Dictionary.find(s.schema.FullName(column))
		s.sets = append(s.sets, setCodec{run.Key{Kind: kindOf(s.schema.Columns[column].Set), Counter: uint8(number)}, column})
	}
	slices.SortFunc(s.sets, func(a, b setCodec) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Counter, b.Counter)) })
	s.setOf = slices.Repeat([]int{-1}, len(s.schema.Columns))
	for i := range s.sets {
		s.setOf[s.sets[i].column] = i
	}
}

// forgotten says by the number of a set or list before which second of log time its members
// came that are forgotten at a time, in milliseconds; nil: all are remembered.
func (s *Store) forgotten(time int64) (before map[uint8]uint64) {
	for i := range s.sets {
		c := &s.sets[i]
		if keep := s.schema.Columns[c.column].Set.Keep; keep > 0 && time/1000 > keep {
			if before == nil {
				before = make(map[uint8]uint64)
			}
			before[c.Counter] = uint64(time/1000 - keep)
		}
	}
	return before
}

// key is that of a member of a column's set.
func (s *Store) key(column pipeline.Column, id uint64, m pipeline.Member) run.Key {
	key := s.sets[s.setOf[column]].Key
	key.A, key.B, key.C = id, m.A, m.B
	return key
}

// above is the first key that a member above another one can have; false where there
// is none. Above no member it is that of the mark.
func (s *Store) above(column pipeline.Column, id uint64, after pipeline.Member) (run.Key, bool) {
	key := s.key(column, id, after)
	switch {
	case key.IsMark():
		return key, true
	case key.Kind != run.Member && after.B+1 != 0:
		key.C++
		return key, true
	}
	key.B, key.C = key.B+1, 0
	return key, key.B != 0
}

// Member says whether the set that a column has of an id has a member, and where
// the set forgets, at which second of log time it came.
func (v *View) Member(column pipeline.Column, id uint64, m pipeline.Member) (second int64, there bool, err error) {
	key := v.stack.store.key(column, id, m)
	there, err = v.get(key, func(b []byte) error {
		numbers, err := run.ReadNumbers(key.Kind, b)
		second = int64(numbers[0])
		return err
	})
	return second, there, err
}

// Members visits the members of a set above one, ascending, until visit returns
// false, those too that the set has forgotten and a merge has not dropped yet. It
// costs the same at any depth.
func (v *View) Members(column pipeline.Column, id uint64, after pipeline.Member, visit func(m pipeline.Member, second int64) (more bool)) error {
	from, ok := v.stack.store.above(column, id, after)
	if !ok {
		return nil
	}
	s := v.scan(from, v.layers.all, &scratches, func(r *run.Run) bool { return r.MayOwn(&from) })
	s.seekMember(&from)
	for s.next() && s.key().A == id && visit(s.member()) {
	}
	return s.end()
}

// WalkMembers visits a part of the sets of a column, each member once, by id, those
// too that the set has forgotten and a merge has not dropped yet.
func (v *View) WalkMembers(column pipeline.Column, part *Part, visit func(id uint64, m pipeline.Member, second int64)) error {
	set := v.stack.store.sets[v.stack.store.setOf[column]]
	part.From.Kind, part.From.Counter = set.Kind, set.Counter
	s := v.scan(part.From, v.newest(part), &walkScratches, nil)
	s.seekMember(&part.From)
	return s.walk(part, func(full bool) bool {
		if !full {
			m, second := s.member()
			visit(s.key().A, m, second)
		}
		return !full
	})
}

// member is the entry's.
func (s *scan) member() (m pipeline.Member, second int64) {
	return pipeline.Member{A: s.key().B, B: s.key().C}, int64(s.numbers()[0])
}
