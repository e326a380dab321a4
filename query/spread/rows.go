package spread

import (
	"context"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Rows implements [query.Reader].
func (f *far) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, _ bool) error {
	rows.Reset(len(ids), len(columns))
	q := &rowsQuestion{counter: counter, columns: columns, ids: ids, rows: rows, names: packed(f.schema, counter, columns)}
	for _, of := range rows.Sets {
		q.sets = append(q.sets, pipeline.MemberOf{Column: pipeline.Column(slices.Index(columns, of.Column)), Member: of.Member})
	}
	lost, err := f.scatter(ctx, q, len(ids))
	if err != nil {
		return err
	}
	for _, i := range lost {
		rows.Missing = append(rows.Missing, int(i))
	}
	rows.AsOf, rows.Cost = q.or(f.Applied()), q.cost
	return nil
}

// rowsQuestion asks for rows; an item is an index of ids.
type rowsQuestion struct {
	counter int
	columns []pipeline.Column
	names   []byte
	ids     []uint64
	sets    []pipeline.MemberOf // rows.Sets, by the columns' places
	rows    *query.Rows
	reach
	some []uint64 // memory to work in
}

func (q *rowsQuestion) shard(item int32, v *View) pipeline.Shard { return v.shardOf(q.ids[item]) }

func (q *rowsQuestion) of(items []int32) []uint64 {
	q.some = slices.Grow(q.some[:0], len(items))
	for _, i := range items {
		q.some = append(q.some, q.ids[i])
	}
	return q.some
}

func (q *rowsQuestion) ask(items []int32, bytes int) (kind wire.Kind, body []byte, n int) {
	rest := len(q.names) + 32 + len(q.sets)*wire.SetAskMax
	n = min(len(items), max(1, (bytes-rest)/8), wire.IDsMax, max(1, wire.CellsMax/max(1, len(q.columns), len(q.sets))))
	a := wire.RowsAsk{Names: q.names, IDs: q.of(items[:n]), Sets: q.sets}
	return a.Kind(), a.Append(make([]byte, 0, rest+8*n)), n
}

func (q *rowsQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	t, missing, err := wire.DecodeRows(pieces, items, len(q.columns), q.rows)
	if err != nil {
		return nil, err
	}
	return q.took(items, missing, t.AsOf, t.Cost, d), nil
}

func (q *rowsQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	if len(items) == len(q.ids) && slices.IsSorted(items) { // nothing was asked elsewhere
		if err := own.Rows(ctx, q.counter, q.columns, q.ids, q.rows, disk); err != nil {
			return nil, err
		}
		missing := q.rows.Missing
		q.rows.Missing = nil
		return q.took(items, missing, q.rows.AsOf, q.rows.Cost, d), nil
	}
	rows := query.Rows{Sets: q.rows.Sets}
	if err := own.Rows(ctx, q.counter, q.columns, q.of(items), &rows, disk); err != nil {
		return nil, err
	}
	columns, sets := len(q.columns), len(q.sets)
	for i, place := range items {
		q.rows.Exist[place] = rows.Exist[i]
		copy(q.rows.Values[int(place)*columns:], rows.Values[i*columns:(i+1)*columns])
		copy(q.rows.Has[int(place)*sets:], rows.Has[i*sets:(i+1)*sets])
	}
	return q.took(items, rows.Missing, rows.AsOf, rows.Cost, d), nil
}

// took adds an answer to items of which some, by their index, are missing.
func (r *reach) took(items []int32, missing []int, asOf pipeline.Position, cost query.Cost, d *due) (again []int32) {
	if len(missing) < len(items) {
		if d.late(asOf, &cost) {
			return items
		}
		r.add(asOf, cost)
	}
	return pick(items, missing)
}
