package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/tidemark-io/tidemark/internal/kit"
)

const (
	lockName = "LOCK"
)

// directory is a place that is a directory: an object is a file.
type directory struct{ path string }

func openDirectory(path string, create bool) (*directory, error) {
	path, err := filepath.Abs(path)
	if err == nil && create {
		err = os.MkdirAll(path, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("backup: %s is no directory", path)
	}
	return &directory{path}, nil
}

func (d *directory) String() string { return d.path }

func (d *directory) file(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// Put implements Place: the file is whole on disk before it has its name.
func (d *directory) Put(_ context.Context, name string, from io.Reader) error {
	path := d.file(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	err := kit.ReplaceFile(path, 0o666, func(to io.Writer) error {
		_, err := io.Copy(to, from)
		return err
	})
	if err != nil {
		return fmt.Errorf("backup: write %s: %w", path, err)
	}
	for at := filepath.Dir(path); len(at) > len(d.path); { // the directories may be new
		at = filepath.Dir(at)
		if err := kit.SyncDir(at); err != nil {
			return fmt.Errorf("backup: %w", err)
		}
	}
	return nil
}

// Get implements Place.
func (d *directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, d.file(name))
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return f, nil
}

// List implements Place. Files that are not whole are none.
func (d *directory) List(_ context.Context, prefix string) (map[string]int64, error) {
	out := map[string]int64{}
	root := d.file(strings.TrimSuffix(prefix, "/"))
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (e.IsDir() || strings.HasSuffix(path, kit.NewEnd)) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(d.path, path)
		out[filepath.ToSlash(name)] = info.Size()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return out, nil
}

// Delete implements Place.
func (d *directory) Delete(_ context.Context, name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// Lock implements Place. The holder of the lock removes what others left unfinished.
func (d *directory) Lock(context.Context) (func(), error) {
	lock := flock.New(d.file(lockName))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("backup: lock %s: %w", d.path, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: to %s, by another process", ErrInUse, d.path)
	}
	if err := d.sweep(); err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// sweep removes the files that are not whole: their writer was killed.
func (d *directory) sweep() error {
	for _, prefix := range []string{objectPrefix, manifestPrefix} {
		entries, err := os.ReadDir(d.file(prefix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), kit.NewEnd) {
				err = errors.Join(err, os.Remove(d.file(prefix+e.Name())))
			}
		}
		if err != nil {
			return fmt.Errorf("backup: remove what is not whole: %w", err)
		}
	}
	return nil
}
