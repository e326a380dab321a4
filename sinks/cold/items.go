package cold

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// itemWords is how many words an item has on disk, at most.
const itemWords = 4

// appendItem appends the value of an item of a column.
func appendItem(dst []byte, spec *pipeline.SetSpec, i *shard.Item) []byte {
	words := [itemWords]uint64{i.Identity.A}
	rest := words[:1]
	if spec.Wide() {
		rest = append(rest, i.Identity.B)
	}
	return run.AppendItem(dst, uint64(i.Second), i.Read, append(rest, i.Actor, i.Post)...)
}

// readItem reads the value of an item of a column.
func readItem(value []byte, spec *pipeline.SetSpec, i *shard.Item) error {
	var words [itemWords]uint64
	n := itemWords - 1
	if spec.Wide() {
		n = itemWords
	}
	second, read, err := run.ReadItem(value, words[:n])
	i.Second, i.Read = int64(second), read
	i.Identity, i.Actor, i.Post = pipeline.Member{A: words[0]}, words[n-2], words[n-1]
	if spec.Wide() {
		i.Identity.B = words[1]
	}
	return err
}

// Items visits the items of a list, the newest first, those too that have left it and that no
// merge has dropped yet, until visit returns false.
func (v *View) Items(column pipeline.Column, id uint64, visit func(*shard.Item) (more bool)) error {
	from := v.stack.store.key(column, id, pipeline.Member{})
	s := v.scan(from, v.layers.all, &scratches, func(r *run.Run) bool { return r.MayOwn(&from) })
	s.seekMember(&from)
	var i shard.Item
	for s.next() && s.key().A == id && s.item(column, &i) && visit(&i) {
	}
	return s.end()
}

// WalkItems visits a part of the lists of a column, each item once, by id, as Items does.
func (v *View) WalkItems(column pipeline.Column, part *Part, visit func(id uint64, i *shard.Item)) error {
	set := v.stack.store.sets[v.stack.store.setOf[column]]
	part.From.Kind, part.From.Counter = set.Kind, set.Counter
	s := v.scan(part.From, v.newest(part), &walkScratches, nil)
	s.seekMember(&part.From)
	var i shard.Item
	return s.walk(part, func(full bool) bool {
		if !full && s.item(column, &i) {
			visit(s.key().A, &i)
		}
		return !full
	})
}

// item reads the entry's; false ends the scan, for it cannot be read.
func (s *scan) item(column pipeline.Column, i *shard.Item) bool {
	i.Position = pipeline.Position(run.Newest(s.key().B))
	if err := readItem(s.at.Value(), &s.view.stack.store.schema.Columns[column].Set, i); err != nil {
		s.err = s.view.stack.wrap(s.at.layer, s.at.Damage(err))
		return false
	}
	return true
}

// ranks finds, among entries in the order of a run, items that have so many newer ones in
// their list that it does not show them: no run needs to have them.
type ranks struct {
	most  map[uint8]int // by the number of a list
	of    run.Key       // whose items are counted
	newer int
}

// ranks are of the store's lists.
func (s *Store) ranks() *ranks {
	r := &ranks{most: make(map[uint8]int)}
	for i := range s.sets {
		if c := &s.sets[i]; c.Kind == run.Item {
			r.most[c.Counter] = s.schema.Columns[c.column].Set.Items
		}
	}
	return r
}

// left says whether the next entry is such an item.
func (r *ranks) left(key *run.Key, gone bool) bool {
	if key.Kind != run.Item || gone {
		return false
	}
	if of := key.Emptied(); of != r.of {
		r.of, r.newer = of, 0
	}
	r.newer++
	most, known := r.most[key.Counter]
	return known && r.newer > most
}
