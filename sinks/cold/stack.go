package cold

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Stack is what a shard has on disk: its state, and its runs one above the
// other. Runs are there in two steps: a checkpoint lists them on disk, and
// [Stack.Publish] shows them to views.
type Stack struct {
	store   *Store
	number  pipeline.Shard
	horizon atomic.Uint64

	// edit is held while the list on disk is changed: a checkpoint, from before its commit
	// until memory says the same, or a merge. A goroutine that needs several takes them in
	// ascending order.
	edit lock

	failures int // of merges since the last that succeeded; Store.merging guards it

	mu       sync.Mutex // for moments: nothing under it does I/O
	err      error      // why the shard cannot be used; it stays
	state    State      // on disk
	visible  *layers    // what views see
	pending  []*layer   // committed and not published, newest first
	doubtful []*layer   // of commits that failed, and may be on disk all the same

	importing bool // an [Import] is open: nothing is merged
}

// lock is a mutex that may be held while the disk is waited for. In a bubble of
// testing/synctest a goroutine that waits for a sync.Mutex counts as running, and the
// simulation waits until none does.
type lock chan struct{}

func newLock() lock    { return make(lock, 1) }
func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// layer is a run of a stack, open for reading. Lists hold it.
type layer struct {
	listed
	file *runFile
	run  *run.Run
	refs atomic.Int32

	summing summing
}

func (l *layer) hold() *layer {
	l.refs.Add(1)
	return l
}

func (l *layer) release() {
	if l.refs.Add(-1) == 0 {
		l.file.files.memory.Add(-int64(l.run.Memory()))
		l.file.live.Add(-l.info.Bytes)
		l.file.release()
	}
}

// layers is a list of runs, newest first, that never changes. Views and the
// stack hold it.
type layers struct {
	refs atomic.Int32
	all  []*layer
}

// newLayers is held once.
func newLayers(all ...[]*layer) *layers {
	l := new(layers)
	for _, some := range all {
		for _, one := range some {
			l.all = append(l.all, one.hold())
		}
	}
	l.refs.Store(1)
	return l
}

func (l *layers) release() {
	if l.refs.Add(-1) == 0 {
		releaseAll(l.all)
	}
}

func releaseAll(all []*layer) {
	for _, l := range all {
		l.release()
	}
}

// Stack is that of a shard, or of the commons (number = the number of shards).
func (s *Store) Stack(number pipeline.Shard) *Stack { return s.stacks[number] }

// State is how far the shard has come on disk; the zero State if it never did.
// The error says why the shard cannot be used: its list or a run is damaged or
// missing, and then it wraps [ErrCorrupt]; or a run could not be read at the
// start.
func (k *Stack) State() (State, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.err
}

// Stored says whether there is anything of the shard here, also if it cannot be
// used.
func (k *Stack) Stored() bool {
	state, err := k.State()
	return err != nil || state != State{}
}

// View is what is visible now; Close must follow. It does no I/O and may be
// called under a lock.
func (k *Stack) View() *View {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.visible.refs.Add(1)
	return &View{stack: k, layers: k.visible, err: k.err}
}

// Publish makes visible what was committed last, to views made from now on. It
// does no I/O and may be called under a lock.
func (k *Stack) Publish() {
	k.mu.Lock()
	old, pending := k.visible, k.pending
	if len(pending) > 0 {
		k.visible, k.pending = newLayers(pending, old.all), nil
	}
	runs := len(k.visible.all)
	k.mu.Unlock()
	if len(pending) > 0 {
		old.release()
		releaseAll(pending)
	}
	if runs > RunsWanted {
		k.store.wakeMerger()
	}
}

// Full says that the shard has [RunsMax] runs: merges must come before another
// checkpoint of it. It has them begin at once and go on without rest. Of a shard
// that cannot be used it is false: a checkpoint says why.
func (k *Stack) Full() bool {
	if _, err := k.State(); err != nil || k.runs() < RunsMax {
		return false
	}
	k.store.wakeMerger()
	return true
}

func (k *Stack) runs() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pending) + len(k.visible.all)
}

// list is what the shard's key lists, newest first. While edit is held it stays.
func (k *Stack) list() []*layer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Concat(k.pending, k.visible.all)
}

// SetHorizon has merges leave out posts before a position from now on, where
// nothing is older. Views may show them until then.
func (k *Stack) SetHorizon(position pipeline.Position) { k.horizon.Store(uint64(position)) }

// fail refuses the shard from now on.
func (k *Stack) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
	}
}

// write is the write of the shard's key, were its runs these. edit is held.
func (k *Stack) write(state State, all ...[]*layer) Write {
	var runs []listed
	for _, some := range all {
		for _, l := range some {
			runs = append(runs, l.listed)
		}
	}
	key := shardKey(k.number)
	return Write{Key: key, Value: appendList(nil, key, state, runs)}
}

// doubt notes that a commit failed which would have listed a run: as it may
// have happened, the file stays until a later commit of the shard has.
func (k *Stack) doubt(l *layer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubtful = append(k.doubtful, l.hold())
}

// certain says that the shard's key was committed.
func (k *Stack) certain() {
	k.mu.Lock()
	doubtful := k.doubtful
	k.doubtful = nil
	k.mu.Unlock()
	releaseAll(doubtful)
}

// wrap names the shard, the file and the run that an error is of.
func (k *Stack) wrap(l *layer, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed):
		return err
	}
	return fmt.Errorf("cold: shard %d: %s, the run at byte %d: %w", k.number, l.file.name(), l.at, err)
}

// Bytes is what the runs take that the shard's key lists.
func (k *Stack) Bytes() (bytes int64) {
	for _, l := range k.list() {
		bytes += l.info.Bytes
	}
	return bytes
}
