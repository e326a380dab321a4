package run

import "io"

// Info is what must be known of a run to open it. Who keeps the list of runs
// keeps it.
type Info struct {
	Entries  int
	Blocks   int
	Bytes    int64  // of the run, index included
	IndexAt  int64  // where in the run the index begins
	Checksum uint32 // CRC-32C of the index
}

// Writer writes a run. Memory is bounded by the run's index.
type Writer struct{}

// NewWriter writes to w, a block at a time: a bufio.Writer makes sense.
func NewWriter(w io.Writer) *Writer { panic("soon") }

// Add adds an entry. Keys must ascend. value and key are not kept.
func (w *Writer) Add(key *Key, value []byte, gone bool) error { panic("soon") }

// Bytes is how many bytes are written or wait in the block that is open.
func (w *Writer) Bytes() int64 { panic("soon") }

// Close writes what is left, then the index. It does not close what it writes to.
func (w *Writer) Close() (Info, error) { panic("soon") }
