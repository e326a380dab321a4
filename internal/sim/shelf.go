package sim

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline/archive"
)

// Shelf holds an archive, in memory. It outlives its writers: a file is there whole or
// not at all, and one that was written may have been reported as failed. A writer that
// goes no longer has the lock.
type Shelf struct {
	mu     sync.Mutex
	files  map[string][]byte
	writer context.Context // of the writer that has the lock; nil: none
}

// shelved is a shelf as one life of a process uses it.
type shelved struct {
	ctx   context.Context
	c     *Client
	shelf *Shelf
}

var _ archive.Files = shelved{}

// Shelf is a directory of an archive as this client uses it until ctx ends.
func (c *Client) Shelf(ctx context.Context, s *Shelf) archive.Files { return shelved{ctx, c, s} }

// look lets others go first, and looks.
func (d shelved) look() (map[string][]byte, error) {
	fate, err := d.c.pass(d.ctx, Call{Kind: Shelve})
	if err != nil {
		return nil, err
	}
	d.shelf.mu.Lock()
	defer d.shelf.mu.Unlock()
	return maps.Clone(d.shelf.files), fate.Err
}

// Names implements archive.Files.
func (d shelved) Names() ([]string, error) {
	files, err := d.look()
	return slices.Sorted(maps.Keys(files)), err
}

// Size implements archive.Files.
func (d shelved) Size(name string) (int64, error) {
	b, err := d.Read(name)
	return int64(len(b)), err
}

// Read implements archive.Files.
func (d shelved) Read(name string) ([]byte, error) {
	files, err := d.look()
	if err != nil {
		return nil, err
	}
	b, there := files[name]
	if !there {
		return nil, fmt.Errorf("sim: %s: %w", name, fs.ErrNotExist)
	}
	return b, nil
}

// Write implements archive.Files.
func (d shelved) Write(name string, data []byte) error {
	data = bytes.Clone(data)
	land := func() {
		d.shelf.mu.Lock()
		defer d.shelf.mu.Unlock()
		if d.shelf.files == nil {
			d.shelf.files = map[string][]byte{}
		}
		d.shelf.files[name] = data
	}
	fate, err := d.c.pass(d.ctx, Call{Kind: Shelve, Land: land})
	if err != nil {
		return err
	}
	if fate.Err == nil || fate.Done {
		land()
	}
	return fate.Err
}

// Lock implements archive.Files.
func (d shelved) Lock() (func(), error) {
	d.shelf.mu.Lock()
	defer d.shelf.mu.Unlock()
	if d.shelf.writer != nil && d.shelf.writer.Err() == nil {
		return nil, archive.ErrInUse
	}
	mine, unlock := context.WithCancel(d.ctx)
	d.shelf.writer = mine
	return unlock, nil
}

// String implements archive.Files.
func (d shelved) String() string { return "sim" }
