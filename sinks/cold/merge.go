package cold

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

const (
	// mergeShare is the part of one core that the merger takes, unless a shard
	// has nearly as many runs as it may.
	mergeShare = 0.3
	// mergePiece is how long the merger goes on between two rests; it looks
	// every so many entries.
	mergePiece   = 5 * time.Millisecond
	mergeEntries = 4096
	// mergeRetry is how long it waits after a merge that failed.
	mergeRetry = time.Second
	// mergeAhead is how many bytes of a run are read at once.
	mergeAhead = 256 << 10
)

// merger merges in the background until the store is closed.
func (s *Store) merger() {
	defer close(s.mergerDone)
	failing := false
	for {
		var wait <-chan time.Time
		did, err := s.MergeOnce(s.rest)
		if did && err == nil {
			if failing {
				s.log.Info("cold: merges succeed again")
			}
			failing = false
			continue
		}
		if err != nil {
			wait = time.After(mergeRetry)
			if !failing && !errors.Is(err, errStopped) && !errors.Is(err, ErrCorrupt) {
				failing = true
				s.log.Error("cold: merges fail and are tried again; until they succeed, checkpoints wait where a shard has too many runs", "error", err)
			}
		}
		select {
		case <-s.stop:
			return
		case <-wait:
		case <-s.wake:
			if err != nil { // not at each wake
				select {
				case <-wait:
				case <-s.stop:
					return
				}
			}
		}
	}
}

func (s *Store) wakeMerger() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// rest is called by a merge after each piece of its work, with how long that
// took. It says whether to go on.
func (s *Store) rest(worked time.Duration) (goOn bool) {
	select {
	case <-s.stop:
		return false
	default:
	}
	if _, most := s.Runs(); most >= runsHurry {
		return true
	}
	timer := time.NewTimer(time.Duration(float64(worked) * (1 - mergeShare) / mergeShare))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-s.stop:
			return false
		case <-s.wake: // it looks by itself what is to be done
			if _, most := s.Runs(); most >= runsHurry {
				return true
			}
		}
	}
}

// MergeOnce does one merge, where one is due: for callers of [OpenOn], which have no
// goroutine that merges. rest is called now and then with how long it has worked, and false
// ends it; nil: it goes on without rest. After an error nothing has changed, but that a
// shard whose run turned out damaged is refused from now on; the error wraps
// [ErrCorrupt] then.
func (s *Store) MergeOnce(rest func(worked time.Duration) (goesOn bool)) (did bool, err error) {
	s.merging.Lock()
	defer s.merging.Unlock()
	defer s.files.sweep()
	k, from, to := s.due()
	if k == nil {
		return false, nil
	}
	begun := time.Now()
	m := &merge{stack: k, rest: rest, view: k.View()}
	defer m.view.Close()
	all := m.view.layers.all
	if len(all) < to { // nobody else merges
		return false, nil
	}
	m.runs, m.last = all[from:to], to == len(all)
	written, err := m.do()
	if k.failures++; err == nil {
		k.failures = 0
	}
	s.Stats.MergeNanos.Add(uint64(time.Since(begun)))
	switch {
	case err == nil:
		s.Stats.Merges.Add(1)
		if written != nil {
			s.Stats.MergeBytes.Add(uint64(written.info.Bytes))
			written.release()
		}
		return true, nil
	case errors.Is(err, ErrCorrupt):
		err = fmt.Errorf("%w; stop the node, move generations/ away and run 'tidemark repair --replay'", err)
		if m.refuse(err) {
			s.log.Error("cold: a merge met damage; the shard is refused, others go on", "shard", k.number, "error", err)
		}
	}
	if !errors.Is(err, errStopped) {
		s.Stats.MergeErrors.Add(1)
	}
	return false, err
}

// due is the merge to do next: that of the shard with the most runs, of those
// whose merges have failed least. One that cannot be read must not keep the
// others waiting. Where no shard has too many, a run in a file that is mostly
// dead is written again, alone: a shard that rarely changes would keep it.
func (s *Store) due() (due *Stack, from, to int) {
	most := 0
	var lone *Stack
	at := 0
	for _, k := range s.stacks {
		k.mu.Lock()
		all, skip := k.visible.all, k.err != nil || k.importing
		k.mu.Unlock()
		if skip || due != nil && (k.failures > due.failures || k.failures == due.failures && len(all) <= most) {
			continue
		}
		sizes := make([]int64, len(all))
		for i, l := range all {
			sizes[i] = l.info.Bytes
		}
		if a, b := plan(sizes); a < b {
			due, from, to, most = k, a, b, len(all)
		}
		if i := slices.IndexFunc(all, func(l *layer) bool { return l.file.mostlyDead() }); i >= 0 && (lone == nil || k.failures < lone.failures) {
			lone, at = k, i
		}
	}
	if due == nil && lone != nil {
		return lone, at, at + 1
	}
	return due, from, to
}

// merge is one: some neighbouring runs of a shard become one.
type merge struct {
	stack *Stack
	view  *View
	runs  []*layer // newest first
	last  bool     // nothing is older
	rest  func(time.Duration) bool
}

// do merges. What it returns is held once; nil where nothing is left.
func (m *merge) do() (written *layer, err error) {
	k := m.stack
	size := int64(0)
	for _, l := range m.runs {
		size += l.info.Bytes
	}
	// Merging waits before checkpoints do.
	if err := k.store.engine.Room(size + mergeReserve); err != nil {
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	if written, err = m.write(); err != nil {
		return nil, err
	}
	k.edit.Lock()
	defer k.edit.Unlock()
	merged := some(written)
	list := k.list()
	at := slices.Index(list, m.runs[0]) // checkpoints only add what is newer
	if !m.fits(list, at) {              // the shard was imported or dropped since
		if written != nil {
			written.release()
		}
		return nil, errStopped
	}
	maybe, err := k.store.commit([]Write{k.write(k.state, list[:at], merged, list[at+len(m.runs):])})
	if err != nil {
		if written != nil {
			if maybe {
				k.doubt(written)
			}
			written.release()
		}
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	k.certain()
	k.replace(m.runs, merged)
	return written, nil
}

// fits says whether a list still has the runs, from at on, and nothing older
// where nothing was.
func (m *merge) fits(list []*layer, at int) bool {
	end := at + len(m.runs)
	return at >= 0 && end <= len(list) && slices.Equal(list[at:end], m.runs) && m.last == (end == len(list))
}

// refuse refuses the shard whose runs turned out damaged, if they are still its.
func (m *merge) refuse(err error) (refused bool) {
	k := m.stack
	k.edit.Lock()
	defer k.edit.Unlock()
	list := k.list()
	if !m.fits(list, slices.Index(list, m.runs[0])) { // it was imported or dropped since
		return false
	}
	k.fail(err)
	return true
}

// mergeReserve is what a merge leaves for checkpoints.
const mergeReserve = 64 << 20

// replace has views see merged in the place of runs from now on.
func (k *Stack) replace(runs, merged []*layer) {
	k.mu.Lock()
	old := k.visible
	at := slices.Index(old.all, runs[0])
	k.visible = newLayers(old.all[:at], merged, old.all[at+len(runs):])
	k.mu.Unlock()
	old.release()
}

// write writes the merged run into a file of its own. Its memory does not
// depend on the runs' sizes, but for the index.
func (m *merge) write() (*layer, error) {
	k := m.stack
	iterators := make([]*run.Iterator, len(m.runs))
	for i, l := range m.runs {
		iterators[i] = l.run.Iterator(&run.Scratch{Ahead: mergeAhead})
	}
	merger := run.NewMerger(iterators, m.last, k.drops())
	out, err := k.store.create()
	if err != nil {
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	at := listed{file: out.number}
	at.info, err = out.run(func(w *run.Writer) error { return m.copy(w, merger) })
	if failed := merger.Err(); failed != nil {
		out.abort()
		return nil, k.wrap(m.runs[merger.Failed()], failed)
	}
	if err == nil && at.info.Entries == 0 {
		out.abort()
		return nil, nil
	}
	if err != nil {
		out.abort()
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	file, err := out.seal()
	if err != nil {
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	defer file.release() // the layer has it
	l, err := file.layer(at)
	if err != nil {
		return nil, fmt.Errorf("cold: merge runs of shard %d: %w", k.number, err)
	}
	return l, nil
}

// copy writes what a merger comes to, in pieces. It rests after the last one
// too: many small merges must not take a core either, nor hold up Close.
func (m *merge) copy(w *run.Writer, merger *run.Merger) error {
	begun, ranks := time.Now(), m.stack.store.ranks()
	for n := 1; merger.Next(); n++ {
		if !ranks.left(merger.Key(), merger.Gone()) {
			if err := w.Add(merger.Key(), merger.Value(), merger.Gone()); err != nil {
				return err
			}
		}
		if n%mergeEntries != 0 || m.rest == nil {
			continue
		}
		if worked := time.Since(begun); worked > mergePiece {
			if !m.rest(worked) {
				return errStopped
			}
			begun = time.Now()
		}
	}
	if err := merger.Err(); err != nil {
		return err
	}
	if m.rest != nil && !m.rest(time.Since(begun)) {
		return errStopped
	}
	return nil
}

// drops is what a merge at the last level leaves out besides: posts before a
// position, and members or items that are too old by the shard's log time.
func (k *Stack) drops() func(key *run.Key, value []byte) bool {
	horizon := pipeline.Position(k.horizon.Load())
	state, _ := k.State()
	forgotten := k.store.forgotten(state.Time)
	if horizon == 0 && forgotten == nil {
		return nil
	}
	return func(key *run.Key, value []byte) bool {
		switch key.Kind {
		case run.Post:
			return pipeline.Position(key.B) < horizon
		case run.Kept:
			came, err := run.ReadNumbers(run.Kept, value) // what is damaged stays: it is reported where it is read
			return err == nil && came[0] < forgotten[key.Counter]
		case run.Item:
			var words [itemWords]uint64
			came, _, err := run.ReadItem(value, words[:])
			return err == nil && came < forgotten[key.Counter]
		}
		return false
	}
}
