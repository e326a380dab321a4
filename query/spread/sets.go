package spread

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

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

// Members implements [query.Reader].
func (f *far) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, _ bool) error {
	out.Reset()
	q := &membersQuestion{column: column, page: wire.MembersAsk{Names: f.nameOf(column), ID: id, After: after, Limit: limit}, out: out}
	lost, err := f.scatter(ctx, q, 1)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("spread: no node answers for id %d: %w", id, query.ErrStopped)
	}
	return err
}

// membersQuestion asks for a page of one row's set; the item is the row.
type membersQuestion struct {
	column pipeline.Column
	page   wire.MembersAsk
	out    *query.MemberPage
}

func (q *membersQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.page.ID) }

func (q *membersQuestion) ask([]int32, int) (kind wire.Kind, body []byte, n int) {
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

// setsOf appends what is looked for, in columns that have sets.
func (s *Server) setsOf(sets []pipeline.MemberOf, r *resolved, asked []pipeline.MemberOf) ([]pipeline.MemberOf, error) {
	for _, of := range asked {
		if int(of.Column) >= len(r.columns) {
			return sets, refused(fmt.Errorf("a member of column %d of %d is asked for", of.Column, len(r.columns)))
		}
		of.Column = r.columns[of.Column]
		if err := s.hasSet(of.Column); err != nil {
			return sets, err
		}
		sets = append(sets, of)
	}
	return sets, nil
}

func (s *Server) hasSet(column pipeline.Column) error {
	if !s.schema.Columns[column].HasSet() {
		return refused(fmt.Errorf("column %.64q has no set", s.schema.FullName(column)))
	}
	return nil
}

// setOf is the one column of names, which has a set.
func (s *Server) setOf(names []byte) (pipeline.Column, error) {
	r, err := s.names.find(names)
	switch {
	case err != nil:
		return 0, refused(err)
	case len(r.columns) != 1:
		return 0, refused(fmt.Errorf("%d columns are named, not one", len(r.columns)))
	}
	return r.columns[0], s.hasSet(r.columns[0])
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
