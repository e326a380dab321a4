package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Disk holds what a process's store has written, in memory, and outlives the
// process. A commit is there whole or not at all, and so is a file once it is
// sealed; what goes wrong with either, the gate says. Of a file that was not
// sealed when the process ended there is nothing, or a part, or all. Looks
// never wait at the gate: shards look under their locks.
type Disk struct {
	mu    sync.Mutex
	keys  map[string][]byte
	files map[string]*file
}

// file is one of a disk. Once it is sealed its bytes never change.
type file struct {
	bytes  []byte
	sealed bool
}

// Size implements cold.File.
func (f *file) Size() int64 { return int64(len(f.bytes)) }

// ReadAt implements cold.File.
func (f *file) ReadAt(b []byte, at int64) (int, error) { return bytes.NewReader(f.bytes).ReadAt(b, at) }

// Close implements cold.File.
func (f *file) Close() error { return nil }

// commit lands writes at once.
func (d *Disk) commit(writes []cold.Write) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys == nil {
		d.keys = map[string][]byte{}
	}
	for _, w := range writes {
		if w.Value == nil {
			delete(d.keys, string(w.Key))
		} else {
			d.keys[string(w.Key)] = bytes.Clone(w.Value)
		}
	}
}

// restart is what a kill, or a power cut, leaves of files that were not sealed.
// Which it is follows from what they hold, so that a seed repeats itself.
func (d *Disk) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, f := range d.files {
		if f.sealed {
			continue
		}
		f.sealed = true
		switch sum(f.bytes) % 3 {
		case 0:
			delete(d.files, name)
		case 1:
			f.bytes = f.bytes[:len(f.bytes)/2]
		}
	}
}

// copyOf makes it what another one is now.
func (d *Disk) copyOf(of *Disk) {
	of.mu.Lock()
	defer of.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys, d.files = maps.Clone(of.keys), make(map[string]*file, len(of.files))
	for name, f := range of.files {
		d.files[name] = &file{bytes.Clone(f.bytes), f.sealed}
	}
}

func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// Mount is a disk as one life of a process has it: a cold.Engine. When ctx
// ends the process is gone, and nothing that is left of it reaches the disk.
type Mount struct {
	ctx        context.Context
	c          *Client
	disk       *Disk
	closed     atomic.Bool
	unreadable atomic.Bool
}

var _ cold.Engine = (*Mount)(nil)

// Mount opens a disk as the life before has left it.
func (c *Client) Mount(ctx context.Context, d *Disk) *Mount {
	d.restart()
	return &Mount{ctx: ctx, c: c, disk: d}
}

// ErrUnreadable is what looks return while they are set to fail.
var ErrUnreadable = errors.New("sim: the disk cannot be read")

// Unreadable makes every look fail from now on, or no more: at keys, and at
// files, whether they are open already or not.
func (m *Mount) Unreadable(is bool) { m.unreadable.Store(is) }

// look says whether the disk can be looked at.
func (m *Mount) look() error {
	switch {
	case m.gone():
		return cold.ErrClosed
	case m.unreadable.Load():
		return ErrUnreadable
	}
	return nil
}

func (m *Mount) gone() bool { return m.closed.Load() || m.ctx.Err() != nil }

// Get implements cold.Engine.
func (m *Mount) Get(key []byte) ([]byte, error) {
	if err := m.look(); err != nil {
		return nil, err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return bytes.Clone(m.disk.keys[string(key)]), nil
}

// Scan implements cold.Engine.
func (m *Mount) Scan(prefix []byte, visit func(key, value []byte) error) error {
	if err := m.look(); err != nil {
		return err
	}
	m.disk.mu.Lock()
	keys := maps.Clone(m.disk.keys)
	m.disk.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !strings.HasPrefix(key, string(prefix)) {
			continue
		}
		if err := visit([]byte(key), keys[key]); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements cold.Engine. Commits of one process that wait together have
// no key in common: the smallest distinguishes them.
func (m *Mount) Commit(writes []cold.Write) error {
	var smallest []byte
	for _, w := range writes {
		if smallest == nil || bytes.Compare(w.Key, smallest) < 0 {
			smallest = w.Key
		}
	}
	return m.write(sum(smallest), func() { m.disk.commit(writes) })
}

// write lets the gate say what becomes of a write. What waits there when the
// process ends lands or does not.
func (m *Mount) write(key uint64, land func()) error {
	if m.gone() {
		return cold.ErrClosed
	}
	fate, err := m.c.pass(m.ctx, Call{Kind: Commit, Key: key, Land: land})
	switch {
	case err != nil || m.gone():
		return cold.ErrClosed
	case fate.Err != nil:
		return fate.Err
	}
	land()
	return nil
}

// Create implements cold.Engine.
func (m *Mount) Create(name string) (cold.NewFile, error) {
	if m.gone() {
		return nil, cold.ErrClosed
	}
	d := m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] != nil {
		return nil, fmt.Errorf("sim: %s: %w", name, fs.ErrExist)
	}
	if d.files == nil {
		d.files = map[string]*file{}
	}
	n := &newFile{m, name, new(file)}
	d.files[name] = n.file
	return n, nil
}

// newFile is a cold.NewFile.
type newFile struct {
	m    *Mount
	name string
	file *file
}

// Write implements cold.NewFile.
func (n *newFile) Write(b []byte) (int, error) {
	if n.m.gone() {
		return 0, cold.ErrClosed
	}
	n.m.disk.mu.Lock()
	defer n.m.disk.mu.Unlock()
	n.file.bytes = append(n.file.bytes, b...)
	return len(b), nil
}

// Seal implements cold.NewFile. Two files that wait at the gate together are
// distinguished by what they hold, whose names depend on which was first.
func (n *newFile) Seal() error {
	err := n.m.write(sum(n.file.bytes), func() {
		n.m.disk.mu.Lock()
		defer n.m.disk.mu.Unlock()
		n.file.sealed = true
	})
	if err != nil {
		n.Abort()
	}
	return err
}

// Abort implements cold.NewFile.
func (n *newFile) Abort() {
	if !n.m.gone() {
		n.m.disk.mu.Lock()
		defer n.m.disk.mu.Unlock()
		delete(n.m.disk.files, n.name)
	}
}

// Open implements cold.Engine.
func (m *Mount) Open(name string) (cold.File, error) {
	if err := m.look(); err != nil {
		return nil, err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	f := m.disk.files[name]
	if f == nil {
		return nil, fmt.Errorf("sim: %s: %w", name, fs.ErrNotExist)
	}
	return &opened{f, m}, nil
}

// opened is a file as one life of a process reads it.
type opened struct {
	*file
	m *Mount
}

// ReadAt implements cold.File.
func (o *opened) ReadAt(b []byte, at int64) (int, error) {
	if o.m.unreadable.Load() {
		return 0, ErrUnreadable
	}
	return o.file.ReadAt(b, at)
}

// Remove implements cold.Engine.
func (m *Mount) Remove(name string) error {
	if m.gone() {
		return cold.ErrClosed
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.disk.files[name] == nil {
		return fmt.Errorf("sim: %s: %w", name, fs.ErrNotExist)
	}
	delete(m.disk.files, name)
	return nil
}

// Files implements cold.Engine.
func (m *Mount) Files() ([]string, error) {
	if err := m.look(); err != nil {
		return nil, err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return slices.Sorted(maps.Keys(m.disk.files)), nil
}

// Room implements cold.Engine: the disk is as large as may be.
func (m *Mount) Room(int64) error { return nil }

// Sizes implements cold.Engine.
func (m *Mount) Sizes() (tables, valueLog int64) { return 0, 0 }

// Verify implements cold.Engine: nothing is ever damaged.
func (m *Mount) Verify(func() bool, func(cold.Damage)) {}

// Close implements cold.Engine.
func (m *Mount) Close() error {
	m.closed.Store(true)
	return nil
}
