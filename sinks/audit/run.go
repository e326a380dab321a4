package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Task says what to audit.
type Task struct {
	Sample  Sample
	IDs     []uint64 // of the sample, these alone, also those that the log does not name; nil: all that it names
	Counter string   // with IDs: their rows of this counter alone; "": everything
	// Shards are those to audit, of which those are passed over that do not answer;
	// nil: all that answer.
	Shards []pipeline.Shard
	Except []string       // names (Difference.Name) of what may differ
	Apart  bool           // from the channels: these are not compared
	Stored bool           // without IDs: also what is stored of ids that the log does not name
	Memory int            // bytes for what is derived; what needs more is done in several passes over the log
	Rate   int            // events and ids a second; 0: as fast as can be
	Turns  pipeline.Turns // in which it works, some milliseconds at a time; nil: it goes on as it can
	// Progress is called as it goes on, often; nil: not. It must return at once.
	Progress func(Progress)
}

// Progress is how far a task has come.
type Progress struct {
	At     pipeline.Position `json:"position,string"` // derived up to here
	Of     pipeline.Position `json:"of,string"`       // before anything is compared
	Done   int               `json:"passes_done"`     // over the log, before this one
	Passes int               `json:"passes_left"`     // after this one, as far as is known
	IDs    int               `json:"ids"`             // compared
	Differ int               `json:"differs"`
}

// Share is how much of the work is done, 0 to 1, as far as is known.
func (p Progress) Share() float64 {
	pass := 0.0
	if p.Of > 0 {
		pass = min(float64(p.At)/float64(p.Of), 1)
	}
	return (float64(p.Done) + pass) / float64(p.Done+1+p.Passes)
}

// Report is what a task has found.
type Report struct {
	IDs      int                       // compared
	Differ   int                       // of these, differ
	Examples []Difference              // examplesMax at most
	Shards   map[pipeline.Shard]*Found // those compared
	Skipped  map[pipeline.Shard]string // and those that could not be, and why
	Channels int                       // notices that differ
	Passes   int                       // over the log
	Base     string                    // what the last pass began with; "": with the first event
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
	// chunk is how many ids are compared at a time, page how many followers.
	chunk = 256
	page  = 65_536
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
func (a *Auditor) run(ctx context.Context, t Task) (*Report, error) {
	counter := -1
	if t.Counter != "" {
		var known bool
		if counter, known = a.Schema.Counter(t.Counter); !known {
			return nil, fmt.Errorf("audit: there is no counter %q", t.Counter)
		}
	}
	r := &Report{Shards: map[pipeline.Shard]*Found{}, Skipped: map[pipeline.Shard]string{}}
	var only map[uint64]bool
	if t.IDs != nil {
		only = make(map[uint64]bool, len(t.IDs))
		for _, id := range t.IDs {
			only[id] = true
		}
	}
	shards := make([]bool, a.Shards)
	for _, s := range a.Served.Answering() {
		if t.Shards != nil && !slices.Contains(t.Shards, s) {
			continue
		}
		shards[s] = true
		r.Shards[s] = &Found{}
	}
	todo := []Sample{t.Sample}
	if t.Apart && len(r.Shards) == 0 {
		return r, nil
	}
	for len(todo) > 0 {
		first := r.Passes == 0
		sample, common := todo[0], first && !t.Apart && t.IDs == nil && t.Sample.Residue == 0
		todo = todo[1:]
		p := &pass{auditor: a, task: &t, report: r, counter: counter, left: len(todo), differs: map[uint64]bool{}, counted: map[uint64]bool{}, inSets: map[setOf]bool{}}
		for _, name := range []string{"user", "unread"} {
			if counter, ok := a.Schema.Counter(name); ok {
				p.persons = append(p.persons, counter)
			}
		}
		rest, err := p.run(ctx, func() *ledger { return newLedger(a.Schema, a.Limits, shards, sample, only, common) })
		r.Passes++
		if err != nil {
			return r, err
		}
		todo = append(rest, todo...) // the narrowest first: fewest wait
	}
	return r, nil
}

// pass is one way through the log, and what is compared at its end.
type pass struct {
	*derivation
	auditor *Auditor
	task    *Task
	report  *Report
	counter int // the only one; -1: everything
	left    int
	told    Progress
	persons []int           // counters whose rows are users'
	differs map[uint64]bool // ids of the chunk
	counted map[uint64]bool // those of which a row says that they have followers
	inSets  map[setOf]bool  // sets of which a row says that they have members

	is, should facts // being compared; their memory is used again
}

func (p *pass) run(ctx context.Context, blank func() *ledger) (rest []Sample, err error) {
	a := p.auditor
	p.task.Turns.Take()
	defer p.task.Turns.Give()
	if p.derivation, err = a.derive(ctx, blank, p.task); err != nil {
		return nil, err
	}
	defer p.close()
	p.report.Base = p.base
	p.progress = func(at pipeline.Position) { p.tell(at) }
	// Up to where the last of them stands, and then to each.
	if p.told.Of, err = p.lowest(ctx); err != nil {
		return nil, err
	}
	// A shard behind the base is waited for, as behind any that was compared before.
	if err := p.to(ctx, p.told.Of); err != nil {
		return nil, err
	}
	for _, s := range slices.Sorted(maps.Keys(p.report.Shards)) {
		if _, skipped := p.report.Skipped[s]; skipped {
			continue
		}
		if err := p.shard(ctx, s); err != nil {
			if ctx.Err() != nil || errors.Is(err, errLog) || errors.Is(err, ErrMemory) {
				return nil, err
			}
			a.Logger.Warn("audit: a shard is skipped", "shard", s, "error", err)
			p.report.Skipped[s] = err.Error()
		}
		p.drop(s)
	}
	if p.common {
		if err := p.notices(ctx); err != nil {
			return nil, err
		}
	}
	return p.rest, nil
}

func (p *pass) tell(at pipeline.Position) {
	if p.task.Progress == nil {
		return
	}
	p.told.At, p.told.Done, p.told.Passes, p.told.IDs, p.told.Differ = at, p.report.Passes, p.left+len(p.rest), p.report.IDs, p.report.Differ
	p.task.Progress(p.told)
}

// lowest is where that one of the shards stands that is behind the others. One
// that cannot be asked is skipped.
func (p *pass) lowest(ctx context.Context) (pipeline.Position, error) {
	lowest := pipeline.PositionMax
	for _, s := range slices.Sorted(maps.Keys(p.report.Shards)) {
		at, _, err := p.auditor.Served.Facts(ctx, &pipeline.FactsAsk{Part: pipeline.PartRows, Shard: s}, func(pipeline.Fact) {})
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
	for ids := range slices.Chunk(p.ids(s), chunk) {
		if err := p.some(ctx, s, ids, p.task.IDs != nil); err != nil {
			return err
		}
	}
	if p.task.Stored && p.task.IDs == nil {
		return p.stored(ctx, s)
	}
	return nil
}

// some compares some ids, chunk at most; with whole everything of them, whatever
// the log says that they are.
func (p *pass) some(ctx context.Context, s pipeline.Shard, ids []uint64, whole bool) error {
	clear(p.differs)
	clear(p.counted)
	clear(p.inSets)
	began, found := time.Now(), p.report.Shards[s]
	if err := p.chunk(ctx, s, ids, whole); err != nil {
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

// ids are those of a shard that the ledger knows something of, or that were asked
// for.
func (p *pass) ids(s pipeline.Shard) (ids []uint64) {
	for _, id := range p.task.IDs {
		if pipeline.ShardOf(id, p.auditor.Shards) == s && p.has(id) {
			ids = append(ids, id)
		}
	}
	if p.task.IDs == nil {
		for i := range p.parts[s].rows {
			ids = slices.AppendSeq(ids, maps.Keys(p.parts[s].rows[i].at))
		}
		ids = slices.AppendSeq(ids, maps.Keys(p.parts[s].users))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (p *pass) chunk(ctx context.Context, s pipeline.Shard, ids []uint64, whole bool) error {
	for counter := range p.schema.Counters {
		if p.counter < 0 || p.counter == counter {
			if err := p.compare(ctx, &pipeline.FactsAsk{Part: pipeline.PartRows, Shard: s, Counter: counter, IDs: ids}); err != nil {
				return err
			}
		}
	}
	if p.counter >= 0 {
		return nil
	}
	if err := p.sets(ctx, s, ids, whole); err != nil {
		return err
	}
	if !whole {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return !p.isUser(s, id) })
	}
	if len(ids) == 0 {
		return nil
	}
	if err := p.compare(ctx, &pipeline.FactsAsk{Part: pipeline.PartPosts, Shard: s, IDs: ids}); err != nil {
		return err
	}
	var followed []uint64
	for i := range ids {
		ask, u := pipeline.FactsAsk{Part: pipeline.PartUser, Shard: s, IDs: ids[i : i+1]}, p.parts[s].users[ids[i]]
		if u != nil && len(u.cursors) > 0 {
			ask.Channels = slices.Sorted(maps.Keys(u.cursors))
		}
		if err := p.compare(ctx, &ask); err != nil {
			return err
		}
		// A user's followers are always read from the disk.
		if !whole && p.graph[follower] >= 0 && !p.counted[ids[i]] && (u == nil || len(u.followers) == 0) {
			continue
		}
		followed = append(followed, ids[i])
	}
	return p.pages(ctx, &pipeline.FactsAsk{Part: pipeline.PartMembers, Shard: s, Column: pipeline.NoColumn, IDs: followed, Limit: page})
}

// isUser says that an id is a user's, as far as the log shows: has lists or marks,
// or a row among those of users.
func (p *pass) isUser(s pipeline.Shard, id uint64) bool {
	of := p.parts[s]
	for _, counter := range p.persons {
		if of.rows[counter].row(id) != nil {
			return true
		}
	}
	return of.users[id] != nil
}

// pages compares members of sets, page by page.
func (p *pass) pages(ctx context.Context, ask *pipeline.FactsAsk) error {
	for more := len(ask.IDs) > 0; more; {
		var err error
		if more, err = p.comparePage(ctx, ask); err == nil {
			err = p.pace.rest(ctx, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) notices(ctx context.Context) error {
	names := append(slices.Collect(maps.Keys(p.channels)), p.auditor.Served.ChannelNames()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := p.compare(ctx, &pipeline.FactsAsk{Part: pipeline.PartNotices, Channels: []string{name}}); err != nil {
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
		p.report.Channels++
		return
	}
	p.differs[d.ID] = true
}
