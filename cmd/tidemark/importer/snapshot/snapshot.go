// Package snapshot reads the counts that a Redis holds into a file that
// package importer imports: counter,id,column,value.
//
// The way of a count: pattern.go says which keys hold counts and of which
// column; scan.go goes through the keys and reads them, cells.go keeps what was
// read on disk and sorts it, and the snapshot is written, each cell once.
//
// # Exactly once
//
// SCAN gives keys in no order that two runs share, and may give one twice. A
// set that comes a second time would undo what was counted between the two. So
// nothing is imported while it is read: first the whole snapshot is taken, and
// then that file is imported, which is exact however often it is interrupted
// (package importer). The import is named after the server and the patterns, one for
// each column ([Expand]): the same command is the same import, and a second one has
// nothing to do. Which patterns of a server were imported the bucket keeps
// (importer.Sources): a later command leaves those columns as they are.
//
// # Interrupted
//
// How far the reading is stands in state.json, written every few seconds,
// after the cells that it counts. The same command goes on from there. A
// cursor of SCAN means something to the server process that gave it alone: its
// run_id is in the state, and where another one answers (Redis was restarted, a
// replica took over) the reading begins again. Nothing has been imported then.
package snapshot

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/internal/kit"
)

const (
	scanCount = 1000             // keys looked at in a step
	saveEvery = 5 * time.Second  // of the state; progress is shown as often
	patience  = time.Minute      // how long Redis may be away
	within    = 10 * time.Second // an answer of Redis
	shownMax  = 5                // faults of each reason that are named
)

// Options say what to read. Dir, URL, Patterns and Schema are needed.
type Options struct {
	URL      string // redis://user:password@host:port/db
	Patterns []string
	Schema   Schema
	Dir      string    // for the snapshot and what is needed to go on
	Progress io.Writer // a line every few seconds; default: none

	scanCount int64 // tests read and sort less at once
	piece     int
	saveEvery time.Duration
	patience  time.Duration
}

// Snapshot is a file of counts. Close it.
type Snapshot struct {
	Path   string // of the file: counter,id,column,value, with that header
	Counts uint64 // in it
	Faults Faults

	dir  string
	lock *flock.Flock
}

// Faults are what is not in a snapshot though its key is one of a pattern.
type Faults struct {
	Keys     uint64
	Reasons  map[string]uint64 // id, type, value
	Examples []Fault           // the first ones that were met
}

// Fault is one of them.
type Fault struct {
	Key    string `json:"key"`
	Field  string `json:"field,omitempty"` // of a hash
	Reason string `json:"reason"`
	Error  string `json:"error"` // one sentence
}

// state is state.json.
type state struct {
	Columns []string `json:"columns"` // of the plan, in its order
	Server  string   `json:"server"`  // run_id
	Pass    int      `json:"pass"`
	Cursor  uint64   `json:"cursor,string"` // of SCAN, where to go on
	Field   uint64   `json:"field,string"`  // of HSCAN in the one hash of a pass
	Keys    uint64   `json:"keys"`          // found, some of them twice
	Cells   int64    `json:"cells"`         // in the file of cells
	Shown   []Fault  `json:"shown"`

	Taken  bool              `json:"taken"` // the snapshot is whole
	Counts uint64            `json:"counts"`
	Faults map[string]uint64 `json:"faults"`
}

// Expand gives patterns that name the same counts, sorted, one for each column.
func Expand(patterns []string, schema Schema) ([]string, error) {
	p, err := newPlan(patterns, schema)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, pass := range p.passes {
		for _, t := range pass.targets {
			key := pass.key.text
			if pass.kind != strs {
				key += "#" + t.field.text
			}
			all = append(all, key+"="+p.columns[t.column].String())
		}
	}
	slices.Sort(all)
	return all, nil
}

// ColumnOf is the column of a pattern that Expand gave.
func ColumnOf(pattern string) string { return pattern[strings.LastIndexByte(pattern, '=')+1:] }

// authVariable is where redis-cli looks for a password that is not given.
const authVariable = "REDISCLI_AUTH"

func parseURL(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "redis: ")
		if _, whole := errors.AsType[*url.Error](err); whole || strings.Contains(why, "@") { // with the password
			why = "it is not a URL; a / or % in a password is written as %2F or %25"
		}
		return nil, fmt.Errorf("the URL of Redis: %s: say redis://HOST:PORT/DB", why)
	}
	o.Password = cmp.Or(o.Password, os.Getenv(authVariable))
	return o, nil
}

// Server names a Redis: its address and the number of the database.
func Server(address string) (string, error) { return Name(address, nil) }

// Name is what an import of these keys is called.
func Name(address string, patterns []string) (string, error) {
	o, err := parseURL(address)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %d\n", o.Addr, o.DB)
	for _, pattern := range slices.Sorted(slices.Values(patterns)) {
		fmt.Fprintf(sum, "%q\n", pattern)
	}
	return fmt.Sprintf("redis-%x", sum.Sum(nil)[:8]), nil
}

const (
	stateFile    = "state.json"
	cellsFile    = "cells"
	snapshotFile = "counts.csv"
	lockFile     = "lock"
)

// Begun says that dir holds a snapshot, whole or begun.
func Begun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, stateFile))
	return err == nil
}

// ErrLocked: another process reads the same.
var ErrLocked = errors.New("snapshot: another process is at it")

// Take reads what the patterns name and writes the snapshot, or goes on with
// one that was begun, or opens the one that is whole. With any error, ctx's
// included, the same call made again goes on.
func Take(ctx context.Context, o Options) (taken *Snapshot, err error) {
	o.scanCount = cmp.Or(o.scanCount, scanCount)
	o.piece = cmp.Or(o.piece, pieceCells)
	o.saveEvery = cmp.Or(o.saveEvery, saveEvery)
	o.patience = cmp.Or(o.patience, patience)
	plan, err := newPlan(o.Patterns, o.Schema)
	if err != nil {
		return nil, err
	}
	server, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(o.Dir, lockFile))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", o.Dir, err)
	case !locked:
		return nil, fmt.Errorf("%w: it works in %s", ErrLocked, o.Dir)
	}
	r := &reader{o: o, plan: plan, progress: o.Progress}
	defer func() {
		if err != nil {
			_ = lock.Unlock()
		}
	}()
	if err := r.load(); err != nil {
		return nil, err
	}
	s := &Snapshot{Path: r.path(snapshotFile), dir: o.Dir, lock: lock}
	if !r.state.Taken {
		err := r.read(ctx, server)
		if begun := r.state.Pass > 0 || r.state.Cursor > 0 || r.state.Field > 0; err != nil && !begun {
			return nil, errors.Join(err, s.Remove())
		}
		if err != nil {
			return nil, err
		}
		if err := r.arrange(ctx); err != nil {
			return nil, fmt.Errorf("sort what was read: %w", err)
		}
	}
	s.Counts, s.Faults = r.state.Counts, Faults{Reasons: r.state.Faults, Examples: r.state.Shown}
	for _, n := range r.state.Faults {
		s.Faults.Keys += n
	}
	return s, nil
}

// Close lets others have it. What is on disk stays.
func (s *Snapshot) Close() error { return s.lock.Unlock() }

// Remove deletes it, once it is imported.
func (s *Snapshot) Remove() error {
	var errs []error
	// The state goes last: without it, nothing was begun.
	for _, name := range []string{snapshotFile, cellsFile, stateFile, lockFile} {
		if err := os.Remove(filepath.Join(s.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.Remove(s.dir))...)
}

func (r *reader) path(name string) string { return filepath.Join(r.o.Dir, name) }

// load reads the state. One that does not fit to the plan is of a snapshot
// that was begun for other columns, and is begun again.
func (r *reader) load() error {
	var columns []string
	for _, c := range r.plan.columns {
		columns = append(columns, c.String())
	}
	b, err := os.ReadFile(r.path(stateFile))
	if err == nil {
		err = json.Unmarshal(b, &r.state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s says how far the snapshot is and cannot be read: %w; delete it to begin again", r.path(stateFile), err)
	}
	whole := r.state.Taken && exists(r.path(snapshotFile))
	if !slices.Equal(r.state.Columns, columns) || r.state.Pass > len(r.plan.passes) || r.state.Taken && !whole {
		r.state = state{}
	}
	r.state.Columns = columns
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// save makes what was read, and how far that is, survive.
func (r *reader) save() error {
	if r.file != nil {
		if err := errors.Join(r.out.Flush(), r.file.Sync()); err != nil {
			return err
		}
	}
	b, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	r.saved = time.Now()
	return replace(r.path(stateFile), func(to *bufio.Writer) error {
		_, err := to.Write(b)
		return err
	})
}

// replace writes a file whole or not at all.
func replace(path string, write func(to *bufio.Writer) error) error {
	return kit.ReplaceFile(path, 0o666, func(file io.Writer) error {
		to := bufio.NewWriterSize(file, mergeRead)
		if err := write(to); err != nil {
			return err
		}
		return to.Flush()
	})
}

// arrange makes the snapshot of the cells.
func (r *reader) arrange(ctx context.Context) error {
	r.state.Counts, r.state.Faults = 0, map[string]uint64{}
	err := replace(r.path(snapshotFile), func(to *bufio.Writer) error {
		if _, err := to.WriteString("counter,id,column,value\n"); err != nil {
			return err
		}
		return sortCells(ctx, r.path(cellsFile), r.o.Dir, r.o.piece, func(c cell) error {
			if c.column >= faultColumn {
				r.state.Faults[faultNames[c.column-faultColumn]]++
				return nil
			}
			r.state.Counts++
			column := r.plan.columns[c.column]
			_, err := fmt.Fprintf(to, "%s,%d,%s,%d\n", column.Counter, c.id, column.Name, c.value)
			return err
		})
	})
	if err != nil {
		return err
	}
	r.state.Taken = true
	if err := r.save(); err != nil {
		return err
	}
	return os.Remove(r.path(cellsFile))
}
