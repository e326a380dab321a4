package cold

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// largeTable writes a table of some megabytes and returns its file.
func largeTable(t *testing.T) string {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	for id := uint64(1); id <= 300_000; {
		c := s.Begin()
		for range 10_000 {
			if err := c.Row(0, 0, id, []int64{int64(id)}); err != nil {
				t.Fatal(err)
			}
			id++
		}
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		c.Settle()
	}
	closeStore(t, s)
	files, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	largest, size := "", int64(0)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Size() > size {
			largest, size = file, info.Size()
		}
	}
	if size < 2<<20 {
		t.Fatalf("the largest of %d tables has %d bytes", len(files), size)
	}
	return largest
}

// However large a table is, a block of it is in memory at a time; and wherever
// a byte of it is changed, or its end is missing, it is damaged.
func TestVerifyTable(t *testing.T) {
	file := largeTable(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := verifyTable(file); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(good)/2) {
		t.Errorf("%d bytes to verify a table of %d", took, len(good))
	}
	size := len(good)
	for _, at := range []int{0, 5000, size / 2, size - 1, size - 4, size - 9, size - 20, size - 40, size - 3000} {
		good[at] ^= 0x10
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
		good[at] ^= 0x10
		if verifyTable(file) == nil {
			t.Errorf("byte %d of %d is changed, and it is good", at, size)
		}
	}
	for _, length := range []int{0, 3, 4, 7, 100, size / 2, size - 1} {
		if err := os.WriteFile(file, good[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		if verifyTable(file) == nil {
			t.Errorf("%d of %d bytes are left, and it is good", length, size)
		}
	}
}
