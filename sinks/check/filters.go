package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// filters are the files of stretches in a directory, one a file. What is in
// memory of each is sixteen bytes.
type filters struct {
	dir     string
	created int64 // of EVENTS, Unix ns

	mu    sync.Mutex
	list  []stretch // ascending, apart from each other
	bytes int64     // of all files
}

const (
	fileSuffix = ".filter"
	newSuffix  = ".new"
)

// openFilters finds what is in dir of the EVENTS made then. Files of another
// EVENTS, and what is no file of a stretch, it takes away.
func openFilters(dir string, created int64) (*filters, error) {
	f := &filters{dir: dir, created: created}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	var faults []error
	for _, entry := range entries {
		s, of, ok := parseName(entry.Name())
		info, err := entry.Info()
		if !ok || of != created || err != nil || info.Size() < blockBytes || f.overlaps(s) {
			faults = append(faults, os.Remove(filepath.Join(dir, entry.Name())))
			continue
		}
		f.insert(s, info.Size())
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	return f, nil
}

func (f *filters) name(s stretch) string {
	return filepath.Join(f.dir, fmt.Sprintf("%016x-%016x-%016x%s", f.created, s.first, s.last, fileSuffix))
}

func parseName(name string) (s stretch, created int64, ok bool) {
	if !strings.HasSuffix(name, fileSuffix) {
		return s, 0, false
	}
	n, err := fmt.Sscanf(name, "%016x-%016x-%016x"+fileSuffix, &created, &s.first, &s.last)
	return s, created, err == nil && n == 3 && s.first >= 1 && s.first <= s.last
}

func (f *filters) overlaps(s stretch) bool {
	at, _ := f.find(s.first)
	return at > 0 && f.list[at-1].last >= s.first || at < len(f.list) && f.list[at].first <= s.last
}

// find is the place of the stretch that begins at a sequence, or would.
func (f *filters) find(first uint64) (int, bool) {
	return slices.BinarySearchFunc(f.list, first, func(s stretch, first uint64) int { return cmp.Compare(s.first, first) })
}

// with is the stretch that has a sequence.
func (f *filters) with(sequence uint64) (s stretch, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, there := f.find(sequence)
	if !there {
		at--
	}
	if at < 0 || f.list[at].last < sequence {
		return s, false
	}
	return f.list[at], true
}

func (f *filters) insert(s stretch, bytes int64) {
	at, _ := f.find(s.first)
	f.list = slices.Insert(f.list, at, s)
	f.bytes += bytes
}

// keep stores a stretch. It is not synced: one that a power cut damages is
// noticed, and read.
func (f *filters) keep(b *builder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.overlaps(b.stretch) {
		return nil
	}
	file, name := b.encode(f.created), f.name(b.stretch)
	err := os.WriteFile(name+newSuffix, file, 0o644)
	if err == nil {
		err = os.Rename(name+newSuffix, name)
	}
	if err != nil {
		return fmt.Errorf("check: keep a filter: %w", errors.Join(err, os.Remove(name+newSuffix)))
	}
	f.insert(b.stretch, int64(len(file)))
	return nil
}

// drop forgets a stretch: what it covers is read from now on.
func (f *filters) drop(s stretch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := f.find(s.first); ok {
		f.removeLocked(at)
	}
}

func (f *filters) removeLocked(at int) {
	name := f.name(f.list[at])
	if info, err := os.Stat(name); err == nil {
		f.bytes -= info.Size()
	}
	_ = os.Remove(name)
	f.list = slices.Delete(f.list, at, at+1)
}

// trim drops what is wholly before a sequence, and the oldest while all take
// more than so many bytes.
func (f *filters) trim(first uint64, bytesMax int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.list) > 0 && (f.list[0].last < first || f.bytes > bytesMax) {
		f.removeLocked(0)
	}
}

// all are the stretches there are, ascending; the caller's own.
func (f *filters) all() []stretch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// size is how many stretches there are, and their bytes on disk.
func (f *filters) size() (stretches int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.list), f.bytes
}

// gap is the first run of sequences, from `from` to last, that no stretch
// covers.
func (f *filters) gap(from, last uint64) (gap stretch, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.list {
		if s.last < from {
			continue
		}
		if s.first > from {
			return stretch{from, min(s.first-1, last)}, from <= last
		}
		from = s.last + 1
	}
	return stretch{from, last}, from <= last
}

// open opens the file of a stretch. The error wraps errDamaged where it is not
// as it was written, or gone.
func (f *filters) open(s stretch) (*opened, error) {
	file, err := os.Open(f.name(s))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	o := &opened{file: file}
	if err := o.begin(f.created, s); err != nil {
		file.Close()
		return nil, err
	}
	return o, nil
}
