package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/tidemark-io/tidemark/sinks/backup"
)

// Place holds backups, in memory. It outlives its writers: an object is there whole or
// not at all, and one that was stored may have been reported as failed.
type Place struct {
	mu      sync.Mutex
	objects map[string][]byte
}

// placed is a place as a client uses it.
type placed struct {
	c *Client
	p *Place
}

var _ backup.Place = placed{}

// Place is a place of backups as this client uses it.
func (c *Client) Place(p *Place) backup.Place { return placed{c, p} }

// write does something to the objects, unless it is not to be.
func (d placed) write(ctx context.Context, do func(objects map[string][]byte)) error {
	land := func() {
		d.p.mu.Lock()
		defer d.p.mu.Unlock()
		if d.p.objects == nil {
			d.p.objects = map[string][]byte{}
		}
		do(d.p.objects)
	}
	fate, err := d.c.pass(ctx, Call{Kind: Shelve, Land: land})
	if err != nil {
		return err
	}
	if fate.Err == nil || fate.Done {
		land()
	}
	return fate.Err
}

func (d placed) look(ctx context.Context) (map[string][]byte, error) {
	fate, err := d.c.pass(ctx, Call{Kind: Shelve})
	if err = cmp.Or(err, fate.Err); err != nil {
		return nil, err
	}
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	return maps.Clone(d.p.objects), nil
}

// Put implements backup.Place.
func (d placed) Put(ctx context.Context, name string, from io.Reader) error {
	b, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return d.write(ctx, func(objects map[string][]byte) { objects[name] = b })
}

// Get implements backup.Place.
func (d placed) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	objects, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	b, there := objects[name]
	if !there {
		return nil, fmt.Errorf("%w: %s", backup.ErrMissing, name)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// List implements backup.Place.
func (d placed) List(ctx context.Context, prefix string) (map[string]int64, error) {
	objects, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for name, b := range objects {
		if strings.HasPrefix(name, prefix) {
			sizes[name] = int64(len(b))
		}
	}
	return sizes, nil
}

// Delete implements backup.Place.
func (d placed) Delete(ctx context.Context, name string) error {
	return d.write(ctx, func(objects map[string][]byte) { delete(objects, name) })
}

// Lock implements backup.Place: one backup is made at a time.
func (d placed) Lock(context.Context) (func(), error) { return func() {}, nil }

// String implements backup.Place.
func (d placed) String() string { return "sim" }
