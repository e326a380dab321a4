package kit

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// listen has syncs noted: what is synced, and what the file is at that moment.
func listen(t *testing.T, of string) (synced *[]string) {
	synced = new([]string)
	was := syncFile
	t.Cleanup(func() { syncFile = was })
	syncFile = func(f *os.File) error {
		is, _ := os.ReadFile(of)
		*synced = append(*synced, filepath.Base(f.Name())+" "+string(is))
		return was(f)
	}
	return synced
}

// The file is synced before it has its name, and its name before ReplaceFile returns.
func TestReplaceFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "file")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	synced := listen(t, path)
	for _, text := range []string{"first", "second, longer", "third"} {
		if err := ReplaceFile(path, 0o600, Bytes([]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"file.new ", "dir first", "file.new first", "dir second, longer", "file.new second, longer", "dir third"}
	if !slices.Equal(*synced, want) {
		t.Errorf("%q, want %q", *synced, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// One that cannot be written, or whose content fails, leaves the one before, and nothing
// beside it.
func TestReplaceFileFails(t *testing.T) {
	dir := t.TempDir()
	path, broken := filepath.Join(dir, "file"), errors.New("broken")
	if err := ReplaceFile(path, 0o644, Bytes([]byte("before"))); err != nil {
		t.Fatal(err)
	}
	err := ReplaceFile(path, 0o644, func(to io.Writer) error {
		io.WriteString(to, "half")
		return broken
	})
	is, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if !errors.Is(err, broken) || string(is) != "before" || len(entries) != 1 {
		t.Errorf("%v: %q, %d files", err, is, len(entries))
	}
	if err := ReplaceFile(filepath.Join(dir, "none", "file"), 0o644, Bytes(nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Both directories have the names, when Move returns.
func TestMove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/what", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	synced := listen(t, "")
	if err := Move(filepath.Join(dir, "a/what"), filepath.Join(dir, "b/what")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"b ", "a "}; !slices.Equal(*synced, want) {
		t.Errorf("%q", *synced)
	}
	if err := Move(filepath.Join(dir, "a/what"), filepath.Join(dir, "b/again")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
