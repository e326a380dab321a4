package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Disk holds what a process's store has committed, in memory, and outlives the
// process. A commit is there whole or not at all; what goes wrong with it, the
// gate says. Looks never wait at the gate: shards look under their locks.
//
// What was let go (Forget) is gone at once: who looks at it all the same finds
// out sooner than with Badger, which keeps it until it compacts.
type Disk struct {
	// ChangesMax bounds a transaction; 0: as Badger does by default.
	ChangesMax int64

	mu     sync.Mutex
	keys   []string              // ascending: those of held
	held   map[string][]revision // ascending by version, never empty
	stale  map[string]bool       // keys of which something may be let go
	newest uint64
	forgot uint64 // nobody looks as of before
}

// revision is what a key held from a version on.
type revision struct {
	version uint64
	gone    bool
	value   []byte
}

// write is one change of a transaction.
type write struct {
	key, value []byte
	gone       bool
}

// land is a commit.
func (d *Disk) land(version uint64, writes []write) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		d.held, d.stale = map[string][]revision{}, map[string]bool{}
	}
	for _, w := range writes {
		key := string(w.key)
		of, known := d.held[key]
		if !known {
			at, _ := slices.BinarySearch(d.keys, key)
			d.keys = slices.Insert(d.keys, at, key)
		}
		at, again := slices.BinarySearchFunc(of, version, func(r revision, version uint64) int {
			return cmp.Compare(r.version, version)
		})
		if !again {
			of = slices.Insert(of, at, revision{})
		}
		of[at] = revision{version, w.gone, bytes.Clone(w.value)}
		d.held[key] = of
		if len(of) > 1 || w.gone {
			d.stale[key] = true
		}
	}
	d.newest = max(d.newest, version)
	d.letGoLocked()
}

// letGoLocked takes away what nobody may look at any more.
func (d *Disk) letGoLocked() {
	for key := range d.stale {
		of := d.held[key]
		for len(of) > 1 && of[1].version <= d.forgot {
			of = of[1:]
		}
		if d.held[key] = of; len(of) > 1 || of[0].gone && of[0].version > d.forgot {
			continue
		}
		delete(d.stale, key)
		if of[0].gone {
			delete(d.held, key)
			at, _ := slices.BinarySearch(d.keys, key)
			d.keys = slices.Delete(d.keys, at, at+1)
		}
	}
}

// visibleLocked is what a key holds as of a version.
func (d *Disk) visibleLocked(key string, as uint64) (r revision, found bool) {
	of := d.held[key]
	for i := len(of) - 1; i >= 0; i-- {
		if of[i].version <= as {
			return of[i], !of[i].gone
		}
	}
	return r, false
}

// Dump writes what the disk holds, whatever the versions it came as.
func (d *Disk) Dump(to io.Writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range d.keys {
		if r, found := d.visibleLocked(key, cold.Newest); found {
			fmt.Fprintf(to, "%x: %x\n", key, r.value)
		}
	}
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

// Mount opens a disk. What the life before had said may be forgotten has been;
// versions that it had begun and not committed are given out again.
func (c *Client) Mount(ctx context.Context, d *Disk) *Mount {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgot = 0
	return &Mount{ctx: ctx, c: c, disk: d}
}

// ErrUnreadable is what looks return while they are told to fail.
var ErrUnreadable = errors.New("sim: the disk cannot be read")

// Unreadable makes every look fail from now on, or no more.
func (m *Mount) Unreadable(is bool) { m.unreadable.Store(is) }

func (m *Mount) gone() bool { return m.closed.Load() || m.ctx.Err() != nil }

// View implements cold.Engine.
func (m *Mount) View(as uint64, read func(cold.Reader) error) error {
	switch {
	case m.gone():
		return cold.ErrClosed
	case m.unreadable.Load():
		return ErrUnreadable
	}
	return read(&look{disk: m.disk, as: as})
}

// look is a cold.Reader. Its one item is written over by the next look, as the
// contract allows.
type look struct {
	disk *Disk
	as   uint64
	item item
}

type item struct {
	key, value []byte
	version    uint64
}

func (i *item) Key() []byte                         { return i.key }
func (i *item) Value(read func([]byte) error) error { return read(i.value) }
func (i *item) Version() uint64                     { return i.version }

func (l *look) show(key string, r revision) *item {
	l.item.key, l.item.value = append(l.item.key[:0], key...), append(l.item.value[:0], r.value...)
	l.item.version = r.version
	return &l.item
}

// Get implements cold.Reader.
func (l *look) Get(key []byte) (cold.Item, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	r, found := l.disk.visibleLocked(string(key), l.as)
	if !found {
		return nil, nil
	}
	return l.show(string(key), r), nil
}

// Scan implements cold.Reader.
func (l *look) Scan(prefix, from []byte, since uint64, visit func(cold.Item) (bool, error)) error {
	for from := string(from); l.next(string(prefix), from, since); from = string(l.item.key) + "\x00" {
		if more, err := visit(&l.item); err != nil || !more {
			return err
		}
	}
	return nil
}

// next finds the first key from one on.
func (l *look) next(prefix, from string, since uint64) bool {
	d := l.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	at, _ := slices.BinarySearch(d.keys, from)
	for ; at < len(d.keys) && len(d.keys[at]) >= len(prefix) && d.keys[at][:len(prefix)] == prefix; at++ {
		if r, found := d.visibleLocked(d.keys[at], l.as); found && r.version >= since {
			l.show(d.keys[at], r)
			return true
		}
	}
	return false
}

// transaction is a cold.Transaction.
type transaction struct {
	m      *Mount
	writes []write
	bytes  int64
}

// Begin implements cold.Engine.
func (m *Mount) Begin() cold.Transaction { return &transaction{m: m} }

// Set implements cold.Transaction.
func (t *transaction) Set(key, value []byte) error { return t.add(write{key: key, value: value}) }

// Delete implements cold.Transaction.
func (t *transaction) Delete(key []byte) error { return t.add(write{key: key, gone: true}) }

func (t *transaction) add(w write) error {
	if t.m.gone() {
		return cold.ErrClosed
	}
	changes, bytes := t.m.TransactionMax()
	if t.bytes += int64(len(w.key) + len(w.value) + 2); int64(len(t.writes)+1) >= changes || t.bytes >= bytes {
		return errors.New("sim: the transaction is too big")
	}
	t.writes = append(t.writes, w)
	return nil
}

// Commit implements cold.Transaction.
func (t *transaction) Commit(version uint64) error {
	if t.m.gone() {
		return cold.ErrClosed
	}
	fate, err := t.m.c.pass(t.m.ctx, Call{Kind: Commit, Key: t.key(), Land: func() { t.m.disk.land(version, t.writes) }})
	switch {
	case err != nil || t.m.gone():
		return cold.ErrClosed
	case fate.Err != nil:
		return fate.Err
	}
	t.m.disk.land(version, t.writes)
	return nil
}

// key tells commits of one process apart that wait together: they have no key
// in common. Their versions are given out in any order.
func (t *transaction) key() uint64 {
	var smallest []byte
	for _, w := range t.writes {
		if smallest == nil || bytes.Compare(w.key, smallest) < 0 {
			smallest = w.key
		}
	}
	h := fnv.New64a()
	h.Write(smallest)
	return h.Sum64()
}

// Discard implements cold.Transaction.
func (t *transaction) Discard() { t.writes = nil }

// MaxVersion implements cold.Engine.
func (m *Mount) MaxVersion() uint64 {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return m.disk.newest
}

// Forget implements cold.Engine.
func (m *Mount) Forget(before uint64) {
	if m.gone() {
		return
	}
	d := m.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgot = max(d.forgot, before)
	d.letGoLocked()
}

// TransactionMax implements cold.Engine.
func (m *Mount) TransactionMax() (changes, bytes int64) {
	const byDefault = 100_000
	if changes = m.disk.ChangesMax; changes == 0 {
		changes = byDefault
	}
	return changes, 100 * byDefault
}

// Sizes implements cold.Engine: there are no files.
func (m *Mount) Sizes() (tables, valueLog int64) { return 0, 0 }

// DataBytes implements cold.Engine.
func (m *Mount) DataBytes() (bytes uint64) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	for key, of := range m.disk.held {
		bytes += uint64(len(key) + len(of[len(of)-1].value))
	}
	return bytes
}

// Verify implements cold.Engine: nothing is ever damaged.
func (m *Mount) Verify(func() bool, func(cold.Damage)) {}

// Close implements cold.Engine.
func (m *Mount) Close() error {
	m.closed.Store(true)
	return nil
}
