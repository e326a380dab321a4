package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// derivation is what the log says of some ids, up to a position. What does not fit into
// memory lies in scratch files, so any choice of ids is derived in one way through the log.
// It is for one goroutine.
type derivation struct {
	auditor *Auditor
	has     func(id uint64) bool // nil: of all ids
	base    string               // that it began with; "": with nothing
	clock   *shard.Clock
	shards  []*tier.Shard // by number; nil: its ids are not derived
	commons *tier.Commons
	places  []place

	at       pipeline.Position  // it stands here
	source   pipeline.Source    // nil: it is to be opened
	run      []pipeline.Message // read, and not all of it derived
	lane     pipeline.Deriver
	memory   int // bytes that the shards may take, and to write them, about
	pace     pace
	progress func(at pipeline.Position)

	filters *filters // nil: all is read
	keys    []key    // of the chosen ids

	sequence uint64   // of windows
	names    []string // of the columns of the last window
	columns  []pipeline.Column
	kept     []byte // changes of a window's chosen ids
}

// place is a scratch store, with what lies there.
type place struct {
	store *cold.Store
	units []unit
}

// unit is a shard or the channels, with its disk.
type unit interface {
	Bytes() int
	Moved() bool
	Full() bool
	HandOver()
	Write(to *cold.Checkpoint)
	Settle(committed bool)
}

// sourceWithin is how long the log may take to give a message that it holds.
const sourceWithin = time.Minute

// underived is why the log, a base or the scratch files do not give what the log says.
type underived struct{ error }

func (u underived) Unwrap() error { return u.error }

func isUnderived(err error) bool {
	_, is := errors.AsType[underived](err)
	return is
}

// derive begins a derivation of ids of some shards, with a base (nil: with nothing). It is
// called in a turn, which others have while it waits. close must follow, also after an error.
func (a *Auditor) derive(ctx context.Context, base *backup.Base, shards []bool, has func(uint64) bool, t *Task) (*derivation, error) {
	d := &derivation{
		auditor: a, has: has, clock: shard.NewClock(max(a.Users.Retention, a.Users.Inactive)), shards: make([]*tier.Shard, a.Shards),
		lane: a.Lane(), memory: t.Memory, pace: newPace(t.Rate, t.Turns),
	}
	var err error
	d.aside(func() {
		if base == nil {
			err = d.beginWithNothing(shards)
		} else {
			err = d.beginWith(ctx, base, shards)
		}
	})
	if err == nil && base != nil {
		err = d.throughBase(ctx, base)
	}
	if err == nil && t.IDs != nil && len(t.IDs) <= filteredMax {
		err = d.filtered(ctx, t.IDs)
	}
	return d, err
}

// filteredMax is of how many ids filters are asked at most: for more it is no dearer to read.
const filteredMax = 256

// filtered has the derivation pass over stretches that have none of some ids.
func (d *derivation) filtered(ctx context.Context, ids []uint64) (err error) {
	x := d.auditor.Filters
	if x == nil {
		return nil
	}
	var extent Extent
	if d.aside(func() { extent, err = x.Log.Extent(ctx) }); err != nil {
		return err
	}
	d.filters = x.filtersOf(extent)
	for _, id := range ids {
		d.keys = append(d.keys, keyOf(id))
	}
	return nil
}

// passOver goes on to the end of the stretch that comes next, if that is before a target and
// its filter has none of the ids. Of what is passed over only log time matters.
func (d *derivation) passOver(ctx context.Context, target pipeline.Position) (passed bool, err error) {
	if d.filters == nil {
		return false, nil
	}
	s, there := d.filters.with(d.at.Next())
	end := pipeline.EndOf(s.last)
	if !there || end >= target {
		return false, nil
	}
	var sequences []uint64
	o, err := d.filters.open(s)
	if err == nil {
		defer o.close()
		sequences, err = o.findAny(d.keys)
	}
	if err != nil { // it is read, and the filter made again
		d.filters.drop(s)
		return false, nil
	}
	if o.any() || len(sequences) > 0 {
		return false, nil
	}
	err = d.apply(ctx, &pipeline.Window{
		Header: pipeline.Header{From: d.at, To: end, Time: int64(o.second) * 1000}, Columns: d.names,
		Marks: []pipeline.TimeMark{{Second: int64(o.second), Position: end}}, Sections: make([][]byte, len(d.shards)+1),
	})
	if d.at, d.run = end, nil; d.source != nil {
		_ = d.source.Close()
		d.source = nil
	}
	d.auditor.Stats.PassedOver.Add(1)
	return true, err
}

// open reads on in a log.
func (d *derivation) open(log func() (pipeline.Source, error)) error {
	var source pipeline.Source
	var err error
	if d.aside(func() { source, err = log() }); err != nil {
		return beginning(d.at, err)
	}
	d.source = source
	return nil
}

func (d *derivation) aside(wait func()) { d.pace.turns.Aside(wait) }

func (d *derivation) beginWithNothing(shards []bool) error {
	a := d.auditor
	store, err := cold.OpenScratch(a.Schema, a.Shards, cold.Scratch{Dir: a.Dir, Room: a.Room})
	if err != nil {
		return err
	}
	for s, derived := range shards {
		if derived {
			err = errors.Join(err, d.add(store, pipeline.Shard(s)))
		}
	}
	return errors.Join(err, d.add(store, pipeline.Shard(a.Shards)))
}

// beginWith begins with what a base has: log time first, which shards ask for.
func (d *derivation) beginWith(ctx context.Context, base *backup.Base, shards []bool) error {
	d.base = base.String()
	for s := len(shards); s >= 0; s-- {
		if s < len(shards) && !shards[s] {
			continue
		}
		store, err := base.Open(ctx, pipeline.Shard(s))
		if err == nil {
			err = d.add(store, pipeline.Shard(s))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a shard as a store has it; the one past the last is the channels.
func (d *derivation) add(store *cold.Store, number pipeline.Shard) error {
	a := d.auditor
	if n := len(d.places); n == 0 || d.places[n-1].store != store {
		d.places = append(d.places, place{store: store})
	}
	state, err := store.Stack(number).State()
	if err != nil {
		return err
	}
	p := &d.places[len(d.places)-1]
	if int(number) == a.Shards {
		d.commons = tier.NewCommons(shard.NewCommons(number, d.clock, state, a.Notices, a.Dots, a.Channels), store, number)
		p.units = append(p.units, d.commons)
		return d.commons.Load()
	}
	d.shards[number] = tier.New(shard.New(number, a.Schema, a.Users, d.clock, state), store)
	d.shards[number].Loaded() // no more than what is asked for
	p.units = append(p.units, d.shards[number])
	return nil
}

// throughBase brings the shards of a base to one position by its own events. No window goes
// over where one of them stands.
func (d *derivation) throughBase(ctx context.Context, base *backup.Base) error {
	cuts := []pipeline.Position{base.Position(), d.commons.State().Applied}
	for _, t := range d.shards {
		if t != nil {
			cuts = append(cuts, t.State().Applied)
		}
	}
	slices.Sort(cuts)
	if d.at = cuts[0]; d.at == base.Position() {
		return nil
	}
	if err := d.open(base.Log); err != nil {
		return err
	}
	for _, at := range cuts {
		if err := d.to(ctx, at); err != nil {
			return err
		}
	}
	err := d.source.Close()
	d.source = nil
	return err
}

// close lets everything go.
func (d *derivation) close() {
	if d.source != nil {
		_ = d.source.Close()
	}
	for _, p := range d.places {
		_ = p.store.Close() // nothing of it is to last
	}
}

// drop lets go of a shard that is compared.
func (d *derivation) drop(s pipeline.Shard) {
	for i := range d.places {
		p := &d.places[i]
		if p.units = slices.DeleteFunc(p.units, func(u unit) bool { return u == unit(d.shards[s]) }); len(p.units) == 0 {
			_ = p.store.Close() // nothing of it is to last
		}
	}
	d.shards[s] = nil
}

// beginning says what is missing where the log has lost what comes after a
// position.
func beginning(at pipeline.Position, err error) error {
	switch {
	case !errors.Is(err, pipeline.ErrGap):
		return fmt.Errorf("check: read the log: %w", err)
	case at == 0:
		return fmt.Errorf("%w: everything was counted from its first event, there is no base to begin with instead: %w", ErrBeginning, err)
	}
	return fmt.Errorf("%w: what comes after position %d is gone: %w", ErrBeginning, at, err)
}

// to derives up to a position, which the log holds.
func (d *derivation) to(ctx context.Context, target pipeline.Position) error {
	for d.at < target {
		if passed, err := d.passOver(ctx, target); err != nil {
			return err
		} else if passed {
			if err := d.pace.rest(ctx, 0); err != nil {
				return err
			}
			continue
		}
		if err := d.next(ctx); err != nil {
			return err
		}
		end := min(target, pipeline.EndOf(d.run[len(d.run)-1].Sequence))
		windows, err := d.lane.Derive(d.at, end, d.run)
		if err != nil {
			return fmt.Errorf("check: derive (%d, %d]: %w", d.at, end, err)
		}
		events := 0
		for i := range windows {
			var w *pipeline.Window
			if err = d.pace.rest(ctx, 0); err == nil {
				w, err = pipeline.DecodeWindow(windows[i].Window)
			}
			if err == nil {
				err = d.apply(ctx, w)
			}
			if err != nil {
				return err
			}
			events += int(windows[i].Events) + len(windows[i].Letters)
		}
		d.at = end
		d.auditor.Stats.Events.Add(uint64(events))
		if d.progress != nil {
			d.progress(d.at)
		}
		if err := d.pace.spend(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// next makes sure that there are messages after where the derivation stands. A base's own
// events may begin before that.
func (d *derivation) next(ctx context.Context) error {
	for {
		for len(d.run) > 0 && pipeline.EndOf(d.run[0].Sequence) <= d.at {
			d.run = d.run[1:]
		}
		if len(d.run) > 0 {
			return nil
		}
		if d.source == nil {
			if err := d.open(func() (pipeline.Source, error) { return d.auditor.Open(ctx, d.at) }); err != nil {
				return err
			}
		}
		run, within, err := d.read(ctx)
		if err != nil && ctx.Err() == nil && within != nil {
			return fmt.Errorf("check: EVENTS gave nothing after position %d within %v", d.at, sourceWithin)
		}
		if err != nil {
			return beginning(d.at, err)
		}
		d.run = run
	}
}

// read waits for messages, while it is the turn of others; within is why it waited no
// longer.
func (d *derivation) read(ctx context.Context) (run []pipeline.Message, within, err error) {
	wait, cancel := context.WithTimeout(ctx, sourceWithin)
	defer cancel()
	d.aside(func() { run, err = d.source.Next(wait) })
	return run, wait.Err(), err
}

// apply takes in a window.
func (d *derivation) apply(ctx context.Context, w *pipeline.Window) error {
	if len(w.Sections) != len(d.shards)+1 {
		return fmt.Errorf("check: window (%d, %d] has %d shards, want %d", w.From, w.To, len(w.Sections)-1, len(d.shards))
	}
	d.translate(w.Columns)
	d.clock.Note(w.Marks)
	d.sequence++
	d.kept = d.kept[:0]
	for s, t := range d.shards {
		if t == nil {
			continue
		}
		err := d.choose(w, s)
		if err == nil {
			_, err = t.Prepare(w, d.columns)
		}
		if err == nil {
			err = t.Apply(d.sequence, w, d.columns)
		}
		if err != nil {
			return err
		}
	}
	if err := d.commons.Apply(d.sequence, w, d.columns); err != nil {
		return err
	}
	d.clock.Trim(w.To, math.MaxInt)
	if 2*d.bytes() > d.memory { // to write it takes as much again
		return d.spill(ctx)
	}
	return nil
}

func (d *derivation) translate(names []string) {
	if d.columns != nil && slices.Equal(names, d.names) {
		return
	}
	d.names, d.columns = slices.Clone(names), make([]pipeline.Column, len(names))
	for i, name := range names {
		column, ok := d.auditor.Schema.Find(name)
		if d.columns[i] = column; !ok {
			d.columns[i] = pipeline.NoColumn
		}
	}
}

// choose leaves in a section of a window what is of the chosen ids.
func (d *derivation) choose(w *pipeline.Window, s int) error {
	if d.has == nil {
		return nil
	}
	begin, section := len(d.kept), pipeline.ReadSection(w.Sections[s], w.From)
	for c, ok := section.Next(); ok; c, ok = section.Next() {
		switch {
		case !d.has(c.ID):
		case c.Op == pipeline.OpCell:
			d.kept = pipeline.AppendChange(d.kept, c.Column, c.ID, c.Delta)
		default:
			d.kept = pipeline.AppendOperation(d.kept, w.From, &section.Operation)
		}
	}
	w.Sections[s] = d.kept[begin:len(d.kept):len(d.kept)]
	return section.Err()
}

// bytes are those of the shards.
func (d *derivation) bytes() (n int) {
	for _, t := range d.shards {
		if t != nil {
			n += t.Bytes()
		}
	}
	return n
}

// spillBytes is about how much is written to the scratch files at a time.
const spillBytes = 8 << 20

// spill writes what is in memory to the scratch files, and gives the memory up. What is left
// then cannot be given up, so four times as much may be taken.
func (d *derivation) spill(ctx context.Context) error {
	for _, p := range d.places {
		for units := p.units; len(units) > 0; {
			n, bytes := 0, 0
			for ; n < len(units) && bytes < spillBytes; n++ {
				bytes += units[n].Bytes()
			}
			if err := d.write(ctx, &p, units[:n]); err != nil {
				return err
			}
			units = units[n:]
		}
	}
	for _, t := range d.shards {
		if t != nil {
			t.Shed(1)
		}
	}
	d.memory = max(d.memory, 4*d.bytes())
	d.auditor.Stats.Spills.Add(1)
	return nil
}

// list writes what has changed of a shard, so that the scratch files list its ids.
func (d *derivation) list(ctx context.Context, s pipeline.Shard) error {
	for _, p := range d.places {
		if slices.Contains(p.units, unit(d.shards[s])) {
			return d.write(ctx, &p, []unit{d.shards[s]})
		}
	}
	return nil
}

// write writes what has changed of some units of a place.
func (d *derivation) write(ctx context.Context, p *place, units []unit) error {
	rest := func(time.Duration) bool { return d.pace.rest(ctx, 0) == nil }
	for did := true; did && slices.ContainsFunc(units, unit.Full); {
		var err error
		if did, err = p.store.MergeOnce(rest); err != nil {
			return err
		}
	}
	c := p.store.Begin()
	moved := slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return !u.Moved() })
	for _, u := range moved {
		u.HandOver()
		u.Write(c)
	}
	err := c.Commit()
	for _, u := range moved {
		u.Settle(err == nil)
	}
	return err
}

// facts is Served.Facts of what is derived.
func (d *derivation) facts(ctx context.Context, ask *tier.FactsAsk, yield func(tier.Fact)) (at pipeline.Position, more bool, err error) {
	if ask.Part == tier.PartNotices {
		at, err = d.commons.Facts(ask, yield)
		return at, false, err
	}
	return d.shards[ask.Shard].Facts(ctx, ask, yield)
}

// pace spends so much a second, in turns.
type pace struct {
	rate  int // 0: no bound
	turns pipeline.Turns
	due   time.Time
}

func newPace(rate int, turns pipeline.Turns) pace {
	return pace{rate: rate, turns: turns, due: time.Now()}
}

// spend gives its turn to others, and waits until n more are due and it is its turn
// again. What was not used before does not add up.
func (p *pace) spend(ctx context.Context, n int) error {
	wait := time.Duration(0)
	if p.rate > 0 {
		wait = p.wait(n)
	}
	return p.rest(ctx, wait)
}

// wait is how long it is until n more are due.
func (p *pace) wait(n int) time.Duration {
	if now := time.Now(); p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	if wait := time.Until(p.due); wait >= time.Millisecond { // less adds up
		return wait
	}
	return 0
}

// rest is the turn of others, for so long at least.
func (p *pace) rest(ctx context.Context, least time.Duration) (err error) {
	p.turns.Aside(func() { err = kit.Sleep(ctx, least) })
	return err
}
