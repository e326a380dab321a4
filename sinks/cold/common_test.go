package cold

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

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

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkpoint commits what fill hands over for a shard, and publishes it.
func checkpoint(t testing.TB, s *Store, shard pipeline.Shard, applied pipeline.Position, fill func(Sink)) {
	t.Helper()
	c := s.Begin()
	sink := c.Shard(shard)
	if fill != nil {
		fill(sink)
	}
	sink.State(State{Applied: applied, Sequence: uint64(applied), Time: int64(applied)})
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Stack(shard).Publish()
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

func scanned(t *testing.T, s *Store) cells {
	t.Helper()
	out := cells{}
	for shard := range s.meta.Shards {
		v := s.Stack(pipeline.Shard(shard)).View()
		err := v.WalkRows(&Part{Most: math.MaxInt}, func(counter int, id uint64, row []int64) error {
			if pipeline.ShardOf(id, s.meta.Shards) != pipeline.Shard(shard) {
				t.Errorf("id %d is in shard %d", id, shard)
			}
			out.put(s, counter, id, row)
			return nil
		})
		v.Close()
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
	checkpoint(t, s, pipeline.ShardOf(id, s.meta.Shards), pipeline.Position(id), func(to Sink) { to.Row(at, id, row) })
}

func isCorrupt(err error) bool { return errors.Is(err, ErrCorrupt) }

// waitFor waits for what merges, in their own goroutine, bring about.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}
