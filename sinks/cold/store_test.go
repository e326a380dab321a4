package cold

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// The same for any configurations one after the other; without a disk.
func TestDictionaryTwin(t *testing.T) {
	type stored struct {
		number uint8
		value  []byte
	}
	configuration := rapid.Custom(func(t *rapid.T) (lines []string) {
		for _, name := range rapid.Permutation([]string{"a", "b", "c"}).Draw(t, "counters")[:rapid.IntRange(1, 3).Draw(t, "n")] {
			columns := rapid.Permutation([]string{"p", "q", "r", "s"}).Draw(t, "columns")
			lines = append(lines, name+": "+strings.Join(columns[:rapid.IntRange(1, 4).Draw(t, "m")], " "))
		}
		return lines
	})
	rapid.Check(t, func(t *rapid.T) {
		var dictionary Dictionary
		disk, want := map[string]stored{}, cells{} // by "counter id"
		for range rapid.IntRange(1, 6).Draw(t, "starts") {
			before := slices.Clone(dictionary)
			s := &Store{meta: Meta{Dictionary: dictionary}}
			changed, err := s.adopt(spec(t, configuration.Draw(t, "configuration")...))
			if err != nil {
				t.Fatal(err)
			}
			dictionary = s.meta.Dictionary
			for i, c := range before {
				if dictionary[i].Name != c.Name || !slices.Equal(dictionary[i].Columns[:len(c.Columns)], c.Columns) {
					t.Fatalf("numbers changed their meaning: %v, then %v", before, dictionary)
				}
			}
			if grown := fmt.Sprint(before) != fmt.Sprint(dictionary); grown != changed {
				t.Fatalf("changed is %v: %v, then %v", changed, before, dictionary)
			}
			got := cells{}
			for key, b := range disk {
				var id uint64
				fmt.Sscanf(key, "%d", &id)
				counter := s.byNumber[b.number]
				row := make([]int64, s.schema.Counters[counter].Count)
				if err := run.ApplyRow(b.value, s.counters[counter].places, row); err != nil {
					t.Fatal(err)
				}
				got.put(s, counter, id, row)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			for counter, c := range s.schema.Counters {
				for id := range uint64(3) {
					row := rapid.SliceOfN(rapid.Int64Range(-2, 1<<40), c.Count, c.Count).Draw(t, "row")
					codec := s.counters[counter]
					disk[fmt.Sprintf("%d %s", id, c.Name)] = stored{codec.number, run.AppendWhole(nil, codec.numbers, row)}
					for i := range row {
						delete(want, fmt.Sprintf("%s %d", s.schema.FullName(c.First+pipeline.Column(i)), id))
					}
					want.put(s, counter, id, row)
				}
			}
		}
	})
}

// "A store of another format is refused"; so is one of another shard count.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	write(t, s, "post", 7, 1)
	streams := Streams{Events: time.Unix(1, 0).UTC(), Deltas: time.Unix(2, 0).UTC()}
	if err := s.SetStreams(streams); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)

	refuse := func(o Options, parts ...string) {
		t.Helper()
		s, err := Open(dir, spec(t, "post: like comment"), o)
		if err == nil {
			s.Close()
			t.Fatal("opened")
		}
		for _, part := range append(parts, "cold: ") {
			if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not one line with %q", err, part)
			}
		}
	}
	other := testOptions()
	other.Shards = 8
	refuse(other, "has 4 shards", "says 8", "set shards: 4", "tidemark repair --replay")

	s = open(t, dir, "post: like")
	if got := s.Meta(); len(got.Dictionary[0].Columns) != 1 || got.Streams != streams {
		t.Errorf("a refused start changed the store: %+v", got)
	}
	if got := scanned(t, s); !maps.Equal(got, cells{"post.like 7": 1}) {
		t.Errorf("a refused start changed the store: %v", got)
	}
	s.meta.Format = Format + 1
	if err := s.writeMeta(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	refuse(testOptions(), "format 2", "reads format 1", "tidemark repair --replay")
}

func TestRefusesForeignDatabase(t *testing.T) {
	dir := t.TempDir()
	db, err := badger.Open(badgerOptions(dir, testOptions()))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("theirs"), []byte("1")) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, spec(t, "post: like"), testOptions()); err == nil || !strings.Contains(err.Error(), "another data_dir") {
		t.Fatalf("a foreign database gave %v", err)
	}
}

func TestFailedFirstOpenLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "badger")
	var many []string
	for i := range countersMax + 1 {
		many = append(many, fmt.Sprintf("c%d: n", i))
	}
	if _, err := Open(dir, spec(t, many...), testOptions()); err == nil || !strings.Contains(err.Error(), "at most 255") {
		t.Fatalf("256 counters gave %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("something is left: %v", err)
	}
	tiny := testOptions()
	tiny.MemTableBytes = 1 << 10 // Badger refuses
	if _, err := Open(dir, spec(t, "post: like"), tiny); err == nil {
		t.Fatal("opened")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("something is left: %v", err)
	}
	closeStore(t, open(t, dir, "post: like"))
}

// A store that a kill stopped before its meta was written is a new one.
func TestUnfinishedFirstOpen(t *testing.T) {
	dir := t.TempDir()
	db, err := badger.Open(badgerOptions(dir, testOptions()))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, "post: like")
	defer closeStore(t, s)
	if s.Meta().Format != Format || s.Meta().Shards != 4 {
		t.Fatalf("meta %+v", s.Meta())
	}
}

// What outlives its store returns errors.
func TestOutlivesStore(t *testing.T) {
	s := open(t, t.TempDir(), "post: like")
	write(t, s, "post", 7, 1)
	v := s.Stack(pipeline.ShardOf(7, 4)).View()
	c := s.Begin()
	c.Shard(0).State(State{Applied: 99})
	closeStore(t, s)
	if err := c.Commit(); !errors.Is(err, ErrClosed) {
		t.Errorf("a checkpoint: %v", err)
	}
	if err := v.Rows(0, []uint64{7}, make([]int64, 1)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	v.Close()
}

// copied is a copy of a directory without what ends so: Badger's logs are large and, once it
// was closed, empty.
func copied(t *testing.T, dir string, without ...string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || slices.ContainsFunc(without, func(end string) bool { return strings.HasSuffix(path, end) }) {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, dir))
		if d.IsDir() {
			return os.MkdirAll(at, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(at, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// refused says whether a damaged directory is: with one line that says what to do.
func refused(t *testing.T, dir string) bool {
	t.Helper()
	s, err := Open(dir, spec(t, "post: like"), testOptions())
	if err == nil {
		s.Close()
		return false
	}
	if text := err.Error(); !strings.Contains(text, dir) || !strings.Contains(text, "tidemark repair --replay") || strings.Contains(text, "\n") {
		t.Errorf("not one line that says what to do: %q", text)
	}
	return true
}

// filled is the directory of a store with a few rows.
func filled(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, "post: like")
	for id := uint64(1); id < 50; id++ {
		write(t, s, "post", id, int64(id))
	}
	closeStore(t, s)
	return dir
}

// "A damaged `data_dir` gets one clear line that says what to do",
// never a panic, whichever of these files it is.
func TestDamagedDirectory(t *testing.T) {
	source := filled(t)
	for _, name := range []string{"MANIFEST", "KEYREGISTRY", "*.sst"} {
		dir := copied(t, source, ".vlog", ".mem", "DISCARD")
		found, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", name, found, err)
		}
		if err := os.Remove(found[0]); err != nil {
			t.Fatal(err)
		}
		if name != "*.sst" {
			if err := os.WriteFile(found[0], bytes.Repeat([]byte{13, 20, 27}, 50), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !refused(t, dir) {
			t.Errorf("opened with %s damaged", name)
		}
		if left, _ := os.ReadDir(dir); len(left) == 0 {
			t.Error("a damaged directory was emptied")
		}
	}
}

// A table that was truncated, or had one bit flipped, anywhere is refused with one line.
func TestDamagedTableIsRefused(t *testing.T) {
	dir := filled(t)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	with := func(table []byte) bool {
		t.Helper()
		if err := os.WriteFile(tables[0], table, 0o600); err != nil {
			t.Fatal(err)
		}
		return refused(t, dir)
	}
	const cases = 16
	for i := range cases {
		if length := len(whole) * i / cases; !with(whole[:length]) {
			t.Errorf("opened with %d of %d bytes of its table", length, len(whole))
		}
	}
	for length := len(whole) - 12; length < len(whole); length++ { // within the end that says where the index is
		if !with(whole[:length]) {
			t.Errorf("opened with %d of %d bytes of its table", length, len(whole))
		}
	}
	for at := len(whole) - 1; at >= 0; at -= max(1, (len(whole)-at)/6) {
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		if !with(flipped) {
			t.Errorf("opened with a flipped bit in byte %d of %d of its table", at, len(whole))
		}
	}
	// Badger reads the last key of a table as it opens it: in the last block, before the index.
	end := len(whole)
	for range 2 { // the checksum, the index
		end -= 4
		end -= int(binary.BigEndian.Uint32(whole[end:]))
	}
	for at := end - 150; at < end; at++ {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x80
		if !with(flipped) {
			t.Errorf("opened with a flipped bit in byte %d of %d of its table, in the last block", at, len(whole))
		}
	}
	if with(whole) {
		t.Error("refused as it was")
	}
}

// A kill between two of Badger's steps leaves logs of length 0, new ones and those about
// to be removed: the store opens, and nothing is lost. (Badger itself asks to create a
// new file, and gives up.)
func TestEmptyLogsOfAKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	write(t, s, "post", 7, 42)
	killed := copied(t, dir, ".vlog") // as a kill leaves it: logs hold what no table has
	closeStore(t, s)
	for _, name := range []string{"00000.mem", "00099.mem", "000000.vlog", "000099.vlog"} {
		if err := os.WriteFile(filepath.Join(killed, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // and once more
		s = open(t, killed, "post: like")
		if got, want := scanned(t, s), (cells{"post.like 7": 42}); !maps.Equal(got, want) {
			t.Fatalf("the store holds %v, not %v", got, want)
		}
		closeStore(t, s)
	}
}
