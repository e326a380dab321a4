package main

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// A data directory of format 1 is refused, untouched, and what the refusal tells
// the operator to do counts everything again.
func TestDataDirOfFormatOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n := p.start(t)
	n.want("5", "incr", "42.cntcm", "5")
	n.want("7", "incr", "43.cntcm", "7")
	if code := n.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	setFormat(t, filepath.Join(p.data, "badger"), "1")
	for range 2 { // once more: the refusal changed nothing
		p.refuses(t, "has format 1", "reads format 2", "tidemark repair --replay")
	}
	if r := tidemark(t, "repair", "--replay", "--config", p.config); r.code != 0 || !strings.Contains(r.out, p.data) {
		t.Fatalf("%+v", r)
	}
	absent(t, filepath.Join(p.data, "badger"))
	n = p.start(t)
	eventually(t, "counted again", func() bool {
		return n.do("get", "42.cntcm").out == "5\n" && n.do("get", "43.cntcm").out == "7\n"
	})
	n.want("6", "incr", "42.cntcm")
	if code := n.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}

	setFormat(t, filepath.Join(p.data, "badger"), "3")
	p.refuses(t, "has format 3", "later version")
}

// setFormat has a store say that it has another format.
func setFormat(t *testing.T, dir, format string) {
	t.Helper()
	db, err := badger.OpenManaged(badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	key := []byte("\x00meta")
	txn := db.NewTransactionAt(math.MaxUint64, true)
	defer txn.Discard()
	item, err := txn.Get(key)
	var value []byte
	if err == nil {
		value, err = item.ValueCopy(nil)
	}
	changed := bytes.Replace(value, []byte(`"format":2,`), []byte(`"format":`+format+`,`), 1)
	if err == nil && bytes.Equal(changed, value) {
		t.Fatalf("no format in %s", value)
	}
	if err == nil {
		err = txn.Set(key, changed)
	}
	if err == nil {
		err = txn.CommitAt(db.MaxVersion()+1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}
