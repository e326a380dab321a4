package cold

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m, // what Badger leaves of an open that failed
		goleak.IgnoreAnyFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreAnyFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
}

// spec is a configuration's counters: "post: like repost".
func spec(t interface{ Fatal(...any) }, lines ...string) *pipeline.Schema {
	var names []string
	var columns []pipeline.ColumnSpec
	for i, line := range lines {
		name, list, _ := strings.Cut(line, ":")
		names = append(names, name)
		for _, column := range strings.Fields(list) {
			columns = append(columns, pipeline.ColumnSpec{Counter: i, Name: column, Bits: 16, Max: 63})
		}
	}
	s, err := pipeline.NewSchema(names, columns)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testOptions() Options {
	return Options{Shards: 4, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, dir string, lines ...string) *Store {
	t.Helper()
	s, err := Open(dir, spec(t, lines...), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cells are all values that a store holds by name: "post.like 7".
type cells map[string]int64

func (c cells) put(s *Store, counter int, id uint64, row []int64) {
	first := s.schema.Counters[counter].First
	for i, v := range row {
		if v != 0 {
			c[fmt.Sprintf("%s %d", s.schema.FullName(first+pipeline.Column(i)), id)] = v
		}
	}
}

// scanAll visits every row of a shard.
func scanAll(s *Store, shard pipeline.Shard, visit func(counter int, id uint64, row []int64) error) error {
	return s.View(Newest, func(v *View) error { return v.Rows(shard, &Part{Most: math.MaxInt}, visit) })
}

func scanned(t *testing.T, s *Store) cells {
	t.Helper()
	out := cells{}
	for shard := range s.meta.Shards {
		err := scanAll(s, pipeline.Shard(shard), func(counter int, id uint64, row []int64) error {
			if pipeline.ShardOf(id, s.meta.Shards) != pipeline.Shard(shard) {
				t.Errorf("id %d is in shard %d", id, shard)
			}
			out.put(s, counter, id, row)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// write checkpoints one row with these values in the schema's columns.
func write(t *testing.T, s *Store, counter string, id uint64, row ...int64) {
	t.Helper()
	at, ok := s.schema.Counter(counter)
	if !ok {
		t.Fatalf("no counter %s", counter)
	}
	row = append(row, make([]int64, s.schema.Counters[at].Count-len(row))...)
	c, shard := s.Begin(), pipeline.ShardOf(id, s.meta.Shards)
	defer c.Settle()
	if err := errors.Join(c.Row(shard, at, id, row), c.State(shard, State{Applied: pipeline.Position(id), Sequence: 1}), c.Commit()); err != nil {
		t.Fatal(err)
	}
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// "a column taken out of the configuration by mistake loses nothing".
func TestConfigurationChanges(t *testing.T) {
	dir := t.TempDir()
	want := cells{}
	steps := []struct {
		name    string
		schema  []string
		visible string
		change  func(s *Store)
	}{
		{"first", []string{"post: like repost", "user: post"}, "post.like post.repost user.post", func(s *Store) {
			write(t, s, "post", 7, 1, 2)
			write(t, s, "post", 8, 0, 5)
			write(t, s, "user", 7, 3)
			want = cells{"post.like 7": 1, "post.repost 7": 2, "post.repost 8": 5, "user.post 7": 3}
		}},
		{"a column more, in front", []string{"post: view like repost", "user: post"}, "post.view post.like post.repost user.post", func(s *Store) {
			write(t, s, "post", 8, 9, 0, 5)
			want["post.view 8"] = 9
		}},
		{"a column less", []string{"post: view repost", "user: post"}, "post.view post.repost user.post", func(s *Store) {
			write(t, s, "post", 8, 9, 6, 4) // the third cell is the hidden like
			want["post.repost 8"], want["post.like 8"] = 6, 4
		}},
		{"a counter less", []string{"user: post"}, "user.post", nil},
		{"another counter first, columns in another order", []string{"video: view", "user: like post"}, "video.view user.like user.post", func(s *Store) {
			write(t, s, "video", 7, 70)
			write(t, s, "user", 7, 0, 0) // back to nothing: off the disk
			want["video.view 7"] = 70
			delete(want, "user.post 7")
		}},
		{"all again", []string{"user: post like", "post: repost view like", "video: view"}, "user.post user.like post.repost post.view post.like video.view", nil},
	}
	for _, step := range steps {
		s := open(t, dir, step.schema...)
		if got := scanned(t, s); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", step.name, got, want)
		}
		var visible []string
		for i := range s.Schema().Counters {
			for _, c := range s.Schema().Visible(i) {
				visible = append(visible, s.Schema().FullName(c))
			}
		}
		if got := strings.Join(visible, " "); got != step.visible {
			t.Errorf("%s: shows %s, want %s", step.name, got, step.visible)
		}
		if step.change != nil {
			step.change(s)
			if got := scanned(t, s); !maps.Equal(got, want) {
				t.Errorf("%s, written: %v, want %v", step.name, got, want)
			}
		}
		closeStore(t, s)
	}
}

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
				if err := decodeCells(b.value, s.counters[counter].places, row); err != nil {
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
					disk[fmt.Sprintf("%d %s", id, c.Name)] = stored{codec.number, appendCells(nil, codec.numbers, row)}
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
	refuse(testOptions(), "format 2", "reads format 1", "another data_dir")
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

// "data_dir corrupt: one clear line that says what to do", never a panic,
// whichever of these files it is. (Of a damaged table Badger panics.)
func TestDamagedDirectory(t *testing.T) {
	source := t.TempDir()
	s := open(t, source, "post: like")
	for id := uint64(1); id < 50; id++ {
		write(t, s, "post", id, int64(id))
	}
	closeStore(t, s)
	for _, name := range []string{"MANIFEST", "KEYREGISTRY", "missing .sst"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var hit string
			entries, _ := os.ReadDir(source)
			for _, e := range entries {
				from, to := filepath.Join(source, e.Name()), filepath.Join(dir, e.Name())
				if strings.HasSuffix(e.Name(), ".vlog") || strings.HasSuffix(e.Name(), ".mem") || e.Name() == "DISCARD" {
					continue // large and, after Close, empty
				}
				b, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				if part := strings.TrimPrefix(name, "missing "); strings.HasSuffix(e.Name(), part) {
					hit = e.Name()
					if part != name {
						continue
					}
					for i := range b {
						b[i] = byte(i*7 + 13)
					}
				}
				if err := os.WriteFile(to, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if hit == "" {
				t.Fatal("no such file")
			}
			s, err := Open(dir, spec(t, "post: like"), testOptions())
			if err == nil {
				s.Close()
				t.Fatalf("opened with %s damaged", hit)
			}
			if text := err.Error(); !strings.Contains(text, dir) || !strings.Contains(text, "tidemark repair --replay") || strings.Contains(text, "\n") {
				t.Errorf("not one line that says what to do: %q", text)
			}
			if left, _ := os.ReadDir(dir); len(left) == 0 {
				t.Error("a damaged directory was emptied")
			}
		})
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

// A kill between two of Badger's steps leaves logs of length 0, new ones and
// those about to be removed: the store opens, and nothing is lost. (Badger
// itself says "Create a new file" and gives up.)
func TestEmptyLogsOfAKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	write(t, s, "post", 7, 42)
	killed := t.TempDir() // the directory as a kill leaves it: logs hold what no table has
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
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

func TestStateOfUnknownShardIsZero(t *testing.T) {
	s := open(t, t.TempDir(), "post: like")
	defer closeStore(t, s)
	if state, err := s.State(3); err != nil || state != (State{}) {
		t.Fatalf("%+v, %v", state, err)
	}
	bad := s.Begin()
	defer bad.Settle()
	if err := errors.Join(bad.txn.Set(shardKey(3, kindState), []byte{0xff}), bad.txn.Set(rowKey(3, 9, 1), []byte{1, 1}), bad.txn.Set(rowKey(2, 0, 0), []byte{0, 2}),
		bad.txn.Set(rowKey(1, 0, 1), []byte{5, 5}), bad.Commit()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.State(3); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "shard 3") {
		t.Errorf("a damaged state gave %v", err)
	}
	for shard, part := range map[pipeline.Shard]string{1: "row 1 of counter post", 2: "id 0", 3: "counter 9"} {
		err := scanAll(s, shard, func(int, uint64, []int64) error { return nil })
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), part) {
			t.Errorf("shard %d: %v does not say %q", shard, err, part)
		}
	}
}

// "BatchRowsMax is how many rows and states one transaction takes, whatever
// the rows hold."
func TestBatchRowsMax(t *testing.T) {
	wide := "post:"
	for i := range 40 {
		wide += fmt.Sprintf(" c%d", i)
	}
	for name, line := range map[string]string{"narrow": "post: like", "wide": wide} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), line)
			defer closeStore(t, s)
			row := make([]int64, s.schema.Counters[0].Count)
			for i := range row {
				row[i] = -1 << 62
			}
			c := s.Begin()
			for i := range s.BatchRowsMax() - 1 {
				if err := c.Row(0, 0, uint64(i+1), row); err != nil {
					t.Fatalf("row %d of %d: %v", i, s.BatchRowsMax(), err)
				}
			}
			if err := errors.Join(c.State(0, State{1 << 63, 1 << 63, -1 << 63}), c.Commit()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Entries count as rows do: cursors in channels with the longest names, too.
func TestBatchOfEntries(t *testing.T) {
	s := open(t, t.TempDir(), "post: like")
	defer closeStore(t, s)
	c := s.Begin()
	for i := range s.BatchRowsMax() {
		if err := c.PutCursor(0, uint64(i+1), strings.Repeat("c", pipeline.ChannelBytesMax), 1<<63); err != nil {
			t.Fatalf("cursor %d of %d: %v", i, s.BatchRowsMax(), err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	c.Settle()
}

// Rows and position commit together, or not at all (I4).
func TestCheckpointIsOneTransaction(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	write(t, s, "post", 7, 1)
	shard := pipeline.ShardOf(7, 4)
	c := s.Begin()
	if err := errors.Join(c.Row(shard, 0, 7, []int64{2}), c.State(shard, State{Applied: 99})); err != nil {
		t.Fatal(err)
	}
	c.Discard()
	if state, _ := s.State(shard); state.Applied != 7 {
		t.Errorf("discarded, and the state is %+v", state)
	}
	closeStore(t, s)
	c = s.Begin()
	if err := errors.Join(c.Row(shard, 0, 7, []int64{2}), c.Commit()); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed store gave %v", err)
	}
	c.Discard()
	s = open(t, dir, "post: like")
	defer closeStore(t, s)
	if got := scanned(t, s); !maps.Equal(got, cells{"post.like 7": 1}) {
		t.Errorf("%v", got)
	}
}

// PostsOf against Posts, author by author: whoever is asked for, and from
// wherever on, among authors of no, one and hundreds of posts.
func TestPostsOf(t *testing.T) {
	s := open(t, t.TempDir(), "post: like")
	defer closeStore(t, s)
	c := s.Begin()
	for author := uint64(1); author <= 400; author++ {
		posts := []int{0, 0, 1, 3, leap, leap + 1, 5 * leap}[author*3%7]
		for i := range posts {
			if err := c.PutPost(0, author, pipeline.Position(i*3+1), author<<20+uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(c.PutPost(1, 1, 1, 1), c.PutMarks(0, 7, 1, 1, 1, 1), c.Commit()); err != nil {
		t.Fatal(err)
	}
	c.Settle()
	type listed struct {
		author, position, post uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		var asked []From
		every := rapid.Uint64Range(1, 90).Draw(t, "every")
		for author := rapid.Uint64Range(1, 450).Draw(t, "first"); author < 500; author += 1 + rapid.Uint64Range(0, every).Draw(t, "step") {
			from := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 600), rapid.Just(uint64(pipeline.PositionMax))).Draw(t, "from")
			asked = append(asked, From{author, pipeline.Position(from)})
		}
		var want, got []listed
		err := s.View(Newest, func(v *View) error {
			for _, a := range asked {
				err := v.Posts(0, a.Author, a.Position, func(position pipeline.Position, post uint64) {
					want = append(want, listed{a.Author, uint64(position), post})
				})
				if err != nil {
					return err
				}
			}
			return v.PostsOf(0, asked, func(i int, position pipeline.Position, post uint64) {
				got = append(got, listed{asked[i].Author, uint64(position), post})
			})
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v: got %v, want %v (%v)", asked, got, want, err)
		}
	})
}
