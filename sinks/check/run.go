package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Task says what to audit.
type Task struct {
	Sample  pipeline.Sample
	IDs     []uint64 // of the sample, these alone, also those that the log does not name; nil: all that it names
	Counter string   // with IDs: their rows of this counter alone; "": everything
	// Shards are those to audit, of which those are passed over that do not answer;
	// nil: all that answer.
	Shards []pipeline.Shard
	Except []string       // names (Difference.Name) of what may differ
	Apart  bool           // from the channels: these are not compared
	Stored bool           // without IDs: also what is stored of ids that the log does not name
	Memory int            // bytes for what is derived, about; what is more lies in scratch files
	Rate   int            // events and ids a second; 0: as fast as can be
	Turns  pipeline.Turns // in which it works, some milliseconds at a time; nil: it goes on as it can
	// Progress is called as it goes on, often; nil: not. It must return at once.
	Progress func(Progress)
}

// Progress is how far a task has come.
type Progress struct {
	At     pipeline.Position `json:"position,string"` // derived up to here
	Of     pipeline.Position `json:"of,string"`       // before anything is compared
	IDs    int               `json:"ids"`             // compared
	Differ int               `json:"differs"`
}

// Share is how much of the log was read, 0 to 1.
func (p Progress) Share() float64 {
	if p.Of == 0 {
		return 0
	}
	return min(float64(p.At)/float64(p.Of), 1)
}

// Report is what a task has found.
type Report struct {
	IDs      int                       // compared
	Differ   int                       // of these, differ
	Examples []Difference              // examplesMax at most
	Shards   map[pipeline.Shard]*Found // those compared
	Skipped  map[pipeline.Shard]string // and those that could not be, and why
	Notices  []Difference              // those that differ, noticesMax at most
	Base     string                    // what the derivation began with; "": with the first event
}

// Found is what was found in one shard.
type Found struct {
	IDs, Differ int
	Differing   []uint64 // idsMax at most
	// Since is when the last of those that differ began to be compared: what it was
	// compared with was not read before.
	Since time.Time
}

const (
	examplesMax = 20
	idsMax      = 1000
	noticesMax  = 65_536
	// chunk is how many ids are compared at a time, page how many members.
	chunk = 256
	page  = 65_536
	// straysMax is after how many ids of a shard that differ it is compared no further, with
	// Task.Stored: what was counted there is of another log.
	straysMax = 10_000
	// restEvery is after how many ids that are stored it is the turn of others.
	restEvery = 4096
	// trimmedMax is how often a derivation begins again because the log's beginning was
	// removed during it.
	trimmedMax = 3
)

// Run audits the shards that answer. A shard that stops answering during it is skipped
// and named. It returns an error when the log cannot be read, or ctx ends; then the
// report is of what was compared until then.
func (a *Auditor) Run(ctx context.Context, t Task) (*Report, error) {
	r, err := a.run(ctx, t)
	if r != nil {
		a.Stats.Differ.Add(uint64(r.Differ))
	}
	return r, err
}

// run is Run, and what differs is not counted.
func (a *Auditor) run(ctx context.Context, t Task) (r *Report, err error) {
	for range trimmedMax {
		if r, err = a.once(ctx, &t); !errors.Is(err, pipeline.ErrGap) {
			return r, err
		}
	}
	return r, err
}

// once audits with one base after the other, until one can be used.
func (a *Auditor) once(ctx context.Context, t *Task) (r *Report, err error) {
	if t.Apart && len(a.Served.Answering()) == 0 {
		return &Report{}, nil
	}
	var bases []*backup.Base
	if a.Bases != nil {
		if bases, err = a.Bases(ctx); err != nil {
			return nil, err
		}
	}
	if len(bases) == 0 {
		return a.pass(ctx, t, nil)
	}
	var faults []error
	for _, base := range bases {
		r, err = a.pass(ctx, t, base)
		if began := r != nil; ctx.Err() != nil || !isUnderived(err) || began && !errors.Is(err, cold.ErrCorrupt) {
			return r, err // it is not the base's fault
		}
		err = fmt.Errorf("%v cannot stand for it: %w", base, err)
		if text := err.Error(); a.refused.Swap(text) != text {
			a.Logger.Error("audit: a base cannot be used", "error", err)
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrBeginning, errors.Join(faults...))
}

// pass is one way through the log, and what is compared at its end.
type pass struct {
	*derivation
	auditor *Auditor
	task    *Task
	report  *Report
	counter int // the only one; -1: everything
	told    Progress
	persons []int           // counters whose rows are users'
	differs map[uint64]bool // ids of the chunk
	rows    map[uint64]seen // of the chunk, what rows say

	is, should facts // being compared; their memory is used again
}

// seen is what the rows of an id say.
type seen struct {
	user     bool // it has one among those of users
	followed bool // it is followed
	members  bool // a set of it has some
}

func (a *Auditor) pass(ctx context.Context, t *Task, base *backup.Base) (*Report, error) {
	p := &pass{
		auditor: a, task: t, counter: -1, differs: map[uint64]bool{}, rows: map[uint64]seen{},
		report: &Report{Shards: map[pipeline.Shard]*Found{}, Skipped: map[pipeline.Shard]string{}},
	}
	if t.Counter != "" {
		var known bool
		if p.counter, known = a.Schema.Counter(t.Counter); !known {
			return nil, fmt.Errorf("check: there is no counter %q", t.Counter)
		}
	}
	for _, name := range []string{"user", "unread"} {
		if counter, ok := a.Schema.Counter(name); ok {
			p.persons = append(p.persons, counter)
		}
	}
	shards := make([]bool, a.Shards)
	for _, s := range a.Served.Answering() {
		if t.Shards == nil || slices.Contains(t.Shards, s) {
			shards[s], p.report.Shards[s] = true, &Found{}
		}
	}
	if t.Apart && len(p.report.Shards) == 0 {
		return p.report, nil
	}
	t.Turns.Take()
	defer t.Turns.Give()
	var err error
	p.derivation, err = a.derive(ctx, base, shards, t.chosen(), t)
	defer p.close()
	if err != nil {
		return nil, underived{err}
	}
	p.report.Base = p.base
	return p.report, p.run(ctx)
}

// chosen says which ids a task is about; nil: about all.
func (t *Task) chosen() func(id uint64) bool {
	if t.IDs == nil {
		if t.Sample.Bits == 0 {
			return nil
		}
		return t.Sample.Has
	}
	only := make(map[uint64]bool, len(t.IDs))
	for _, id := range t.IDs {
		only[id] = t.Sample.Has(id)
	}
	return func(id uint64) bool { return only[id] }
}

func (p *pass) run(ctx context.Context) (err error) {
	p.progress = p.tell
	// Up to where the last of them stands, and then to each.
	if p.told.Of, err = p.lowest(ctx); err != nil {
		return err
	}
	// A shard behind the base is waited for, as behind any that was compared before.
	if err := p.to(ctx, p.told.Of); err != nil {
		return underived{err}
	}
	for _, s := range slices.Sorted(maps.Keys(p.report.Shards)) {
		if _, skipped := p.report.Skipped[s]; skipped {
			continue
		}
		if err := p.shard(ctx, s); err != nil {
			if ctx.Err() != nil || isUnderived(err) {
				return err
			}
			p.auditor.Logger.Warn("audit: a shard is skipped", "shard", s, "error", err)
			p.report.Skipped[s] = err.Error()
		}
		p.drop(s)
	}
	if p.task.Apart || p.task.IDs != nil || p.task.Sample.Residue != 0 {
		return nil
	}
	return p.notices(ctx)
}

func (p *pass) tell(at pipeline.Position) {
	if p.task.Progress == nil {
		return
	}
	p.told.At, p.told.IDs, p.told.Differ = at, p.report.IDs, p.report.Differ
	p.task.Progress(p.told)
}

// lowest is where that one of the shards stands that is behind the others. One
// that cannot be asked is skipped.
func (p *pass) lowest(ctx context.Context) (pipeline.Position, error) {
	lowest := pipeline.PositionMax
	for _, s := range slices.Sorted(maps.Keys(p.report.Shards)) {
		at, _, err := p.auditor.Served.Facts(ctx, &tier.FactsAsk{Part: tier.PartRows, Shard: s}, func(tier.Fact) {})
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			p.report.Skipped[s] = err.Error()
		default:
			lowest = min(lowest, at)
		}
	}
	if lowest == pipeline.PositionMax {
		return 0, nil
	}
	return lowest, nil
}

// shard compares all ids of a shard, some at a time.
func (p *pass) shard(ctx context.Context, s pipeline.Shard) error {
	if err := p.list(ctx, s); err != nil {
		return underived{err}
	}
	found, looked := p.report.Shards[s], 0
	some := make([]tier.Stored, 0, chunk)
	for id, err := range p.ids(s) {
		if looked++; err == nil && looked%restEvery == 0 {
			err = p.pace.rest(ctx, 0)
		}
		if err != nil {
			return err
		}
		if p.has != nil && !p.has(id.ID) {
			continue
		}
		if some = append(some, id); len(some) < chunk {
			continue
		}
		if err := p.some(ctx, s, some); err != nil {
			return err
		}
		if some = some[:0]; p.task.Stored && found.Differ >= straysMax {
			return nil
		}
	}
	return p.some(ctx, s, some)
}

// ids are those of a shard that were asked for, or that the log names; and with
// Task.Stored those of which anything is stored. What is in memory alone is not looked
// at: it has changed since the last checkpoint, by an event.
func (p *pass) ids(s pipeline.Shard) iter.Seq2[tier.Stored, error] {
	if p.task.IDs != nil {
		return func(yield func(tier.Stored, error) bool) {
			for _, id := range slices.Compact(slices.Sorted(slices.Values(p.task.IDs))) {
				if pipeline.ShardOf(id, p.auditor.Shards) == s && !yield(tier.Stored{ID: id, Kinds: ^tier.Kinds(0)}, nil) {
					return
				}
			}
		}
	}
	derived := func(yield func(tier.Stored, error) bool) {
		for id, err := range p.shards[s].Stored() {
			if err != nil {
				err = underived{err}
			}
			if !yield(id, err) {
				return
			}
		}
	}
	if !p.task.Stored {
		return derived
	}
	return both(derived, p.auditor.Served.Stored(s))
}

// some compares some ids, which ascend.
func (p *pass) some(ctx context.Context, s pipeline.Shard, ids []tier.Stored) error {
	if len(ids) == 0 {
		return nil
	}
	clear(p.differs)
	clear(p.rows)
	began, found := time.Now(), p.report.Shards[s]
	if err := p.chunk(ctx, s, ids); err != nil {
		return err
	}
	if found.Differ == 0 || len(p.differs) > 0 {
		found.Since = began
	}
	found.IDs += len(ids)
	p.report.IDs += len(ids)
	p.auditor.Stats.IDs.Add(uint64(len(ids)))
	found.Differ += len(p.differs)
	p.report.Differ += len(p.differs)
	differ := slices.Sorted(maps.Keys(p.differs))
	found.Differing = append(found.Differing, differ[:min(len(differ), idsMax-len(found.Differing))]...)
	p.tell(p.at)
	return p.pace.spend(ctx, len(ids))
}

// chunk compares rows of ids, and of the rest what there is of each, as its rows or the
// kinds of its entries say.
func (p *pass) chunk(ctx context.Context, s pipeline.Shard, ids []tier.Stored) error {
	numbers := make([]uint64, len(ids))
	for i := range ids {
		numbers[i] = ids[i].ID
	}
	for counter := range p.auditor.Schema.Counters {
		if p.counter < 0 || p.counter == counter {
			if err := p.compare(ctx, &tier.FactsAsk{Part: tier.PartRows, Shard: s, Counter: counter, IDs: numbers}); err != nil {
				return err
			}
		}
	}
	if p.counter >= 0 {
		return nil
	}
	of := func(kinds tier.Kinds, by func(seen) bool) (some []uint64) {
		for _, id := range ids {
			if id.Kinds&kinds != 0 || by(p.rows[id.ID]) {
				some = append(some, id.ID)
			}
		}
		return some
	}
	members := of(tier.HasMember, func(r seen) bool { return r.members })
	for _, column := range p.auditor.Schema.Sets() {
		if err := p.members(ctx, s, column, members); err != nil {
			return err
		}
	}
	users := of(tier.HasUser|tier.HasPosts|tier.HasFollower, func(r seen) bool { return r.user })
	if len(users) == 0 {
		return nil
	}
	if err := p.compare(ctx, &tier.FactsAsk{Part: tier.PartPosts, Shard: s, IDs: users}); err != nil {
		return err
	}
	for i := range users {
		names, err := p.shards[s].CursorNames(users[i])
		if err != nil {
			return underived{err}
		}
		if err := p.compare(ctx, &tier.FactsAsk{Part: tier.PartUser, Shard: s, IDs: users[i : i+1], Channels: names}); err != nil {
			return err
		}
	}
	return p.members(ctx, s, pipeline.NoColumn, of(tier.HasFollower, func(r seen) bool { return r.followed }))
}

// members compares the sets of a column of some ids.
func (p *pass) members(ctx context.Context, s pipeline.Shard, column pipeline.Column, ids []uint64) error {
	if len(ids) == 0 {
		return nil
	}
	return p.compare(ctx, &tier.FactsAsk{Part: tier.PartMembers, Shard: s, Column: column, IDs: ids, Limit: page})
}

// see notes what rows say of ids.
func (p *pass) see(rows facts) {
	schema := p.auditor.Schema
	for i := range rows {
		f := &rows[i]
		spec, r := &schema.Columns[f.Column], p.rows[f.ID]
		r.user = r.user || slices.Contains(p.persons, spec.Counter)
		r.followed = r.followed || schema.FullName(f.Column) == "user.follower"
		r.members = r.members || spec.Set.Members != pipeline.NoMembers
		p.rows[f.ID] = r
	}
}

func (p *pass) notices(ctx context.Context) error {
	names := append(p.commons.ChannelNames(), p.auditor.Served.ChannelNames()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := p.compare(ctx, &tier.FactsAsk{Part: tier.PartNotices, Channels: []string{name}}); err != nil {
			return err
		}
	}
	return nil
}

// note takes in a difference.
func (p *pass) note(d Difference, s pipeline.Shard) {
	if slices.Contains(p.task.Except, d.Name()) {
		return
	}
	d.Shard = s
	if len(p.report.Examples) < examplesMax {
		p.report.Examples = append(p.report.Examples, d)
		slices.SortStableFunc(p.report.Examples, func(a, b Difference) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Counter, b.Counter), cmp.Compare(a.Column, b.Column))
		})
	}
	if d.Counter == "notice" {
		if len(p.report.Notices) < noticesMax {
			p.report.Notices = append(p.report.Notices, d)
		}
		return
	}
	p.differs[d.ID] = true
}
