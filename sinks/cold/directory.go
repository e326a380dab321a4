package cold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// runsDir lies in the database's own directory: moved away or copied, keys and
// files stay together.
const runsDir = "runs"

// directory is the part of an [Engine] that is files.
type directory struct{ path string }

func openDirectory(path string) (directory, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return directory{}, err
	}
	// One that is there may have been made just before a kill.
	return directory{path}, kit.SyncDir(filepath.Dir(path))
}

func (d directory) Create(name string) (NewFile, error) {
	f, err := os.OpenFile(filepath.Join(d.path, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, full(err)
	}
	return &newFile{f, d.path}, nil
}

func (d directory) Open(name string) (File, error) {
	f, err := os.Open(filepath.Join(d.path, name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return file{f, info.Size()}, nil
}

func (d directory) Remove(name string) error { return os.Remove(filepath.Join(d.path, name)) }

func (d directory) Files() (names []string, err error) {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

type file struct {
	*os.File
	size int64
}

func (f file) Size() int64 { return f.size }

type newFile struct {
	f   *os.File
	dir string
}

func (n *newFile) Write(b []byte) (int, error) {
	w, err := n.f.Write(b)
	return w, full(err)
}

func (n *newFile) Seal() error {
	err := n.f.Sync()
	if err == nil {
		err = kit.SyncDir(n.dir)
	}
	if err != nil {
		n.Abort()
		return full(err)
	}
	return n.f.Close()
}

func (n *newFile) Abort() {
	n.f.Close()
	os.Remove(n.f.Name()) // what stays is listed nowhere and goes at the next start
}

// full says of a write that failed for want of room that the disk is full.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}
