package cold

import (
	"os"
	"path/filepath"
	"testing"
)

// A file is durable, and its name: a system refuses to make a pipe durable, and the names of a
// directory that is gone.
func TestSealSyncs(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := (&newFile{f: w, dir: t.TempDir()}).Seal(); err == nil {
		t.Error("the file is not synced")
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&newFile{f: f, dir: filepath.Join(dir, "gone")}).Seal(); err == nil {
		t.Error("the directory is not synced")
	}
}
