package cold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// gather is a [Sink]: it keeps what a shard hands over, encoded, until all of
// it is sorted and written as one run.
type gather struct {
	store  *Store
	number pipeline.Shard
	state  State
	ended  bool

	rows   [][]entry                // by the schema's counter
	plain  [run.Second + 1][]entry  // by kind: those whose keys are numbers
	named  [run.Second + 1][]byName // Cursor and Notice
	sets   [][]member               // by set
	values []byte
	spare  []entry // what sorting needs
	order  []entry // as well, of members
}

// entry is an entry whose key is one or two numbers. where is the offset of its
// value, in 40 bits, the value's length, in 23, and whether it is gone.
type entry struct{ a, b, where uint64 }

// member is an entry whose key is two or three numbers.
type member struct {
	entry
	c uint64
}

// byName is an entry whose key ends in a name.
type byName struct {
	entry
	name string
}

func (g *gather) reset(s *Store, number pipeline.Shard) {
	g.store, g.number, g.state, g.ended = s, number, State{}, false
	g.rows = slices.Grow(g.rows[:0], len(s.counters))[:len(s.counters)]
	for i := range g.rows {
		g.rows[i] = g.rows[i][:0]
	}
	g.sets = slices.Grow(g.sets[:0], len(s.sets))[:len(s.sets)]
	for i := range g.sets {
		g.sets[i] = g.sets[i][:0]
	}
	for kind := range g.plain {
		g.plain[kind] = g.plain[kind][:0]
		clear(g.named[kind])
		g.named[kind] = g.named[kind][:0]
	}
	g.values = g.values[:0]
}

// since is where, for the value that was appended from an offset on.
func (g *gather) since(from int) uint64 { return uint64(from)<<24 | uint64(len(g.values)-from)<<1 }

// put appends an entry's numbers; gone says it is a deletion.
func (g *gather) put(gone bool, numbers ...uint64) (where uint64) {
	from := len(g.values)
	if gone {
		return uint64(from)<<24 | 1
	}
	g.values = run.AppendNumbers(g.values, numbers...)
	return g.since(from)
}

func (g *gather) add(kind run.Kind, a, b, where uint64) {
	g.plain[kind] = append(g.plain[kind], entry{a, b, where})
}

// Row implements [Sink].
func (g *gather) Row(counter int, id uint64, cells []int64) {
	from := len(g.values)
	g.values = run.AppendWhole(g.values, g.store.counters[counter].numbers, cells)
	g.rows[counter] = append(g.rows[counter], entry{a: id, where: g.since(from)})
}

// Change implements [Sink].
func (g *gather) Change(counter int, id uint64, deltas []pipeline.Delta) {
	from := len(g.values)
	g.values = run.AppendChange(g.values, g.store.counters[counter].numbers, deltas)
	g.rows[counter] = append(g.rows[counter], entry{a: id, where: g.since(from)})
}

// Following implements [Sink].
func (g *gather) Following(user, followee uint64, since pipeline.Position) {
	g.add(run.Following, user, followee, g.put(since == 0, uint64(since)))
}

// Follower implements [Sink].
func (g *gather) Follower(user, follower uint64, follows bool) {
	g.add(run.Follower, user, follower, g.put(!follows))
}

// Post implements [Sink].
func (g *gather) Post(author uint64, position pipeline.Position, post uint64) {
	g.add(run.Post, author, uint64(position), g.put(post == 0, post))
}

// Marks implements [Sink].
func (g *gather) Marks(user uint64, marks [4]uint64) {
	g.add(run.Marks, user, 0, g.put(false, marks[:]...))
}

// Cursor implements [Sink].
func (g *gather) Cursor(user uint64, channel string, position pipeline.Position) {
	g.named[run.Cursor] = append(g.named[run.Cursor], byName{entry{a: user, where: g.put(false, uint64(position))}, channel})
}

// Notice implements [Sink].
func (g *gather) Notice(channel string, notice uint64, position pipeline.Position) {
	g.named[run.Notice] = append(g.named[run.Notice], byName{entry{a: notice, where: g.put(position == 0, uint64(position))}, channel})
}

// Second implements [Sink].
func (g *gather) Second(second int64, position pipeline.Position) {
	g.add(run.Second, uint64(second), 0, g.put(position == 0, uint64(position)))
}

// Member implements [Sink].
func (g *gather) Member(column pipeline.Column, id uint64, m pipeline.Member, second int64, there bool) {
	set := g.store.setOf[column]
	where := uint64(0)
	if there && g.store.sets[set].Kind == run.Kept {
		where = g.put(false, uint64(second))
	} else {
		where = g.put(!there)
	}
	g.sets[set] = append(g.sets[set], member{entry{id, m.A, where}, m.B})
}

// Item implements [Sink].
func (g *gather) Item(column pipeline.Column, id uint64, i *shard.Item, there bool) {
	set, from := g.store.setOf[column], len(g.values)
	where := uint64(from)<<24 | 1
	if there {
		g.values = appendItem(g.values, &g.store.schema.Columns[column].Set, i)
		where = g.since(from)
	}
	g.sets[set] = append(g.sets[set], member{entry: entry{id, run.Newest(uint64(i.Position)), where}})
}

// Empty implements [Sink].
func (g *gather) Empty(column pipeline.Column, id uint64) {
	set := g.store.setOf[column]
	g.sets[set] = append(g.sets[set], member{entry: entry{a: id, where: g.put(true)}})
}

// State implements [Sink].
func (g *gather) State(state State) { g.state, g.ended = state, true }

// keyBytes is about what the key of an entry takes in a run, with its part of
// the index and the filter.
const keyBytes = 16

// bytes is about how large the run will be; 0 says that nothing but a state was
// handed over.
func (g *gather) bytes() int64 {
	n := 0
	for _, rows := range g.rows {
		n += len(rows)
	}
	for kind := range g.plain {
		n += len(g.plain[kind]) + len(g.named[kind])
	}
	for _, members := range g.sets {
		n += len(members)
	}
	return int64(n)*keyBytes + int64(len(g.values))
}

func (g *gather) empty() bool { return g.bytes() == 0 }

// write writes all of it, sorted, of what came twice the last.
func (g *gather) write(w *run.Writer) error {
	for number, counter := range g.store.byNumber {
		if counter < 0 {
			continue
		}
		if err := g.writePlain(w, run.Key{Kind: run.Row, Counter: uint8(number)}, g.rows[counter]); err != nil {
			return err
		}
	}
	for kind := run.Row + 1; kind <= run.Second; kind++ {
		err := g.writePlain(w, run.Key{Kind: kind}, g.plain[kind])
		if err == nil {
			err = g.writeNamed(w, run.Key{Kind: kind}, g.named[kind])
		}
		if err != nil {
			return err
		}
	}
	for i := range g.sets {
		if err := g.writeSet(w, g.store.sets[i].Key, g.sets[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g *gather) writePlain(w *run.Writer, key run.Key, entries []entry) error {
	g.spare = slices.Grow(g.spare[:0], len(entries))
	entries = sortEntries(entries, g.spare[:len(entries)])
	for i, e := range entries {
		if i+1 < len(entries) && entries[i+1].a == e.a && entries[i+1].b == e.b {
			continue
		}
		key.A, key.B = e.a, e.b
		if err := w.Add(&key, g.value(e), e.where&1 != 0); err != nil {
			return err
		}
	}
	return nil
}

func (g *gather) writeNamed(w *run.Writer, key run.Key, entries []byName) error {
	slices.SortStableFunc(entries, func(x, y byName) int {
		return cmp.Or(cmp.Compare(x.a, y.a), strings.Compare(x.name, y.name))
	})
	for i, e := range entries {
		if i+1 < len(entries) && entries[i+1].a == e.a && entries[i+1].name == e.name {
			continue
		}
		key.A, key.Name = e.a, e.name
		if err := w.Add(&key, g.value(e.entry), e.where&1 != 0); err != nil {
			return err
		}
	}
	return nil
}

// writeSet writes what came of a set or of lists: marks, and members or items.
func (g *gather) writeSet(w *run.Writer, key run.Key, members []member) error {
	if len(members) == 0 {
		return nil
	}
	order, ranks := g.sort(members), g.store.ranks()
	for i, at := range order {
		m := &members[at.where]
		if i+1 < len(order) && order[i+1].a == m.a && order[i+1].b == m.b && members[order[i+1].where].c == m.c {
			continue
		}
		key.A, key.B, key.C = m.a, m.b, m.c
		gone := m.where&1 != 0
		if ranks.left(&key, gone) {
			continue
		}
		if err := w.Add(&key, g.value(m.entry), gone); err != nil {
			return err
		}
	}
	return nil
}

// sort sorts members by a, then b, then c; where says which member it is. As the
// sort leaves equal keys in their order, c is sorted by first, where it differs.
func (g *gather) sort(members []member) (order []entry) {
	g.order, g.spare = slices.Grow(g.order[:0], len(members)), slices.Grow(g.spare[:0], len(members))
	order, spare := g.order[:len(members)], g.spare[:len(members)]
	for i := range members {
		order[i] = entry{b: members[i].c, where: uint64(i)}
	}
	byC := sortEntries(order, spare)
	for i := range byC {
		m := &members[byC[i].where]
		byC[i].a, byC[i].b = m.a, m.b
	}
	if &byC[0] != &order[0] {
		order, spare = spare, order
	}
	return sortEntries(order, spare)
}

func (g *gather) value(e entry) []byte {
	from := e.where >> 24
	return g.values[from : from+e.where>>1&(1<<23-1)]
}

// sortEntries sorts by a, then b, and leaves those with equal keys in their
// order. It is a radix sort by the bytes in which keys differ at all, about
// 3 ns for an entry and such a byte; what it returns is one of the two slices,
// which must be as long as each other.
func sortEntries(entries, spare []entry) []entry {
	var differ entry
	for _, e := range entries {
		differ.a |= e.a ^ entries[0].a
		differ.b |= e.b ^ entries[0].b
	}
	for shift := range 8 {
		if shift := 8 * shift; differ.b>>shift&0xff != 0 {
			var next [256]int
			for i := range entries {
				next[byte(entries[i].b>>shift)]++
			}
			sums(&next)
			for _, e := range entries {
				at := &next[byte(e.b>>shift)]
				spare[*at] = e
				*at++
			}
			entries, spare = spare, entries
		}
	}
	for shift := range 8 {
		if shift := 8 * shift; differ.a>>shift&0xff != 0 {
			var next [256]int
			for i := range entries {
				next[byte(entries[i].a>>shift)]++
			}
			sums(&next)
			for _, e := range entries {
				at := &next[byte(e.a>>shift)]
				spare[*at] = e
				*at++
			}
			entries, spare = spare, entries
		}
	}
	return entries
}

// sums turns how many there are of each byte into where they begin.
func sums(next *[256]int) {
	at := 0
	for i, n := range next {
		next[i] = at
		at += n
	}
}

// check says whether what was handed over can be committed.
func (g *gather) check() error {
	if !g.ended {
		return fmt.Errorf("cold: shard %d handed over no state", g.number)
	}
	_, err := g.store.stacks[g.number].State()
	return err
}
