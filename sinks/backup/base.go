package backup

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Base is a backup as what a derivation begins with where EVENTS has lost its
// beginning (audit.Base). It is read where it lies, a shard at a time, by key where
// few ids are wanted. Of a place that cannot be read at any byte, an object store, the
// runs of that shard are copied to a directory first, and gone when it has been read.
type Base struct {
	place  Place
	m      *Manifest
	schema *pipeline.Schema
	dir    string
	room   func(bytes int64) error
}

// NewBase makes a base of a backup, whose facts are in terms of a schema. dir is
// where an object store's runs are copied to; room says why it has none for so many
// bytes, and is asked of all runs of a shard before the first is copied.
func NewBase(p Place, m *Manifest, schema *pipeline.Schema, dir string, room func(bytes int64) error) *Base {
	return &Base{p, m, schema, dir, room}
}

// String names it.
func (b *Base) String() string {
	return fmt.Sprintf("backup %s in %s, at position %d", b.m.ID, b.place, b.m.Position)
}

// Position is where the base ends: it has its own events up to there.
func (b *Base) Position() pipeline.Position { return b.m.Position }

// Stands are where each shard stands, and last the commons.
func (b *Base) Stands() []pipeline.Position {
	out := make([]pipeline.Position, len(b.m.Parts))
	for i := range b.m.Parts {
		out[i] = b.m.Parts[i].State.Applied
	}
	return out
}

// Log reads the events from where the lowest shard stands to Position.
func (b *Base) Log() (pipeline.Source, error) {
	source, err := Log(b.place, b.m)
	if err != nil { // not a nil source
		return nil, err
	}
	return source, nil
}

// Marks are log time.
func (b *Base) Marks(ctx context.Context) (marks []pipeline.TimeMark, err error) {
	err = b.read(ctx, pipeline.Shard(b.m.Shards), func(_ *cold.Store, v *cold.View) error {
		return v.Seconds(func(second int64, position pipeline.Position) {
			marks = append(marks, pipeline.TimeMark{Second: second, Position: position})
		})
	})
	return marks, err
}

// Facts gives what a shard has of ids for which keep holds: of some, which ascend; nil:
// of all. After the last shard come the notices of all channels, by position.
func (b *Base) Facts(ctx context.Context, shard pipeline.Shard, ids []uint64, keep func(id uint64) bool, yield func(pipeline.Fact)) error {
	return b.read(ctx, shard, func(store *cold.Store, v *cold.View) error {
		f := &facts{ctx: ctx, view: v, schema: store.Schema(), columns: columnsOf(store.Schema(), b.schema), keep: keep, yield: yield}
		switch {
		case int(shard) == b.m.Shards:
			return f.notices()
		case ids != nil:
			return f.some(ids)
		}
		return f.all()
	})
}

// columnsOf are the columns of one schema in another; -1: it has no such column.
func columnsOf(of, in *pipeline.Schema) []int {
	out := make([]int, len(of.Columns))
	for i, c := range of.Columns {
		out[i] = -1
		if column, ok := in.Find(of.Counters[c.Counter].Name + "." + c.Name); ok {
			out[i] = int(column)
		}
	}
	return out
}

// read opens a shard for a while.
func (b *Base) read(ctx context.Context, shard pipeline.Shard, do func(*cold.Store, *cold.View) error) (err error) {
	source := Shard(b.place, b.m, shard)
	part := &b.m.Parts[shard]
	room := sync.OnceValue(func() error {
		bytes := int64(0)
		for i := range part.Runs {
			bytes += part.Runs[i].Bytes
		}
		return b.room(bytes)
	})
	store, err := cold.OpenExported(source.Manifest(), b.schema, func(run int) (cold.File, error) {
		return openObject(ctx, b.place, part.Runs[run].Object, part.Runs[run].Bytes, b.dir, room)
	})
	if err == nil {
		view := store.Stack(shard).View()
		err = do(store, view)
		view.Close()
		_ = store.Close() // nothing is written
	}
	return err
}

// facts reads what one shard has.
type facts struct {
	ctx     context.Context
	view    *cold.View
	schema  *pipeline.Schema
	columns []int
	keep    func(uint64) bool
	yield   func(pipeline.Fact)
}

const (
	someIDs = 256      // of which rows are read at a time
	piece   = 64 << 10 // entries that are read between two looks at the context
)

func (f *facts) row(counter int, id uint64, cells []int64) {
	if !f.keep(id) {
		return
	}
	first := f.schema.Counters[counter].First
	for i, v := range cells {
		if column := f.columns[int(first)+i]; v != 0 && column >= 0 {
			f.yield(pipeline.Fact{Kind: pipeline.FactCell, Column: pipeline.Column(column), ID: id, Value: v})
		}
	}
}

func (f *facts) follows(user, followee uint64, since pipeline.Position) {
	if f.keep(user) {
		f.yield(pipeline.Fact{Kind: pipeline.FactFollows, ID: user, Other: followee, Value: int64(since)})
	}
}

func (f *facts) follower(user, follower uint64) {
	if f.keep(user) {
		f.yield(pipeline.Fact{Kind: pipeline.FactMember, Column: pipeline.NoColumn, ID: user, Member: pipeline.Member{A: follower}, Value: 1})
	}
}

func (f *facts) marks(user uint64, marks [4]uint64) {
	for i, which := range [...]uint64{pipeline.MarkFeed, pipeline.MarkAll, pipeline.MarkFirst, pipeline.MarkLast} {
		if marks[i] != 0 && f.keep(user) {
			f.yield(pipeline.Fact{Kind: pipeline.FactMark, ID: user, Other: which, Value: int64(marks[i])})
		}
	}
}

func (f *facts) cursor(user uint64, channel string, at pipeline.Position) {
	if f.keep(user) {
		f.yield(pipeline.Fact{Kind: pipeline.FactCursor, ID: user, Name: channel, Value: int64(at)})
	}
}

func (f *facts) post(author uint64, at pipeline.Position, post uint64) {
	if f.keep(author) {
		f.yield(pipeline.Fact{Kind: pipeline.FactPost, ID: author, Other: post, Value: int64(at)})
	}
}

func (f *facts) member(column pipeline.Column, id uint64, m pipeline.Member, second int64) {
	if in := f.columns[column]; in >= 0 && f.keep(id) {
		f.yield(pipeline.Fact{Kind: pipeline.FactMember, Column: pipeline.Column(in), ID: id, Member: m, Value: second})
	}
}

// some reads ids by their keys.
func (f *facts) some(ids []uint64) error {
	for some := range slices.Chunk(ids, someIDs) {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		for counter := range f.schema.Counters {
			columns := f.schema.Counters[counter].Count
			cells := make([]int64, columns*len(some))
			if err := f.view.Rows(counter, some, cells); err != nil {
				return err
			}
			for i, id := range some {
				f.row(counter, id, cells[i*columns:(i+1)*columns])
			}
		}
		authors := make([]cold.From, len(some))
		for i, id := range some {
			authors[i].Author = id
		}
		err := f.view.Posts(authors, func(i int, at pipeline.Position, post uint64) { f.post(some[i], at, post) })
		if err != nil {
			return err
		}
		for _, id := range some {
			if err := f.user(id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *facts) user(id uint64) error {
	marks, err := f.view.Marks(id)
	if err == nil {
		f.marks(id, marks)
		err = f.view.Cursors(id, func(channel string, at pipeline.Position) { f.cursor(id, channel, at) })
	}
	if err == nil {
		err = f.view.Following(id, 0, func(followee uint64, since pipeline.Position) bool {
			f.follows(id, followee, since)
			return f.ctx.Err() == nil
		})
	}
	if err == nil {
		err = f.view.Followers(id, 0, func(follower uint64) bool {
			f.follower(id, follower)
			return f.ctx.Err() == nil
		})
	}
	for _, column := range f.schema.Sets() {
		if err == nil {
			err = f.view.Members(column, id, pipeline.Member{}, func(m pipeline.Member, second int64) bool {
				f.member(column, id, m, second)
				return f.ctx.Err() == nil
			})
		}
	}
	return cmp.Or(err, f.ctx.Err())
}

// all goes over all that the shard has.
func (f *facts) all() error {
	rows := cold.Part{Most: piece}
	for !rows.Done {
		err := f.view.WalkRows(&rows, func(counter int, id uint64, cells []int64) error {
			f.row(counter, id, cells)
			return nil
		})
		if err = cmp.Or(err, f.ctx.Err()); err != nil {
			return err
		}
	}
	for _, walk := range []func(*cold.Range) error{
		func(r *cold.Range) error { return f.view.UserRange(r, f.follows, f.marks, f.cursor) },
		func(r *cold.Range) error { return f.view.PostRange(r, f.post) },
	} {
		for r := (cold.Range{Most: piece}); r.To != math.MaxUint64; r.From = r.To {
			if err := cmp.Or(walk(&r), f.ctx.Err()); err != nil {
				return err
			}
		}
	}
	edges := cold.Part{Most: piece}
	for !edges.Done {
		if err := cmp.Or(f.view.WalkEdges(&edges, f.follower), f.ctx.Err()); err != nil {
			return err
		}
	}
	for _, column := range f.schema.Sets() {
		members := cold.Part{Most: piece}
		for !members.Done {
			err := f.view.WalkMembers(column, &members, func(id uint64, m pipeline.Member, second int64) { f.member(column, id, m, second) })
			if err = cmp.Or(err, f.ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *facts) notices() error {
	var all []pipeline.Fact
	err := f.view.Notices(func(channel string, notice uint64, at pipeline.Position) {
		all = append(all, pipeline.Fact{Kind: pipeline.FactNotice, Name: channel, Other: notice, Value: int64(at)})
	})
	slices.SortFunc(all, func(a, b pipeline.Fact) int { return cmp.Compare(a.Value, b.Value) })
	for _, fact := range all {
		f.yield(fact)
	}
	return err
}
