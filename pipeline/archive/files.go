package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// ErrInUse: another process writes to the directory.
var ErrInUse = errors.New("archive: another process writes to it")

// Files is where a directory of segments is: files that are there whole or not at
// all. Any may read while one writes.
type Files interface {
	// Names lists the files; none where there is no directory.
	Names() ([]string, error)
	// Size is how many bytes one has. fs.ErrNotExist: it is not there.
	Size(name string) (int64, error)
	Read(name string) ([]byte, error)
	// Write makes a file durable at one stroke, in place of one of that name.
	Write(name string, data []byte) error
	// Lock keeps others from writing, and makes the directory where there is none.
	// ErrInUse: one writes.
	Lock() (unlock func(), err error)
	// String is how the directory is named on a command line.
	String() string
}

// osFiles are those of a directory on disk.
type osFiles string

var _ Files = osFiles("")

func (path osFiles) String() string { return string(path) }

func (path osFiles) join(name string) string { return filepath.Join(string(path), name) }

// Names implements Files.
func (path osFiles) Names() (names []string, err error) {
	entries, err := os.ReadDir(string(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Size implements Files.
func (path osFiles) Size(name string) (int64, error) {
	info, err := os.Stat(path.join(name))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Read implements Files.
func (path osFiles) Read(name string) ([]byte, error) { return os.ReadFile(path.join(name)) }

// Write implements Files.
func (path osFiles) Write(name string, data []byte) error {
	return kit.ReplaceFile(path.join(name), 0o666, kit.Bytes(data))
}

// Lock implements Files.
func (path osFiles) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(string(path), 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(path.join(lockName))
	if ok, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("lock it: %w", err)
	} else if !ok {
		return nil, ErrInUse
	}
	return func() { lock.Close() }, nil
}
