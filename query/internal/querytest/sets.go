package querytest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Sets are what columns' sets have: maps.
type Sets map[pipeline.Column]map[uint64]map[pipeline.Member]bool

// Add puts members into the set of a column's row.
func (s Sets) Add(column pipeline.Column, id uint64, members ...pipeline.Member) {
	if s[column] == nil {
		s[column] = map[uint64]map[pipeline.Member]bool{}
	}
	if s[column][id] == nil {
		s[column][id] = map[pipeline.Member]bool{}
	}
	for _, m := range members {
		s[column][id][m] = true
	}
}

func (s Sets) page(column pipeline.Column, id uint64, after pipeline.Member, limit int) (members []pipeline.Member, more bool) {
	for _, m := range slices.SortedFunc(maps.Keys(s[column][id]), pipeline.Member.Compare) {
		if m.Compare(after) > 0 {
			members = append(members, m)
		}
	}
	if more = len(members) > limit; more {
		members = members[:limit]
	}
	return members, more
}

// AddMembers puts members into the set of a column's row.
func (r *Reader) AddMembers(column pipeline.Column, id uint64, members ...pipeline.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets.Add(column, id, members...)
}

// SetsAt has sets stand at another position than rows, from now on.
func (r *Reader) SetsAt(p pipeline.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setsAt = p
}

// StopSetsOf makes the sets of an id unreadable, and not its rows.
func (r *Reader) StopSetsOf(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stoppedSets[id] = true
}

// asOfSets is how far an answer about sets reaches.
func (r *Reader) asOfSets() pipeline.Position {
	if r.setsAt > 0 {
		return r.setsAt
	}
	return r.applied
}

// Has is query.Reader's.
func (r *Reader) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, disk bool) error {
	cost, err := r.enter(ctx, disk, ids...)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	out.Reset(len(ids))
	out.AsOf, out.Cost = r.asOfSets(), cost
	for i, id := range ids {
		if r.stopped[id] || r.stoppedSets[id] {
			out.Missing = append(out.Missing, i)
			continue
		}
		out.Has[i] = r.sets[column][id][m]
	}
	slices.Reverse(out.Missing) // in any order
	return nil
}

// Members is query.Reader's.
func (r *Reader) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) error {
	cost, err := r.enter(ctx, disk, id)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	if r.stopped[id] || r.stoppedSets[id] {
		return fmt.Errorf("id %d: %w", id, query.ErrStopped)
	}
	out.Reset()
	out.AsOf, out.Cost = r.asOfSets(), cost
	out.Members, out.More = r.sets.page(column, id, after, limit)
	return nil
}

// Has is query.Holder's.
func (h *Holder) Has(ctx context.Context, column pipeline.Column, ids []uint64, m pipeline.Member, out *query.Has, disk bool) (err error) {
	out.Reset(len(ids))
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, ids); err != nil {
		return err
	}
	for i, id := range ids {
		if !h.has(id) {
			out.Missing = append(out.Missing, i)
			continue
		}
		out.Has[i] = h.Sets[column][id][m]
	}
	return nil
}

// Members is query.Holder's.
func (h *Holder) Members(ctx context.Context, column pipeline.Column, id uint64, after pipeline.Member, limit int, out *query.MemberPage, disk bool) (err error) {
	out.Reset()
	if out.AsOf, out.Cost, err = h.begin(ctx, disk, []uint64{id}); err != nil {
		return err
	}
	if !h.has(id) {
		return query.ErrElsewhere
	}
	out.Members, out.More = h.Sets.page(column, id, after, limit)
	return nil
}
