package cold

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Scratch says what a store begins with that lasts as long as its process.
type Scratch struct {
	// From is a shard as it was exported; nil: nothing. Its runs are read where they lie:
	// Open opens one, an index of From.Runs, each time that it is needed.
	From *Manifest
	Open func(run int) (File, error)

	Dir  string                  // where its own files are, without names; "": that of the system
	Room func(bytes int64) error // says why Dir has no room for so many; nil: it has
}

// OpenScratch opens such a store, in whose files and keys a shard that is derived for a
// while keeps what does not fit into memory. schema says what rows are read as, and the
// store's own has what From has besides. Nothing merges but [Store.MergeOnce], and nothing
// is synced. Close must follow. Of what is damaged every read returns why, as of any store.
func OpenScratch(schema *pipeline.Schema, shards int, o Scratch) (*Store, error) {
	e := &scratch{Scratch: o, keys: map[string][]byte{}, files: map[string]*os.File{}}
	if m := o.From; m != nil {
		if err := m.check(); err != nil {
			return nil, err
		}
		shards = m.Shards
		meta, err := json.Marshal(Meta{Format: m.Format, Shards: m.Shards, Dictionary: m.Dictionary, Streams: m.Streams})
		if err != nil {
			return nil, err
		}
		var runs []listed
		for i, info := range m.Runs {
			runs = append(runs, listed{file: uint64(i + 1), info: info})
		}
		key := shardKey(m.Shard)
		e.keys[string(metaKey)], e.keys[string(key)] = meta, appendList(nil, key, m.State, runs)
	}
	return OpenOn(e, schema, shards, "")
}

// scratch is an [Engine]. Run n of what was exported is file n+1.
type scratch struct {
	Scratch
	mu    sync.Mutex
	keys  map[string][]byte
	files map[string]*os.File // sealed
}

var _ Engine = (*scratch)(nil)

// Get implements Engine.
func (e *scratch) Get(key []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keys[string(key)], nil
}

// Scan implements Engine.
func (e *scratch) Scan(prefix []byte, visit func(key, value []byte) error) error {
	e.mu.Lock()
	keys := maps.Clone(e.keys)
	e.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, string(prefix)) {
			if err := visit([]byte(key), keys[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Commit implements Engine.
func (e *scratch) Commit(writes []Write) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range writes {
		if w.Value == nil {
			delete(e.keys, string(w.Key))
		} else {
			e.keys[string(w.Key)] = w.Value
		}
	}
	return nil
}

// Create implements Engine.
func (e *scratch) Create(name string) (NewFile, error) {
	f, err := os.CreateTemp(e.Dir, "scratch-*")
	if err != nil {
		return nil, full(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return &scratchFile{f, e, name}, nil
}

// exported is the run that a file is; false: it is none that was exported.
func (e *scratch) exported(name string) (run int, is bool) {
	number, ok := parseFileName(name)
	return int(number) - 1, ok && e.From != nil && number >= 1 && number <= uint64(len(e.From.Runs))
}

// Open implements Engine.
func (e *scratch) Open(name string) (File, error) {
	if run, is := e.exported(name); is {
		return e.Scratch.Open(run)
	}
	e.mu.Lock()
	f := e.files[name]
	e.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("cold: open %s: %w", name, fs.ErrNotExist)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return kept{file{f, info.Size()}}, nil
}

// kept is a file that its engine closes.
type kept struct{ file }

func (kept) Close() error { return nil }

// Remove implements Engine. What was exported stays where it lies.
func (e *scratch) Remove(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.files[name]; f != nil {
		delete(e.files, name)
		return f.Close()
	}
	return nil
}

// Files implements Engine.
func (e *scratch) Files() (names []string, err error) {
	if e.From != nil {
		for i := range e.From.Runs {
			names = append(names, fileName(uint64(i+1)))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return append(names, slices.Sorted(maps.Keys(e.files))...), nil
}

// Room implements Engine.
func (e *scratch) Room(bytes int64) error {
	if e.Scratch.Room == nil {
		return nil
	}
	return e.Scratch.Room(bytes)
}

// Close implements Engine.
func (e *scratch) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.files {
		f.Close()
	}
	clear(e.files)
	return nil
}

func (e *scratch) Sizes() (tables, valueLog int64)  { return 0, 0 }
func (e *scratch) Verify(func() bool, func(Damage)) {}

// scratchFile is a [NewFile].
type scratchFile struct {
	f    *os.File
	e    *scratch
	name string
}

func (n *scratchFile) Write(b []byte) (int, error) {
	w, err := n.f.Write(b)
	return w, full(err)
}

func (n *scratchFile) Seal() error {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	n.e.files[n.name] = n.f
	return nil
}

func (n *scratchFile) Abort() { n.f.Close() }
