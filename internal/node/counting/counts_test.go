package counting

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
)

// numberAgain is a data directory of a node, and what it begins with at a start.
type numberAgain struct {
	t    *testing.T
	path string
}

// begins starts with generation 3, which counts by counting, as far as its counts are moved.
func (c numberAgain) begins(counting string) error {
	c.t.Helper()
	d, err := datadir.Open(c.path, "a", false)
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	g := &Generation{Process: &Process{Dir: d, Log: slog.New(slog.DiscardHandler)}, Spec: Spec{Number: 3, CountsBy: counting}}
	return g.beginAnew()
}

// counted stores counts of one that counts by something, and notes them, perhaps as mixed.
func (c numberAgain) counted(by string, mixed bool) {
	c.t.Helper()
	d, err := datadir.Open(c.path, "a", false)
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	err = d.Note(3, datadir.Noted{Counting: by, Mixed: mixed})
	for _, dir := range []string{datadir.BadgerDir, datadir.FiltersDir} {
		if err == nil {
			err = os.MkdirAll(d.Of(3, dir), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(d.Of(3, dir), "by"), []byte(by), 0o600)
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// are says whose counts are there; "": there are none.
func (c numberAgain) are(by string, mixed bool) {
	c.t.Helper()
	d, err := datadir.Open(c.path, "a", false)
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	for _, dir := range []string{datadir.BadgerDir, datadir.FiltersDir} {
		if is, _ := os.ReadFile(filepath.Join(d.Of(3, dir), "by")); string(is) != by {
			c.t.Errorf("%s of generation 3 is of %q, not of %q", dir, is, by)
		}
	}
	if is := d.Counted(3).Mixed; is != mixed {
		c.t.Errorf("noted as mixed: %v", is)
	}
}

// killed begins, and is killed before what it does next is noted.
func (c numberAgain) killed(counting string) {
	c.t.Helper()
	block := filepath.Join(c.path, datadir.MarkerFile+kit.NewEnd)
	if err := os.Mkdir(block, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if c.begins(counting) == nil {
		c.t.Error("it is noted")
	}
	if err := os.Remove(block); err != nil {
		c.t.Fatal(err)
	}
}

func newNumberAgain(t *testing.T) numberAgain {
	t.Helper()
	c := numberAgain{t, filepath.Join(t.TempDir(), "data")}
	c.counted("first", false)
	return c
}

func (c numberAgain) mustBegin(counting string) {
	c.t.Helper()
	if err := c.begins(counting); err != nil {
		c.t.Fatal(err)
	}
}

// "Another generation with the same number is moved aside, and comes back if its record
// does" (docs/decisions/0034-one-record.md), with all that is known of it.
func TestCountsComeBack(t *testing.T) {
	t.Parallel()
	c := newNumberAgain(t)
	c.mustBegin("second")
	c.are("", false)
	c.counted("second", true)
	c.mustBegin("first")
	c.are("first", false)
	c.mustBegin("second")
	c.are("second", true)
	c.mustBegin("third")
	c.are("", false)
	c.mustBegin("second")
	c.are("second", true)
}

// docs/failures.md: "counts of other generations were moved aside": a start names them, and
// deletes none.
func TestMovedAsideIsNamed(t *testing.T) {
	t.Parallel()
	c := numberAgain{t, t.TempDir()}
	start := func() string {
		t.Helper()
		d, err := datadir.Open(c.path, "a", false)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var log e2e.Lines
		d.NameAside(slog.New(slog.NewTextHandler(&log, nil)))
		return log.String()
	}
	c.counted("one", false)
	if log := start(); log != "" {
		t.Errorf("nothing was moved aside: %s", log)
	}
	if err := c.begins("other"); err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(c.path, "generations", "3.one")
	for range 2 {
		if log := start(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "rm -r "+aside) {
			t.Errorf("it says %q", log)
		}
		if _, err := os.Stat(aside); err != nil {
			t.Error(err)
		}
	}
	c.mustBegin("one")
	if log := start(); log != "" {
		t.Errorf("its counts have come back: %s", log)
	}
}

// Killed amid, and with whatever record it starts after that, a node gives no generation
// the counts of another one with its number.
func TestCountsAreExchangedAmidAKill(t *testing.T) {
	t.Parallel()
	replace := func(from, to string) {
		t.Helper()
		if err := datadir.Replace(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, killed := range map[string]func(c numberAgain, d *datadir.Dir){
		"before it is noted": func(c numberAgain, _ *datadir.Dir) { c.killed("first") },
		"before what is taken back is noted": func(c numberAgain, _ *datadir.Dir) {
			c.mustBegin("third")
			d, err := datadir.Open(c.path, "a", false)
			if err == nil {
				err = errors.Join(d.Note(3, datadir.Noted{}), d.Close()) // what was counted by third is dropped
			}
			if err != nil {
				t.Fatal(err)
			}
			c.killed("first")
		},
		"with half of it moved": func(_ numberAgain, d *datadir.Dir) {
			replace(d.Of(3, datadir.BadgerDir), filepath.Join(d.Aside(3, "second"), datadir.BadgerDir))
		},
		"with half of it taken back": func(c numberAgain, d *datadir.Dir) {
			c.mustBegin("first")
			replace(d.Of(3, datadir.FiltersDir), filepath.Join(d.Aside(3, "first"), datadir.FiltersDir))
		},
	} {
		for next, want := range map[string]string{"first": "first", "second": "second", "third": ""} { // by which nothing was counted
			t.Run(name+", to "+next, func(t *testing.T) {
				c := newNumberAgain(t)
				c.mustBegin("second")
				c.counted("second", false)
				killed(c, &datadir.Dir{Path: c.path})
				c.mustBegin(next)
				c.are(want, false)
			})
		}
	}
}
