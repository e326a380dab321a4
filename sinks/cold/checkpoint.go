package cold

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Checkpoint is a commit of some shards' changes and states, all or nothing
// (I4). It belongs to one goroutine at a time.
//
//	file of runs ─► sync ─► commit of states and lists ─► Stack.Publish of each shard
type Checkpoint struct {
	store  *Store
	shards []*gather // ascending by number from Commit on
}

// gathers are kept for the next checkpoint: their slices have its size.
var gathers = sync.Pool{New: func() any { return new(gather) }}

// Begin opens a checkpoint; Commit or Discard must follow.
func (s *Store) Begin() *Checkpoint { return &Checkpoint{store: s} }

// Shard takes what a shard, or the commons, hands over. Sink.State must end it.
func (c *Checkpoint) Shard(number pipeline.Shard) Sink {
	g := gathers.Get().(*gather)
	g.reset(c.store, number)
	c.shards = append(c.shards, g)
	return g
}

// Discard lets it go; nothing is written.
func (c *Checkpoint) Discard() {
	for _, g := range c.shards {
		gathers.Put(g)
	}
	c.shards = nil
}

// Commit makes all of it durable, or after an error nothing: the same may be
// handed over again. (A commit that failed may be there after a restart, then
// as a whole.) An error may wrap [ErrDiskFull], or [ErrCorrupt] where a shard
// cannot be used. A shard may be in one checkpoint at a time.
func (c *Checkpoint) Commit() error {
	defer c.Discard()
	begun := time.Now()
	slices.SortFunc(c.shards, func(a, b *gather) int { return cmp.Compare(a.number, b.number) })
	for i, g := range c.shards {
		if err := g.check(); err != nil {
			return err
		}
		if i > 0 && c.shards[i-1].number == g.number {
			return fmt.Errorf("cold: shard %d is twice in a checkpoint", g.number)
		}
	}
	written, err := c.write()
	if err != nil {
		return fmt.Errorf("cold: checkpoint: %w", err)
	}
	defer c.store.files.sweep()
	defer releaseAll(slices.DeleteFunc(slices.Clone(written), func(l *layer) bool { return l == nil }))

	writes := make([]Write, len(c.shards))
	for i, g := range c.shards {
		k := c.store.stacks[g.number]
		k.edit.Lock()
		defer k.edit.Unlock()
		writes[i] = k.write(g.state, some(written[i]), k.list())
	}
	maybe, err := c.store.commit(writes)
	for i, g := range c.shards {
		k, l := c.store.stacks[g.number], written[i]
		if err != nil {
			if l != nil && maybe {
				k.doubt(l)
			}
			continue
		}
		k.certain()
		k.committed(g.state, l)
	}
	if err != nil {
		return fmt.Errorf("cold: checkpoint: %w", err)
	}
	c.store.Stats.noteCheckpoint(written, time.Since(begun))
	return nil
}

// commit is that of the engine; maybe says of an error that the writes may be
// there all the same. Where there is no room they surely are not: then what was
// written for them can go, and must, or it would take the room of the next try.
func (s *Store) commit(writes []Write) (maybe bool, err error) {
	if err := s.engine.Room(0); err != nil {
		return false, err
	}
	if s.unwritten.Load() {
		if err := s.writeMeta(); err != nil {
			return false, err
		}
	}
	return true, s.engine.Commit(writes)
}

// some is a list of a run, or of none.
func some(l *layer) []*layer {
	if l == nil {
		return nil
	}
	return []*layer{l}
}

// committed notes what is on disk now.
func (k *Stack) committed(state State, l *layer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = state
	if l != nil {
		k.pending = append([]*layer{l.hold()}, k.pending...)
	}
}

// write writes the file of a checkpoint, if there is anything to write, and
// opens its runs: one for each shard, held once; nil for one of which only the
// state is new.
func (c *Checkpoint) write() (runs []*layer, err error) {
	runs = make([]*layer, len(c.shards))
	bytes := int64(0)
	for _, g := range c.shards {
		bytes += g.bytes()
	}
	if bytes == 0 {
		return runs, nil
	}
	if err := c.store.engine.Room(bytes); err != nil {
		return nil, err
	}
	out, err := c.store.create()
	if err != nil {
		return nil, err
	}
	where := make([]listed, len(c.shards))
	for i, g := range c.shards {
		if g.empty() {
			continue
		}
		where[i] = listed{file: out.number, at: out.at}
		if where[i].info, err = out.run(g.write); err != nil {
			out.abort()
			return nil, err
		}
	}
	file, err := out.seal()
	if err != nil {
		return nil, err
	}
	defer file.release() // the layers have it
	for i, g := range c.shards {
		if g.empty() {
			continue
		}
		if runs[i], err = file.layer(where[i]); err != nil {
			releaseAll(slices.DeleteFunc(runs, func(l *layer) bool { return l == nil }))
			return nil, err
		}
	}
	return runs, nil
}

// writeAhead is how many bytes go to a file at once.
const writeAhead = 128 << 10

// output is a file of runs that is being written. seal or abort ends it.
type output struct {
	store  *Store
	file   NewFile
	number uint64
	at     int64 // where the next run begins
	*writing
}

// writing is what writing a file takes; it is used again.
type writing struct {
	buffer *bufio.Writer
	writer *run.Writer
}

var writings = sync.Pool{New: func() any { return &writing{bufio.NewWriterSize(nil, writeAhead), run.NewWriter(nil)} }}

func (s *Store) create() (*output, error) {
	number := s.files.next.Add(1)
	file, err := s.engine.Create(fileName(number))
	if err != nil {
		return nil, err
	}
	o := &output{store: s, file: file, number: number, writing: writings.Get().(*writing)}
	o.buffer.Reset(file)
	return o, nil
}

// run writes one run.
func (o *output) run(write func(*run.Writer) error) (run.Info, error) {
	o.writer.Reset(o.buffer)
	if err := write(o.writer); err != nil {
		return run.Info{}, err
	}
	info, err := o.writer.Close()
	o.at += info.Bytes
	return info, err
}

// abort removes the file.
func (o *output) abort() {
	o.file.Abort()
	o.release()
}

func (o *output) release() {
	o.buffer.Reset(nil)
	o.writer.Reset(nil)
	writings.Put(o.writing)
}

// seal makes the file durable. It is held once. After an error it is gone.
func (o *output) seal() (*runFile, error) {
	if err := o.buffer.Flush(); err != nil {
		o.abort()
		return nil, err
	}
	defer o.release()
	if err := o.file.Seal(); err != nil {
		return nil, err
	}
	r := o.store.files.file(o.number)
	r.bytes.Store(o.at)
	return r, nil
}

// layer opens a run of a file; it is held once, and holds the file.
func (r *runFile) layer(at listed) (*layer, error) {
	opened, err := run.Open(r, at.at, at.info)
	if err != nil {
		return nil, fmt.Errorf("%s, the run at byte %d: %w", r.name(), at.at, err)
	}
	r.refs.Add(1)
	r.live.Add(at.info.Bytes)
	r.files.memory.Add(int64(opened.Memory()))
	l := &layer{listed: at, file: r, run: opened}
	return l.hold(), nil
}

var errStopped = errors.New("cold: the merge was stopped")
