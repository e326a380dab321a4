package run

import (
	"errors"
	"fmt"
	"io"
)

// Run is a run that is open for reading: its index, and where its blocks are.
// It may be used by many at once, each with a Scratch.
type Run struct {
	from  io.ReaderAt
	at    int64
	info  Info
	index *index
}

// Open reads and checks the index of the run that begins at byte at of r. An
// error is a *Damage; it wraps ErrCorrupt unless reading itself failed.
func Open(r io.ReaderAt, at int64, info Info) (*Run, error) {
	if at < 0 || info.IndexAt < 0 || info.Bytes-info.IndexAt <= crcBytes || info.Bytes+at < at {
		return nil, &Damage{Index, fmt.Errorf("%w: bytes %d to %d of a run at %d", ErrCorrupt, info.IndexAt, info.Bytes, at)}
	}
	// What is not there is noticed before there is room for it.
	var last [1]byte
	if err := readAt(r, last[:], at+info.Bytes-1); err != nil {
		return nil, &Damage{Index, err}
	}
	b := make([]byte, info.Bytes-info.IndexAt)
	if err := readAt(r, b, at+info.IndexAt); err != nil {
		return nil, &Damage{Index, err}
	}
	x, err := readIndex(b, info)
	if err != nil {
		return nil, &Damage{Index, err}
	}
	return &Run{from: r, at: at, info: info, index: x}, nil
}

// readAt fills b.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF) || err == nil:
		return fmt.Errorf("%w: %d of %d bytes are there", ErrCorrupt, n, len(b))
	}
	return fmt.Errorf("reading: %w", err)
}

// Memory is how many bytes the Run keeps.
func (r *Run) Memory() int { return r.index.memory() }

// Info is what the run was opened with.
func (r *Run) Info() Info { return r.info }

// May is false where the run surely has no entry with this key.
func (r *Run) May(key *Key) bool {
	block := r.index.find(key)
	return block >= 0 && r.index.may(block, key)
}

// MayOwn is false where the run surely has no entry with the kind, the counter and
// A of a key: no posts of an author, no followees or cursors of a user, no members
// of an id. Filters do not have the owners of followers and the keys of the commons:
// there, only what is outside of all blocks is surely not there. It is not for rows.
func (r *Run) MayOwn(key *Key) bool { return r.index.mayOwn(key) }

// Get finds an entry; value is valid until scratch is used again. At most one
// block is read, and none for most keys that are not there. Keys that ascend
// read each block once, and go on in it. Errors are as those of Open.
func (r *Run) Get(key *Key, scratch *Scratch) (value []byte, gone, found bool, err error) {
	block := r.index.find(key)
	if block < 0 || !r.index.may(block, key) {
		return nil, false, false, nil
	}
	scratch.Looked++
	if err := scratch.load(r, block); err != nil {
		return nil, false, false, err
	}
	w := &scratch.walk
	ok, err := w.seek(key)
	if err != nil {
		return nil, false, false, scratch.fail(err)
	}
	if !ok || w.key.Compare(key) != 0 {
		return nil, false, false, nil
	}
	return w.value, w.gone, true, nil
}

// Iterator goes over entries in the order of their keys.
type Iterator struct {
	run     *Run
	scratch *Scratch
	block   int  // that Next goes on in; before the first: -1
	sought  bool // the walk is at what Next comes to
	err     error
}

// Iterator stands before the first entry. It is the only user of scratch.
func (r *Run) Iterator(scratch *Scratch) *Iterator {
	return &Iterator{run: r, scratch: scratch, block: -1}
}

// Seek has the next Next come to the first entry whose key is not before key.
// Going forward within a block does not read it again.
func (i *Iterator) Seek(key *Key) {
	i.sought = false
	if i.err != nil {
		return
	}
	block := i.run.index.find(key)
	if i.block = block; block < 0 {
		return
	}
	if i.err = i.scratch.load(i.run, block); i.err != nil {
		return
	}
	if i.sought, i.err = i.scratch.walk.seek(key); i.err != nil {
		i.err = i.scratch.fail(i.err)
	}
}

// Next comes to the next entry; false at the end, or after an error.
func (i *Iterator) Next() bool {
	if i.sought {
		i.sought = false
		return true
	}
	return i.err == nil && i.step()
}

func (i *Iterator) step() bool {
	w := &i.scratch.walk
	if i.block >= 0 {
		ok, err := w.next()
		if ok {
			return true
		}
		if err != nil {
			i.err = i.scratch.fail(err)
			return false
		}
	}
	return i.nextBlock()
}

// nextBlock comes to the first entry of the next block.
func (i *Iterator) nextBlock() bool {
	heads := i.run.index.heads
	if i.block+1 == len(heads) {
		return false
	}
	w := &i.scratch.walk
	if i.block >= 0 && w.key.Compare(&heads[i.block+1]) >= 0 {
		i.err = i.scratch.fail(fmt.Errorf("%w: it reaches into the next one", ErrCorrupt))
		return false
	}
	i.block++
	if i.err = i.scratch.load(i.run, i.block); i.err != nil {
		return false
	}
	w.start(w.b)
	ok, err := w.next()
	if err != nil {
		i.err = i.scratch.fail(err)
	}
	return ok
}

// Key is the entry's key, valid until Next or Seek; its Name may be kept.
func (i *Iterator) Key() *Key { return &i.scratch.walk.key }

// Value is the entry's value, valid until Next or Seek.
func (i *Iterator) Value() []byte { return i.scratch.walk.value }

// Gone says that the entry is a deletion.
func (i *Iterator) Gone() bool { return i.scratch.walk.gone }

// Err is what ended the iteration early, as the errors of Open.
func (i *Iterator) Err() error { return i.err }

// Damage says that err is about the entry's block.
func (i *Iterator) Damage(err error) error { return i.scratch.Damage(err) }
