package cold

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Manifest says what a shard is as of one of its checkpoints: what an [Export]
// offers and an [Import] takes. It never changes.
type Manifest struct {
	Format     int            `json:"format"`
	Shards     int            `json:"shards"`
	Shard      pipeline.Shard `json:"shard"` // the number of shards: the commons
	Streams    Streams        `json:"streams"`
	Dictionary Dictionary     `json:"dictionary"`
	State      State          `json:"state"`
	Runs       []run.Info     `json:"runs"` // newest first
}

// Bytes is how many bytes the runs have together.
func (m *Manifest) Bytes() (bytes int64) {
	for _, r := range m.Runs {
		bytes += r.Bytes
	}
	return bytes
}

// runsImportMax bounds the runs of a manifest: a checkpoint may be committed
// above [RunsMax] before it is published.
const runsImportMax = 2 * RunsMax

// shardBytesMax bounds the bytes of a manifest's runs.
const shardBytesMax = 1 << 50

// ErrDictionary: the shard's rows name columns by other numbers, or columns that
// are not known here. It cannot be imported; see [Store.Adopt].
var ErrDictionary = errors.New("cold: another dictionary")

// ErrForeign: the shard is of another number of shards, of other streams (I10),
// or of another format. It cannot be imported.
var ErrForeign = errors.New("cold: a shard of another log")

// ErrInUse: the shard is imported already, or changes while it is imported.
var ErrInUse = errors.New("cold: the shard is in use")

// check says what is wrong with a manifest, wherever it comes from.
func (m *Manifest) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: a manifest of shard %d: %s", ErrCorrupt, m.Shard, fmt.Sprintf(format, args...))
	}
	if len(m.Runs) > runsImportMax {
		return bad("%d runs, at most %d are possible", len(m.Runs), runsImportMax)
	}
	if m.State.Applied > pipeline.PositionMax {
		return bad("the position %d", m.State.Applied)
	}
	if twice := m.Dictionary.twice(); twice != "" {
		return bad("the dictionary has %q twice", twice)
	}
	left := int64(shardBytesMax)
	for i, r := range m.Runs {
		if r.Entries <= 0 || r.Blocks <= 0 || r.IndexAt <= 0 || r.Bytes <= r.IndexAt || r.Bytes > left {
			return bad("run %d has %d entries in %d blocks, %d bytes, the index at %d", i+1, r.Entries, r.Blocks, r.Bytes, r.IndexAt)
		}
		left -= r.Bytes
	}
	return nil
}

// accepts says why a shard cannot be imported here. A store with other streams
// counts other positions (I10). Where only DELTAS is another, positions are the
// same, and what the state says of DELTAS means nothing.
func (s *Store) accepts(m *Manifest, number pipeline.Shard) error {
	if err := m.check(); err != nil {
		return err
	}
	here := s.Meta()
	switch {
	case m.Format != Format:
		return fmt.Errorf("%w: it has format %d, and this version reads format %d", ErrForeign, m.Format, Format)
	case m.Shards != here.Shards:
		return fmt.Errorf("%w: it is one of %d shards, and this store has %d", ErrForeign, m.Shards, here.Shards)
	case m.Shard != number:
		return fmt.Errorf("%w: it is shard %d, and shard %d was wanted", ErrForeign, m.Shard, number)
	case !m.Streams.Events.Equal(here.Streams.Events):
		return fmt.Errorf("%w: it counts the EVENTS created at %v, and this store that of %v", ErrForeign, m.Streams.Events, here.Streams.Events)
	}
	both, err := here.Dictionary.union(m.Dictionary)
	if err != nil {
		return err
	}
	for i, counter := range both {
		if i >= len(here.Dictionary) || len(counter.Columns) > len(here.Dictionary[i].Columns) {
			return fmt.Errorf("%w: it has columns of %q that this store never counted", ErrDictionary, counter.Name)
		}
	}
	return nil
}

// union is a dictionary with another's names added. Every name keeps its number
// in both, or there is none.
func (d Dictionary) union(other Dictionary) (Dictionary, error) {
	out := slices.Clone(d)
	for i, theirs := range other {
		if i == len(out) {
			out = append(out, theirs)
			continue
		}
		ours := out[i]
		if ours.Name != theirs.Name {
			return nil, fmt.Errorf("%w: counter %d is %q there and %q here", ErrDictionary, i, theirs.Name, ours.Name)
		}
		for n := range min(len(ours.Columns), len(theirs.Columns)) {
			if ours.Columns[n] != theirs.Columns[n] {
				return nil, fmt.Errorf("%w: column %d of %q is %q there and %q here", ErrDictionary, n, ours.Name, theirs.Columns[n], ours.Columns[n])
			}
		}
		if len(theirs.Columns) > len(ours.Columns) {
			out[i] = theirs
		}
	}
	if twice := out.twice(); twice != "" {
		return nil, fmt.Errorf("%w: %q has one number there and another here", ErrDictionary, twice)
	}
	if len(out) > countersMax {
		return nil, fmt.Errorf("%w: %d counters and sets, at most %d fit", ErrDictionary, len(out), countersMax)
	}
	return out, nil
}

// Adopt takes over another store's dictionary, so that its shards can be
// imported here: a store that holds nothing yet takes it as it is, another one
// adds the names that it lacks. It changes [Store.Schema], so it must come
// before anything is made of the store. [ErrDictionary]: a number means
// something else here.
func (s *Store) Adopt(d Dictionary) error {
	if twice := d.twice(); twice != "" {
		return fmt.Errorf("%w: the dictionary has %q twice", ErrCorrupt, twice)
	}
	both := d
	if !s.bare() {
		var err error
		if both, err = s.meta.Dictionary.union(d); err != nil {
			return err
		}
	}
	was := s.Meta().Dictionary
	s.setDictionary(both)
	if _, err := s.adopt(s.schema); err != nil {
		s.setDictionary(was)
		return err
	}
	return s.writeMeta()
}

// bare says that no shard has come anywhere.
func (s *Store) bare() bool {
	for _, k := range s.stacks {
		if state, err := k.State(); err != nil || state != (State{}) || k.runs() > 0 {
			return false
		}
	}
	return true
}

// Source is an [Export], of this process or of another node's.
type Source interface {
	Manifest() *Manifest

	// Read reads bytes of a run, at least one unless there is an error; run is an
	// index of Manifest.Runs, at less than the run's length.
	Read(ctx context.Context, run int, b []byte, at int64) (n int, err error)

	// Sum is the checksum of all of a run.
	Sum(ctx context.Context, run int) (Sum, error)
}

// Sum is the SHA-256 of a run's bytes: which run it is, in whatever file. The
// checksums in a list and in blocks do not tell that: runs that change the same
// keys have the same index.
type Sum [sha256.Size]byte

// summing comes to a run's sum, over bytes that are read in order for whatever
// reason. The zero value has seen none.
type summing struct {
	mu   sync.Mutex
	at   int64     // so far
	hash hash.Hash // of the bytes before at; nil before the first and after the last
	sum  Sum       // once at is the run's length
}

// add takes bytes of a run that has size of them. Those that do not go on where
// it stands are passed over.
func (s *summing) add(b []byte, at, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.at || s.at == size || at+int64(len(b)) <= s.at {
		return
	}
	if s.hash == nil {
		s.hash = sha256.New()
	}
	b = b[s.at-at:]
	s.hash.Write(b)
	if s.at += int64(len(b)); s.at == size {
		s.hash.Sum(s.sum[:0])
		s.hash = nil
	}
}

// get is how far it is, and the sum once that is the run's length.
func (s *summing) get() (Sum, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum, s.at
}

// Union is a dictionary with another's names added; [ErrDictionary]: a number
// means something else in the two.
func Union(a, b Dictionary) (Dictionary, error) { return a.union(b) }
