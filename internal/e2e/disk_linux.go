package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a file system of its own, in memory, that can be filled.
type Disk struct{ Path string }

// NewDisk mounts one at a new directory for as long as the test runs. It needs
// the right to mount; an error says that it is not to be had here. What uses
// the disk must end before the test does: prepare it after this.
func NewDisk(t testing.TB, path string, bytes int64) (*Disk, error) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tidemark-test", path, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return nil, fmt.Errorf("mount a tmpfs: %w", err)
	}
	d := &Disk{path}
	t.Cleanup(func() {
		if err := d.Release(); err != nil {
			t.Error(err)
		}
	})
	return d, nil
}

// Release takes the disk away before the test's end, which does it too.
func (d *Disk) Release() error {
	if err := syscall.Unmount(d.Path, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.Path, err)
	}
	return nil
}

func (d *Disk) ballast() string { return filepath.Join(d.Path, "ballast") }

// Fill leaves not a byte.
func (d *Disk) Fill(t testing.TB) {
	t.Helper()
	f, err := os.Create(d.ballast())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		n, err := f.Write(block)
		switch {
		case err == nil:
		case !errors.Is(err, syscall.ENOSPC):
			t.Fatal(err)
		case n == 0:
			block = block[:len(block)/2]
		}
	}
}

// Free takes away what Fill made.
func (d *Disk) Free(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
}

// Full says that it was filled and not freed.
func (d *Disk) Full() bool {
	_, err := os.Stat(d.ballast())
	return err == nil
}
