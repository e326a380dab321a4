package spread

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Has implements [query.Reader] with what this process holds.
func (r *Reader) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, disk bool) error {
	return r.idsHere(ids, func(own query.Holder) (missing []int, asOf pipeline.Position, err error) {
		err = own.Has(ctx, column, ids, m, out, disk)
		return out.Missing, out.AsOf, err
	})
}

// Members implements [query.Reader] with what this process holds.
func (r *Reader) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	return r.pageHere(id, func(own query.Holder) (asOf pipeline.Position, err error) {
		err = own.Members(ctx, column, id, after, limit, out, disk)
		return out.AsOf, err
	})
}

// nameOf is a column as it goes over the wire.
func (f *far) nameOf(column pipeline.Column) []byte {
	return packed(f.schema, f.schema.Columns[column].Counter, []pipeline.Column{column})
}

// Has implements [query.Reader].
func (f *far) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, _ bool) error {
	out.Reset(len(ids))
	q := &hasQuestion{column: column, name: f.nameOf(column), member: m, ids: ids, out: out}
	lost, err := f.scatter(ctx, q, len(ids))
	if err != nil {
		return err
	}
	for _, i := range lost {
		out.Missing = append(out.Missing, int(i))
	}
	out.AsOf, out.Cost = q.or(f.Applied()), q.cost
	return nil
}

// hasQuestion asks in which sets a member is; an item is an index of ids.
type hasQuestion struct {
	column pipeline.Column
	name   []byte
	member pipeline.Member
	ids    []uint64
	out    *query.Has
	reach
}

func (q *hasQuestion) shard(item int32, v *View) pipeline.Shard { return v.shardOf(q.ids[item]) }

func (q *hasQuestion) ask(items []int32, bytes int, _ byte) (kind wire.Kind, body []byte, n int) {
	n = min(len(items), max(1, (bytes-len(q.name)-64)/8), wire.IDsMax)
	a := wire.HasAsk{Names: q.name, Member: q.member, IDs: pick(q.ids, items[:n])}
	return wire.Has, a.Append(nil), n
}

func (q *hasQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	t, missing, err := wire.DecodeHas(pieces, items, q.out.Has)
	if err != nil {
		return nil, err
	}
	return q.took(items, missing, t.AsOf, t.Cost, d), nil
}

func (q *hasQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	var out query.Has
	if err := own.Has(ctx, q.column, pick(q.ids, items), q.member, &out, disk); err != nil {
		return nil, err
	}
	for i, place := range items {
		q.out.Has[place] = out.Has[i]
	}
	return q.took(items, out.Missing, out.AsOf, out.Cost, d), nil
}

// Members implements [query.Reader].
func (f *far) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, _ bool) error {
	out.Reset()
	q := &membersQuestion{column: column, page: wire.MembersAsk{Names: f.nameOf(column), ID: id, After: after, Limit: limit}, out: out}
	lost, err := f.scatter(ctx, q, 1)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("spread: no node answers for id %d%s: %w", id, q.refusal, query.ErrStopped)
	}
	return err
}

// membersQuestion asks for a page of one row's set; the item is the row.
type membersQuestion struct {
	column  pipeline.Column
	page    wire.MembersAsk
	out     *query.MemberPage
	refusal string // what a node said that does not know the question
}

// refused implements refusable.
func (q *membersQuestion) refused(words string) {
	q.refusal = " that knows the question (" + words + ")"
}

func (q *membersQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.page.ID) }

func (q *membersQuestion) ask([]int32, int, byte) (kind wire.Kind, body []byte, n int) {
	return wire.Members, q.page.Append(nil), 1
}

func (q *membersQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	if err := wire.DecodeMemberPage(pieces, q.page.Limit, q.out); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return nil, err
	}
	return items, nil
}

func (q *membersQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	p := &q.page
	if err := own.Members(ctx, q.column, p.ID, p.After, p.Limit, q.out, disk); err != nil || !d.late(q.out.AsOf, &q.out.Cost) {
		return notHere(items, err)
	}
	return items, nil
}

// setOf is the one column of names, which has a set.
func (s *Server) setOf(names []byte) (pipeline.Column, error) {
	r, err := s.names.find(names)
	switch {
	case err != nil:
		return 0, refused(err)
	case len(r.columns) != 1:
		return 0, refused(fmt.Errorf("%d columns are named, not one", len(r.columns)))
	case s.schema.Columns[r.columns[0]].Set.Members == pipeline.NoMembers:
		return 0, refused(fmt.Errorf("column %.64q has no set", s.schema.FullName(r.columns[0])))
	}
	return r.columns[0], nil
}

// hasWork is the memory that a question for members works in.
type hasWork struct {
	ask wire.HasAsk
	out query.Has
}

var hasWorks = sync.Pool{New: func() any { return new(hasWork) }}

func (b *batch) has(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	work := hasWorks.Get().(*hasWork)
	defer hasWorks.Put(work)
	if err := work.ask.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	column, err := b.server.setOf(work.ask.Names)
	if err != nil {
		return err
	}
	if err := t.read(ctx, func(disk bool) error {
		return b.server.holder.Has(ctx, column, work.ask.IDs, work.ask.Member, &work.out, disk)
	}); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.Has(&work.out)
		p.End(wire.Tail{AsOf: work.out.AsOf, Cost: work.out.Cost})
		return nil
	})
}

func (b *batch) members(ctx context.Context, w *writer, a *wire.Ask, t *turn) error {
	var ask wire.MembersAsk
	if err := ask.Decode(a.Body, b.version); err != nil {
		return refused(err)
	}
	column, err := b.server.setOf(ask.Names)
	if err != nil {
		return err
	}
	var page query.MemberPage
	if err := t.read(ctx, func(disk bool) error {
		return b.server.holder.Members(ctx, column, ask.ID, ask.After, ask.Limit, &page, disk)
	}); err != nil {
		return err
	}
	return w.answer(a, func(p *wire.Pieces) error {
		p.MemberPage(&page)
		p.End(wire.Tail{AsOf: page.AsOf, Cost: page.Cost})
		return nil
	})
}
