package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Base is a backup as what a derivation begins with where EVENTS has lost its
// beginning (sinks/check). It is read where it lies, by key. Of a place that cannot be
// read at any byte, an object store, the runs of each shard that is opened are copied to
// a directory first, and gone when it is closed.
type Base struct {
	place  Place
	m      *Manifest
	schema *pipeline.Schema
	dir    string
	room   func(bytes int64) error
}

// NewBase makes a base of a backup, in terms of a schema. dir is where an object store's
// runs are copied to; room says why it has none for so many bytes, and is asked of all
// runs of a shard before the first is copied.
func NewBase(p Place, m *Manifest, schema *pipeline.Schema, dir string, room func(bytes int64) error) *Base {
	return &Base{p, m, schema, dir, room}
}

// String names it.
func (b *Base) String() string {
	return fmt.Sprintf("backup %s in %s, at position %d", b.m.ID, b.place, b.m.Position)
}

// Position is where the base ends: it has its own events up to there.
func (b *Base) Position() pipeline.Position { return b.m.Position }

// Log reads the events from where the lowest shard stands to Position.
func (b *Base) Log() (pipeline.Source, error) {
	source, err := Log(b.place, b.m)
	if err != nil { // not a nil source
		return nil, err
	}
	return source, nil
}

// Open opens a shard as the base has it, or the channels, which are one past the last. What
// comes on top of it is kept in files of dir without names, as long as the store is open.
func (b *Base) Open(ctx context.Context, shard pipeline.Shard) (*cold.Store, error) {
	source := Shard(b.place, b.m, shard)
	part := &b.m.Parts[shard]
	room := sync.OnceValue(func() error { return b.room(source.Manifest().Bytes()) })
	store, err := cold.OpenScratch(b.schema, b.m.Shards, cold.Scratch{
		From: source.Manifest(), Dir: b.dir, Room: b.room,
		Open: func(run int) (cold.File, error) {
			return openObject(ctx, b.place, part.Runs[run].Object, part.Runs[run].Bytes, b.dir, room)
		},
	})
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(store.Schema().Columns, b.schema.Columns, func(x, y pipeline.ColumnSpec) bool { return x.Name == y.Name && x.Counter == y.Counter }) {
		_ = store.Close() // nothing is written
		return nil, errors.New("it has columns that are not counted here")
	}
	return store, nil
}
