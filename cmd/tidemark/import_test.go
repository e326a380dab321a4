package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// "`import FILE|-` (NDJSON events, gzip too; packs; progress; exact when run again after an interruption)"
func TestImport(t *testing.T) {
	n := newPlace(t).start(t)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `{"type":"like","actor":%d,"post":42,"author":9}`+"\n", i+1)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, text.String())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "likes.ndjson.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	r := n.do("import", file, "--wait", "--pack", "100")
	if r.code != 0 || !strings.HasPrefix(r.out, "1000 lines in 10 packs, ") || !strings.Contains(r.out, "position ") {
		t.Errorf("%+v", r)
	}
	n.want("1000", "get", "42.cntan")
	if r := n.do("import", file, "--wait"); r.code != 0 || !strings.HasPrefix(r.out, "imported before") {
		t.Errorf("%+v", r)
	}
	n.want("1000", "get", "42.cntan")

	r = n.feed(text.String(), "import", "-", "--name", "again", "--wait", "--json")
	if got := document(t, r.out); got["lines"] != 1000.0 || got["packs"] != 4.0 || got["already"] != false {
		t.Errorf("%+v", r)
	}
	n.want("2000", "get", "42.cntan")

	n.do("import", "nowhere.ndjson").fails(t, 1, "nowhere.ndjson")
	tidemark(t, "import", file, "--nats", "nats://"+freeAddress(t)).fails(t, 1, "no tidemark answers")
}
