package cold

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
)

// FilesOpenMax bounds the files that a store has open for reading. A process
// may have 1,024 by default, and connections need some.
const FilesOpenMax = 512

// files knows the store's files of runs, keeps some open, and removes those that
// nothing refers to.
type files struct {
	engine Engine
	most   int
	log    *slog.Logger
	next   atomic.Uint64  // number of the file made last
	reads  *atomic.Uint64 // counts
	memory atomic.Int64   // of the layers' indexes and filters, in bytes

	mu     sync.Mutex
	open   []*runFile // at most so many; the hand goes round and closes what was not read since
	hand   int
	closed bool

	doomedMu sync.Mutex
	doomed   []*runFile
}

// runFile is a file of runs, and the io.ReaderAt of each. It is removed when
// no layer is left, which holders of a layer delay.
type runFile struct {
	files  *files
	number uint64
	refs   atomic.Int32
	bytes  atomic.Int64 // its length; 0: not known
	live   atomic.Int64 // of it, those of runs that are held

	used   atomic.Bool
	mu     sync.RWMutex // while it is read, it is not closed
	handle File
}

const fileSuffix = ".run"

// fileName is the name of a file: its number in 16 hexadecimal digits.
func fileName(number uint64) string { return fmt.Sprintf("%016x%s", number, fileSuffix) }

// parseFileName is the number that a name stands for; ok is false for a name
// that no file of a store has.
func parseFileName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "%016x"+fileSuffix, &number)
	return number, err == nil && fileName(number) == name
}

// file is one that is there, held once.
func (f *files) file(number uint64) *runFile {
	r := &runFile{files: f, number: number}
	r.refs.Store(1)
	return r
}

func (r *runFile) name() string { return fileName(r.number) }

// ReadAt reads, and opens the file first if it is not open.
func (r *runFile) ReadAt(b []byte, at int64) (int, error) {
	if err := r.use(); err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	if !r.used.Load() {
		r.used.Store(true)
	}
	r.files.reads.Add(1)
	return r.handle.ReadAt(b, at)
}

// size is the file's length in bytes.
func (r *runFile) size() (int64, error) {
	if err := r.use(); err != nil {
		return 0, err
	}
	defer r.mu.RUnlock()
	r.bytes.Store(r.handle.Size())
	return r.handle.Size(), nil
}

// deadMin is how many bytes that no run has a file may keep, however few it has
// that one has.
const deadMin = 256 << 10

// mostlyDead says that what is left of the file is little: its runs are moved
// elsewhere then, so that it can go.
func (r *runFile) mostlyDead() bool {
	live := r.live.Load()
	return r.bytes.Load()-live > max(deadMin, 3*live)
}

// use locks mu for reading, and after nil handle is open until it is unlocked.
func (r *runFile) use() error {
	for {
		r.mu.RLock()
		if r.handle != nil {
			return nil
		}
		r.mu.RUnlock() // somebody else may have it closed again before the next look
		if err := r.files.reopen(r); err != nil {
			return err
		}
	}
}

func (f *files) reopen(r *runFile) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if r.handle != nil { // written under f.mu only
		return nil
	}
	if len(f.open) >= f.most {
		f.closeOneLocked()
	}
	handle, err := openListed(f.engine, r.number)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.handle = handle
	r.mu.Unlock()
	r.used.Store(true)
	f.open = append(f.open, r)
	return nil
}

// openListed opens a file that a list has. That it is missing is damage.
func openListed(engine Engine, number uint64) (File, error) {
	handle, err := engine.Open(fileName(number))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the file %s is missing", ErrCorrupt, fileName(number))
	}
	return handle, err
}

// closeOneLocked closes the next file that was not read since the hand came by.
func (f *files) closeOneLocked() {
	for {
		f.hand %= len(f.open)
		if !f.open[f.hand].used.Swap(false) {
			break
		}
		f.hand++
	}
	f.closeLocked(f.hand)
}

func (f *files) closeLocked(i int) {
	r := f.open[i]
	f.open[i] = f.open[len(f.open)-1]
	f.open = f.open[:len(f.open)-1]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handle.Close()
	r.handle = nil
}

// release lets one reference go. The file of the last one goes with the next
// sweep, because a release may be under a lock.
func (r *runFile) release() {
	if r.refs.Add(-1) == 0 {
		r.files.doomedMu.Lock()
		defer r.files.doomedMu.Unlock()
		r.files.doomed = append(r.files.doomed, r)
	}
}

// sweep removes the files that nothing refers to.
func (f *files) sweep() {
	f.doomedMu.Lock()
	doomed := f.doomed
	f.doomed = nil
	f.doomedMu.Unlock()
	for _, r := range doomed {
		f.mu.Lock()
		closed := f.closed
		for i, open := range f.open {
			if open == r {
				f.closeLocked(i)
				break
			}
		}
		f.mu.Unlock()
		if closed {
			return // what is left goes at the next start
		}
		if err := f.engine.Remove(r.name()); err != nil {
			f.log.Warn("cold: a file of runs that nothing needs cannot be removed; the next start tries again", "file", r.name(), "error", err)
		}
	}
}

// close closes all files; nothing can be read after it.
func (f *files) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for len(f.open) > 0 {
		f.closeLocked(len(f.open) - 1)
	}
}
