package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// zip compresses text.
func zip(t *testing.T, text string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// docs/contract.md: "`import --wait` tells how many lines were refused, and why", with
// numbers that an editor shows.
func TestImportSaysWhatIsRefused(t *testing.T) {
	n := shared(t)
	letters := n.lettersEnd(t)
	file := filepath.Join(t.TempDir(), "mixed.ndjson")
	text := "\n" + `{"type":"comment","actor":1,"post":1443,"author":9}
{"type":"comment","actor":0,"post":1443,"author":9}


{"type":"comment","actor":2,"post":1443,"author":9}
not json
{"type":"follow","actor":3,"target":3}
`
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	lines := fmt.Sprintf(`3 lines refused (id 1, json 1, self 1):
  line 3: actor: 0 is not an id
  line 7: not JSON: jsontext: invalid character 'o' in literal null (expecting 'u') after offset 1
  line 8: user 3 follows themself
they are kept: tidemark deadletters, tidemark deadletters show %d
`, letters+1)
	r := n.do("import", file, "--wait", "--pack", "2")
	if first, rest, _ := strings.Cut(r.out, "\n"); r.code != 0 || r.err != "" || !strings.HasPrefix(first, "5 lines in 3 packs, ") || rest != lines {
		t.Errorf("%+v", r)
	}
	n.want("2", "get", "1443.cntcm")

	r = n.do("import", file, "--strict", "--json")
	r.fails(t, 1, "tidemark: 3 lines refused")
	got := document(t, r.out)
	want := document(t, fmt.Sprintf(`{"lines":0,"skipped":5,"packs":0,"bytes":0,"already":true,
		"refused":3,"refused_reasons":{"id":1,"json":1,"self":1},"refused_lines":[
		{"line":3,"event":2,"reason":"id","error":"actor: 0 is not an id","letter":%d},
		{"line":7,"event":4,"reason":"json","error":"not JSON: jsontext: invalid character 'o' in literal null (expecting 'u') after offset 1","letter":%d},
		{"line":8,"event":5,"reason":"self","error":"user 3 follows themself","letter":%d}]}`, letters+1, letters+2, letters+3))
	for _, name := range []string{"seconds", "import", "position"} {
		delete(got, name)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant\n%v", got, want)
	}

	// docs/contract.md: "how many were skipped because an earlier import began with them"
	write(text + `{"type":"comment","actor":4,"post":1443,"author":9}` + "\n")
	r = n.do("import", file, "--wait")
	if r.code != 0 || !strings.HasPrefix(r.out, "1 line in 1 pack, ") || !strings.HasSuffix(r.out, lines) || !strings.Contains(r.out, "--name NAME") ||
		!strings.Contains(r.out, "\n5 lines before these skipped, for they were imported before; ") {
		t.Errorf("%+v", r)
	}
	r = n.do("import", file)
	if !strings.HasPrefix(r.out, "imported before: nothing to do, ") || !strings.Contains(r.out, "--name NAME") || strings.Contains(r.out, "refused") {
		t.Errorf("%+v", r)
	}
	r = n.do("import", file, "--name", "another", "--wait")
	if r.code != 0 || !strings.HasPrefix(r.out, "6 lines in 1 pack, ") || strings.Contains(r.out, "skipped") {
		t.Errorf("%+v", r)
	}
	n.want("6", "get", "1443.cntcm")

	// A file without a mistake is good, strictly.
	r = n.feed(`{"type":"comment","actor":1,"post":1444,"author":9}`, "import", "-", "--strict", "--json")
	if got := document(t, r.out); r.code != 0 || got["refused"] != 0.0 || got["refused_lines"] != nil {
		t.Errorf("%+v", r)
	}
	// What was not waited for is not known, and not said to be 0.
	r = n.feed("not json", "import", "-", "--json", "--force")
	if got := document(t, r.out); r.code != 0 || got["refused"] != nil {
		t.Errorf("%+v", r)
	}
	// Letters that are gone are not taken for none.
	if err := n.connect(t).DeleteMsg("DEADLETTER", letters+2); err != nil {
		t.Fatal(err)
	}
	r = n.do("import", file, "--wait")
	if r.code != 0 || !strings.Contains(r.out, "DEADLETTER has lost letters since the import began") {
		t.Errorf("%+v", r)
	}
	n.do("import", file, "--strict").fails(t, 1, "at least 2 lines refused")

	other := filepath.Join(t.TempDir(), "other.ndjson")
	writeOther := func(text string) {
		t.Helper()
		if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// docs/contract.md: "a line that is too long … is refused by its number, kept or named, and
	// the rest counts"; "Lines skipped … and with `--strict` exit 1."
	like := func(actor int) string {
		return fmt.Sprintf(`{"type":"like","actor":%d,"post":1443,"author":9}`+"\n", actor)
	}
	writeOther(like(1) + `{"type":"like","x":"` + strings.Repeat("x", 5<<20) + "\"}\n" + like(2))
	r = n.do("import", other, "--name", "long", "--wait")
	if r.code != 0 || !strings.HasPrefix(r.out, "3 lines in ") || !strings.Contains(r.out, "1 line refused (json 1):\n  line 2: ") {
		t.Errorf("%+v", r)
	}
	n.want("2", "get", "1443.cntan")
	writeOther(like(3) + like(4))
	n.good("import", other, "--name", "grows", "--strict")
	writeOther(like(3) + like(4) + like(5))
	if r = n.do("import", other, "--name", "grows", "--strict"); r.code != 1 || !strings.Contains(r.err, "2 lines skipped: an earlier import began with them") {
		t.Errorf("%+v", r)
	}
	n.want("5", "get", "1443.cntan")
}

// `import --wait` must not exit 0 while a shard has stopped.
func TestImportWhereAShardHasStopped(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n := p.start(t)
	var text strings.Builder
	for i := range 20_000 { // more than checkpoint.rows: each shard has runs on disk
		fmt.Fprintf(&text, `{"type":"like","actor":%d,"post":%d,"author":%d}`+"\n", i+1, i+1, i+1)
	}
	if r := n.feed(text.String(), "import", "-", "--wait"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	n.stop(syscall.SIGTERM)
	damageOneFile(t, filepath.Join(p.data, "generations", "1", "badger", "runs"))
	n = p.start(t)
	e2e.Until(t, "a shard has stopped", func() bool { _, page := n.page("/readyz"); return strings.Contains(page, "shard") })
	text.WriteString(`{"type":"like","actor":1,"post":42,"author":9}` + "\n")
	r := n.feed(text.String(), "import", "-", "--wait")
	r.fails(t, 1, "of the node stopped", "/readyz")
	if !strings.HasPrefix(r.out, "1 line in 1 pack") || strings.Contains(r.out, "may have been refused") { // the others have looked at it
		t.Errorf("%+v", r)
	}

	// Where the node does not come as far as the last line, nobody knows yet
	// what is refused. No window fits into DELTAS now.
	js := n.connect(t)
	deltas, err := js.StreamInfo("DELTAS")
	if err != nil {
		t.Fatal(err)
	}
	deltas.Config.MaxMsgSize = 1
	if _, err := js.UpdateStream(&deltas.Config); err != nil {
		t.Fatal(err)
	}
	text.WriteString("no event\n")
	r = n.feed(text.String(), "import", "-", "--wait", "--json")
	r.fails(t, 1, "of the node stopped")
	if got := document(t, r.out); got["refused_at_least"] != true {
		t.Errorf("%+v", r)
	}
}

// damageOneFile changes a byte of one file of runs, of the shards that wrote least.
func damageOneFile(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files of runs %v, %v", files, err)
	}
	var damaged string
	var least []byte
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if least == nil || len(b) < len(least) {
			damaged, least = file, b
		}
	}
	least[len(least)/3] ^= 0xff
	if err := os.WriteFile(damaged, least, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that begins with no event: nothing is published.
func TestImportSaysWhatAFileLooksLike(t *testing.T) {
	n, dir := shared(t), t.TempDir()
	before := n.eventsEnd(t)
	for name, file := range map[string]struct{ text, like string }{
		"likes.csv": {"post,42,like,3\npost,43,like,4\n", "import it with --format csv"},
		"twice.gz":  {string(zip(t, string(zip(t, aLike)))), "gzip within gzip"},
		"image":     {"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "it looks binary"},
		"all.json":  {"[\n" + aLike + "]\n", "it looks like a JSON array"},
		"empty":     {"", "it is empty"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.do("import", path, "--strict").fails(t, 1, "import "+path+": nothing was published", file.like, "--force")
	}
	n.do("import", "nowhere.ndjson").fails(t, 1, "nowhere.ndjson")
	if last := n.eventsEnd(t); last != before {
		t.Errorf("%d messages were published", last-before)
	}
	if r := n.do("import", filepath.Join(dir, "image"), "--force", "--wait"); r.code != 0 || !strings.Contains(r.out, "lines refused") {
		t.Errorf("%+v", r)
	}
	if r := n.do("import", filepath.Join(dir, "empty"), "--force"); r.code != 0 || !strings.HasPrefix(r.out, "0 lines") {
		t.Errorf("%+v", r)
	}
}

// eventsEnd is the last sequence of EVENTS.
func (n *process) eventsEnd(t *testing.T) uint64 { return n.end(t, "EVENTS") }

// lettersEnd is the last sequence of DEADLETTER.
func (n *process) lettersEnd(t *testing.T) uint64 { return n.end(t, "DEADLETTER") }

func (n *process) end(t *testing.T, stream string) uint64 {
	t.Helper()
	info, err := n.connect(t).StreamInfo(stream)
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}
