package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tidemark-io/tidemark/query/client"
)

func TestRates(t *testing.T) {
	at := func(ms, events int) sight {
		return sight{time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond), events}
	}
	for name, c := range map[string]struct {
		seen []sight
		want sample
	}{
		"nothing":              {nil, nil},
		"nothing counted":      {[]sight{at(0, 0), at(5000, 0)}, nil},
		"less than a second":   {[]sight{at(0, 10), at(999, 90)}, nil},
		"even":                 {[]sight{at(0, 0), at(100, 100), at(600, 600), at(1100, 1100), at(2100, 2100), at(2900, 2900)}, sample{1000, 1000}},
		"between two":          {[]sight{at(0, 100), at(800, 900), at(1200, 1100)}, sample{900}},
		"one long look":        {[]sight{at(0, 100), at(4000, 8100)}, sample{2000, 2000, 2000, 2000}},
		"a second of none":     {[]sight{at(0, 100), at(1000, 600), at(2000, 600), at(3000, 900)}, sample{500, 0, 300}},
		"in the same instant":  {[]sight{at(0, 100), at(1000, 600), at(1000, 700), at(2000, 800)}, sample{500, 200}},
		"the beginning is new": {[]sight{at(0, 0), at(700, 0), at(900, 1), at(1900, 11)}, sample{10}},
	} {
		got := rates(c.seen, time.Second)
		same := len(got) == len(c.want)
		for i := range got {
			same = same && math.Abs(got[i]-c.want[i]) < 1e-6
		}
		if !same {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// No row is changed by two events, and the rows are as many as is said.
func TestDistinct(t *testing.T) {
	const events = 50_000
	type row struct {
		counter string
		id      uint64
	}
	d, seen, authors := newDistinct(events), map[row]int{}, 0
	for i := range events {
		_, body := d.event(nil)
		var e rivalEvent
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		e.changes(func(counter string, id uint64, _ string) {
			if before, ok := seen[row{counter, id}]; ok && before != i || id == 0 {
				t.Fatalf("events %d and %d both change %s of %d", before, i, counter, id)
			}
			seen[row{counter, id}] = i
		})
		if e.Type == "post" {
			authors++
		}
	}
	sum := 0
	for counter, n := range d.rows() {
		sum += n
		got := 0
		for at := range seen {
			if at.counter == counter {
				got++
			}
		}
		if got != n {
			t.Errorf("%d rows of %s are changed, %d are said", got, counter, n)
		}
	}
	if sum != len(seen) || d.posts() != authors {
		t.Errorf("%d rows and %d posts, %d and %d are said", len(seen), authors, sum, d.posts())
	}
	schema := client.Schema{Counters: map[string]client.CounterSchema{
		"post": {Columns: []client.ColumnSchema{{Bits: 16}, {Bits: 16}, {Bits: 8}}},
		"user": {Columns: []client.ColumnSchema{{Bits: 1}}},
	}}
	if got := packedBytes(schema, map[string]int{"post": 10, "user": 2}, 3); got != 10*13+2*9+3*24 {
		t.Errorf("%d bytes", got)
	}
}

// A file with a hole takes the room of what was written, and the streams' is
// not counted.
func TestDiskBytes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x", "streams/x", "hole"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 100_000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "hole"), 1<<30); err != nil {
		t.Fatal(err)
	}
	got, err := diskBytes(dir, "streams")
	if err != nil || got < 200_000 || got > 1<<20 {
		t.Errorf("%v bytes, %v; want some 200,000", got, err)
	}
	if got, err := diskBytes(filepath.Join(dir, "none")); err != nil || got != 0 {
		t.Errorf("of a directory that is gone: %v, %v", got, err)
	}
}
