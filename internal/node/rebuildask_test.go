package node

import (
	"os"
	"path/filepath"
	"testing"
)

// A rebuild needs as much of the disk as there is taken: Badger's logs are long before
// anything is in them.
func TestSizeIsWhatTheDiskHas(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "holes"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 31); err != nil {
		t.Fatal(err)
	}
	size, err := sizeOf(dir)
	if err != nil || size < 1<<20 || size > 4<<20 {
		t.Errorf("%d bytes, %v", size, err)
	}
}
