package acceptance_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

var full = flag.Bool("full", false, "stories with all of Higgs, and twice as many faults")

// Followers come first in the events, then what people did.
const follows = 355_074

// higgs finds the Higgs dataset and its tools beside the repository. Without
// them the test is skipped, and fails where CI says that they must be there.
func higgs(t *testing.T) (data, tools string) {
	t.Helper()
	shared := filepath.Join(filepath.Dir(e2e.Root()), "shared")
	data, tools = filepath.Join(shared, "data", "higgs"), filepath.Join(shared, "tools")
	missing := ""
	if _, err := os.Stat(filepath.Join(data, "expected_users.tsv.gz")); err != nil {
		missing = "the Higgs data is not at ../shared/data/higgs"
	} else if _, err := exec.LookPath("python3"); err != nil {
		missing = "python3, which makes the Higgs events, is not installed"
	}
	switch {
	case missing == "":
	case os.Getenv("CI") != "":
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
	return data, tools
}

// shortEvents are as many events as tests with -short may take of the beginning.
const shortEvents = follows + 20_000

// events is the file of the Higgs events, made once in TestMain's directory: all, with -short
// the first ones.
func events(t *testing.T) string {
	t.Helper()
	data, tools := higgs(t)
	eventsMade.Lock()
	defer eventsMade.Unlock()
	path := filepath.Join(scratch, "higgs.ndjson")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	c, most := exec.Command("python3", filepath.Join(tools, "higgs_events.py"), data), 1<<62
	if testing.Short() {
		most = shortEvents
	}
	made, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	out, err := os.Create(path + ".new")
	if err != nil {
		t.Fatal(err)
	}
	w, lines := bufio.NewWriter(out), bufio.NewScanner(made)
	n := 0
	for ; n < most && lines.Scan(); n++ {
		w.Write(append(lines.Bytes(), '\n'))
	}
	if n < shortEvents {
		t.Fatalf("%d events are made", n)
	}
	if err := errors.Join(lines.Err(), w.Flush(), out.Close(), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	return path
}

var eventsMade sync.Mutex

// slice is lines [from, to) of the events, as a file and taken apart.
func slice(t *testing.T, from, to int) (path string, lines [][]byte) {
	t.Helper()
	f, err := os.Open(events(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 0; n < to && s.Scan(); n++ {
		if n >= from {
			lines = append(lines, bytes.Clone(s.Bytes()))
		}
	}
	return written(t, string(bytes.Join(lines, []byte("\n")))+"\n"), lines
}

// written is a file with a text.
func written(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "written")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// oracleOf works out the answers for some lines.
func oracleOf(t *testing.T, lines [][]byte) (dir string) {
	t.Helper()
	return oracle(t, written(t, string(bytes.Join(lines, []byte("\n")))+"\n"))
}

// oracle works out the answers for some events the slow way.
func oracle(t *testing.T, path string) (dir string) {
	t.Helper()
	_, tools := higgs(t)
	dir = t.TempDir()
	if out, err := exec.Command("python3", filepath.Join(tools, "oracle.py"), path, dir).CombinedOutput(); err != nil {
		t.Fatalf("oracle: %v\n%s", err, out)
	}
	return dir
}

// table is an expected file: rows by id, with its columns' names.
type table struct {
	columns []string
	ids     []uint64
	rows    [][]int64
}

var (
	userColumns = strings.Fields("post original following follower friend reposted commented mentioned liked " +
		"unread.repost unread.comment unread.mention unread.like unread.follower feed")
	postColumns = strings.Fields("repost comment like")
)

func readTable(t *testing.T, path string, columns []string) table {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := table{columns: columns}
	s := bufio.NewScanner(z)
	for s.Scan() {
		fields := strings.Split(s.Text(), "\t")
		if len(fields) != len(columns)+1 {
			t.Fatalf("%s: %d fields in %q", path, len(fields), s.Text())
		}
		id, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]int64, len(columns))
		for i, field := range fields[1:] {
			if row[i], err = strconv.ParseInt(field, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		out.ids, out.rows = append(out.ids, id), append(out.rows, row)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// check asks for every row of the expected files and compares every column
// that is counted.
func check(t *testing.T, nc *nats.Conn, dir string, at client.Position) {
	t.Helper()
	users := readTable(t, filepath.Join(dir, "expected_users.tsv.gz"), userColumns)
	posts := readTable(t, filepath.Join(dir, "expected_posts.tsv.gz"), postColumns)
	compare(t, nc, "post", "", posts, at)
	compare(t, nc, "user", "", users, at)
	compare(t, nc, "unread", "unread.", users, at)

	// tidemark.unread has the feed, and the 1:1 counts once more as users see them.
	got, err := client.New(nc).UnreadMany(context.Background(), client.UnreadRequest{Users: users.ids, MinPosition: at, Timeout: time.Minute})
	if err != nil || got.Degraded {
		t.Fatalf("unread is degraded: %v; %v", got.Degraded, err)
	}
	users.equal(t, "unread of", func(i int, column string) (int64, bool) {
		kind, oneToOne := strings.CutPrefix(column, "unread.")
		if column == "feed" {
			return int64(got.Users[i].Feed), true
		}
		return got.Users[i].Counts[kind], oneToOne
	})
}

// compare asks for the rows of a table, and compares the columns whose names begin with a prefix
// or have no point. The feed is not a column.
func compare(t *testing.T, nc *nats.Conn, counter, prefix string, want table, at client.Position) {
	t.Helper()
	place := map[string]int{}
	var columns []string
	for _, name := range want.columns {
		if strings.Contains(name, ".") == (prefix != "") && name != "feed" {
			place[name] = len(columns)
			columns = append(columns, strings.TrimPrefix(name, prefix))
		}
	}
	got, err := client.New(nc).GetMany(context.Background(), client.GetRequest{
		Counter: counter, IDs: want.ids, Columns: columns, MinPosition: at, Timeout: time.Minute,
	})
	if err != nil || got.Degraded {
		t.Fatalf("%s is degraded: %v; %v", counter, got.Degraded, err)
	}
	want.equal(t, counter, func(i int, column string) (int64, bool) {
		j, ok := place[column]
		if !ok {
			return 0, false
		}
		return got.Rows[i].Values[j], true
	})
}

// equal compares what is answered in each row and column with the table; false: it is not asked
// for.
func (want table) equal(t *testing.T, what string, answered func(row int, column string) (int64, bool)) {
	t.Helper()
	wrong := 0
	for i, id := range want.ids {
		for j, column := range want.columns {
			if v, ok := answered(i, column); ok && v != want.rows[i][j] {
				if wrong++; wrong <= 5 {
					t.Errorf("%s %d: %s is %d, want %d", what, id, column, v, want.rows[i][j])
				}
			}
		}
	}
	if wrong > 0 {
		t.Fatalf("%s: %d wrong numbers in %d rows", what, wrong, len(want.ids))
	}
}

// scratch is the package's temporary directory.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "tidemark-acceptance-"); err != nil {
		panic(err)
	}
	natstest.SideBySide(4)
	code := m.Run()
	os.RemoveAll(scratch)
	e2e.Clean()
	natstest.Clean()
	os.Exit(code)
}

// logOf is what a process has logged so far.
func logOf(t *testing.T, p *e2e.Process) string {
	t.Helper()
	log, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// logged waits for a line of the log with one of what it may say.
func logged(t *testing.T, p *e2e.Process, what ...string) (line string) {
	t.Helper()
	for i, w := range what {
		what[i] = regexp.QuoteMeta(w)
	}
	any := regexp.MustCompile(`(?m)^.*(` + strings.Join(what, "|") + `).*$`)
	e2e.Until(t, "it says "+any.String(), func() bool {
		ended := p.Ended() // before its log is read: that has all
		if line = any.FindString(logOf(t, p)); line == "" && ended != nil {
			t.Fatalf("it ended by itself: %v", ended)
		}
		return line != ""
	})
	return line
}

// figure sums up a metric of a node over its labels.
func figure(t *testing.T, p *e2e.Process, name string) (sum float64) {
	t.Helper()
	r, err := http.Get(p.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// streamsOf is a JetStream context of somebody inside.
func streamsOf(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// lastPosition is the end of EVENTS.
func lastPosition(t *testing.T, nc *nats.Conn) client.Position {
	t.Helper()
	return pipeline.EndOf(natstest.Stream(t, nc, jetlog.EventsStream).CachedInfo().State.LastSeq)
}
