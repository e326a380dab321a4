package cold

import (
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/tidemark-io/tidemark/pipeline"
)

// OpenExported opens a shard as it was exported, to be read where its runs lie:
// nothing is copied, and nothing can be changed. open opens a run, an index of
// m.Runs, each time that it is needed; schema says what the rows are read as, and
// the store's own has what the export has besides. Close must follow. Of what is
// damaged every read returns why, as of any store.
func OpenExported(m *Manifest, schema *pipeline.Schema, open func(run int) (File, error)) (*Store, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return OpenOn(&exportedEngine{m: m, open: open}, schema, m.Shards, "")
}

// exportedEngine holds one shard, whose runs are a file each: the number of the file
// is one more than the run's.
type exportedEngine struct {
	m    *Manifest
	open func(run int) (File, error)
}

var _ Engine = (*exportedEngine)(nil)

// Get implements Engine.
func (e *exportedEngine) Get([]byte) ([]byte, error) {
	return json.Marshal(Meta{Format: e.m.Format, Shards: e.m.Shards, Dictionary: e.m.Dictionary, Streams: e.m.Streams})
}

// Scan implements Engine: there is the key of one shard.
func (e *exportedEngine) Scan(_ []byte, visit func(key, value []byte) error) error {
	var runs []listed
	for i, info := range e.m.Runs {
		runs = append(runs, listed{file: uint64(i + 1), info: info})
	}
	key := shardKey(e.m.Shard)
	return visit(key, appendList(nil, key, e.m.State, runs))
}

// Commit implements Engine. What the schema has and the export has not is added to
// the store's dictionary: there are no rows of it, so it need not be kept.
func (e *exportedEngine) Commit([]Write) error { return nil }

// Create implements Engine.
func (e *exportedEngine) Create(name string) (NewFile, error) {
	return nil, fmt.Errorf("cold: create %s: %w", name, errExported)
}

// Open implements Engine.
func (e *exportedEngine) Open(name string) (File, error) {
	number, ok := parseFileName(name)
	if !ok || number == 0 || number > uint64(len(e.m.Runs)) {
		return nil, fmt.Errorf("cold: open %s: %w", name, fs.ErrNotExist)
	}
	return e.open(int(number - 1))
}

// Remove implements Engine.
func (e *exportedEngine) Remove(name string) error {
	return fmt.Errorf("cold: remove %s: %w", name, errExported)
}

// Files implements Engine.
func (e *exportedEngine) Files() (names []string, err error) {
	for i := range e.m.Runs {
		names = append(names, fileName(uint64(i+1)))
	}
	return names, nil
}

func (e *exportedEngine) Room(int64) error                 { return errExported }
func (e *exportedEngine) Sizes() (tables, valueLog int64)  { return 0, 0 }
func (e *exportedEngine) Verify(func() bool, func(Damage)) {}
func (e *exportedEngine) Close() error                     { return nil }

var errExported = fmt.Errorf("it is of an export, %w", fs.ErrPermission)
