package run

import "io"

// Run is a run that is open for reading: its index, and where its blocks are.
// It may be used by many at once, each with a Scratch.
type Run struct{}

// Open reads and checks the index of the run that begins at byte at of r.
func Open(r io.ReaderAt, at int64, info Info) (*Run, error) { panic("soon") }

// Memory is how many bytes the Run keeps.
func (r *Run) Memory() int { panic("soon") }

// Info is what the run was opened with.
func (r *Run) Info() Info { panic("soon") }

// May is false where the run surely has no entry with this key.
func (r *Run) May(key *Key) bool { panic("soon") }

// MayOwn is false where the run surely has no entry of a kind with this A: no
// posts of an author, no followees, followers or cursors of a user.
func (r *Run) MayOwn(kind Kind, owner uint64) bool { panic("soon") }

// Scratch is what reading needs: the block read last. It serves one caller at
// a time, of one run after the other; the zero value is ready.
type Scratch struct {
	// Ahead is how many bytes to read at once at least where blocks are read
	// one after another; 0: just the block.
	Ahead int
}

// Get finds an entry; value is valid until scratch is used again. Keys that
// ascend read each block once.
func (r *Run) Get(key *Key, scratch *Scratch) (value []byte, gone, found bool, err error) {
	panic("soon")
}

// Iterator goes over entries in the order of their keys.
type Iterator struct{}

// Iterator stands before the first entry. It is the only user of scratch.
func (r *Run) Iterator(scratch *Scratch) *Iterator { panic("soon") }

// Seek has the next Next come to the first entry whose key is not before key.
// Going forward within a block does not read it again.
func (i *Iterator) Seek(key *Key) { panic("soon") }

// Next comes to the next entry; false at the end, or after an error.
func (i *Iterator) Next() bool { panic("soon") }

// Key is the entry's key, valid until Next or Seek; its Name may be kept.
func (i *Iterator) Key() *Key { panic("soon") }

// Value is the entry's value, valid until Next or Seek.
func (i *Iterator) Value() []byte { panic("soon") }

// Gone says that the entry is a deletion.
func (i *Iterator) Gone() bool { panic("soon") }

// Err is what ended the iteration early.
func (i *Iterator) Err() error { panic("soon") }
