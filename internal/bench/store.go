package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// storeBytes is the room that the node's own data takes on disk, whatever files
// it is in: all of the data directory but the streams of its server and the filters
// of explain, which have a figure of their own.
func (p *program) storeBytes() (float64, error) {
	data := filepath.Join(p.dir, dataDir)
	return diskBytes(data, streamsDir, "filters")
}

// diskBytes is the room that the files under a directory take on disk, but for
// those under some of its entries: files with holes take less than their size.
func diskBytes(dir string, without ...string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it has been taken away
		case err != nil:
			return err
		case filepath.Dir(path) == dir && slices.Contains(without, entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		bytes += float64(kit.DiskTaken(info))
		return nil
	})
	return bytes, err
}

// written is what the process has had written to disk so far, in bytes: pages
// of files that it made dirty, through memory maps as well. ok is false where
// the system does not tell.
func (p *child) written() (bytes float64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	return writtenIn(string(text))
}

func writtenIn(text string) (bytes float64, ok bool) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "write_bytes: "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// rest returns once the program has nothing left to write and to merge: it has
// no changed rows, little to compute, and its store has kept its size for a while. It
// gives that size. The audit and the filters of explain, which read the log at
// a bounded rate however long it is, are not waited for: little is more than they take.
func (p *program) rest(ctx context.Context) (bytes float64, err error) {
	const times = 3
	every := p.b.size.calm
	little := max(2*tick, every*3/20)
	same, busy, size := 0, p.busy(), 0.0
	time.Sleep(every)
	err = p.until(ctx, "wait for a store at rest", every, func() error {
		figures, err := p.figures()
		if err != nil {
			return err
		}
		now, err := p.storeBytes()
		if err != nil {
			return err
		}
		spent := p.busy() - busy
		dirty := figures["tidemark_rows_dirty"]
		same++
		if dirty > 0 || now != size || spent > little {
			same = 0
		}
		busy, size = busy+spent, now
		if same < times {
			return fmt.Errorf("%v rows are changed, %v of processor time in %v, %v bytes on disk", dirty, spent, every, now)
		}
		return nil
	})
	return size, err
}
