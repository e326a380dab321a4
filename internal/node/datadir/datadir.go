// Package datadir is the directory in which a process keeps what it has counted: which node
// and which generations it belongs to, and where each of them has its counts.
//
// [Open] locks a directory and reads its marker, tidemark.json (datadir.go). From then on the
// methods of [Dir] that read or note something may be called by several goroutines. What the
// directory has of a generation is moved aside, taken back and deleted as one (counts.go).
// disk.go, disk_unix.go and disk_other.go say how much of the disk is free.
package datadir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The data directory:
//
//	data/
//	  tidemark.json   what this directory is: format, this node's name, generations
//	  LOCK            held while a process uses it
//	  jetstream/      the embedded server's streams
//	  generations/1/  of the first generation, and so on:
//	    badger/       shards' checkpoints
//	    filters/      which ids stand where in EVENTS, by its rules; a cache
//	  generations/1.9f0c…/  of another generation 1, which counts by 9f0c…: moved aside
//	  restoring       there while a backup is being restored into it
const (
	MarkerFile     = "tidemark.json"
	lockFile       = "LOCK"
	BadgerDir      = "badger"
	StreamsDir     = "jetstream"
	KeyFile        = "node.nk" // the seed of the node's key
	FiltersDir     = "filters"
	GenerationsDir = "generations"

	RestoringFile = "restoring" // there while a backup is being restored into the directory

	Format = 1
)

// Marker is what a data directory says of itself, readable without opening it.
type Marker struct {
	Format int    `json:"format"`
	Node   string `json:"node"` // this directory's name among all nodes
	Demo   bool   `json:"demo,omitempty"`

	// Counts are those of the generations that are here.
	Counts map[generations.Number]Noted `json:"counts,omitempty"`
	// Generations is the record that this node last acted on; nil: there was none.
	Generations *generations.Set `json:"generations,omitempty"`

	// Restored is there from a restore to the next start, which finds the EVENTS
	// that was counted, or makes one that goes on from it.
	Restored *Restored `json:"restored,omitempty"`
}

// Noted is what a directory says of the counts of one generation.
type Noted struct {
	// Counting is which generation with that number it is (Generation.CountsBy).
	Counting string `json:"counting,omitempty"`
	// Mixed says that EVENTS no longer has all that was counted here.
	Mixed bool `json:"mixed,omitempty"`
}

// Restored says where a restored directory stands.
type Restored struct {
	Events   time.Time         `json:"events"` // when the EVENTS that was counted was created
	Position pipeline.Position `json:"position,string"`
	Place    string            `json:"place,omitempty"` // where the backup is
}

// Continues is where an EVENTS goes on if it is lost and this directory is what was restored.
func (d *Dir) Continues() (c jetlog.Continues) {
	if d != nil && d.Marker.Restored != nil {
		is := d.Marker.Restored
		c = jetlog.Continues{After: is.Position.Sequence(), Events: is.Events, Place: is.Place}
	}
	return c
}

// Settle records that this directory belongs to the current EVENTS.
func (d *Dir) Settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Marker.Restored == nil {
		return nil
	}
	d.Marker.Restored = nil
	return d.WriteMarker()
}

// Dir is a locked data directory.
type Dir struct {
	Path   string
	mu     sync.Mutex // guards Marker once the directory is opened
	Marker Marker
	lock   *flock.Flock
	made   bool // by this process
	fresh  bool // made, or found empty
}

// Open locks the directory, or makes it. A directory that is in use, of
// another format or with another node's name is refused untouched; node "" takes
// any name.
func Open(path, node string, demo bool) (*Dir, error) { return open(path, node, demo, false) }

// OpenToReplay is Open for a process that throws all counts away: it takes a directory of
// another format too.
func OpenToReplay(path, node string, demo bool) (*Dir, error) { return open(path, node, demo, true) }

func open(path, node string, demo, replay bool) (*Dir, error) {
	d := &Dir{Path: path}
	entries, err := usable(path)
	if errors.Is(err, os.ErrNotExist) {
		d.made = true
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("data_dir %s cannot be made: %w", path, err)
		}
	} else if err != nil {
		return nil, err
	}
	d.fresh = len(entries) == 0
	if err := d.Acquire(); err != nil {
		return nil, err
	}
	if err := d.identify(node, demo, replay); err != nil {
		d.Abandon()
		return nil, err
	}
	return d, nil
}

// usable are the entries of a directory that may be a data directory; os.ErrNotExist where
// there is none.
func usable(path string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("data_dir %s cannot be read: %w", path, err)
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == RestoringFile }):
		return nil, fmt.Errorf("data_dir %s: a restore into it has not come to its end: run 'tidemark restore' again", path)
	case Foreign(entries):
		return nil, fmt.Errorf("data_dir %s holds files but no %s, so it is not tidemark's: choose another data_dir", path, MarkerFile)
	}
	return entries, nil
}

// Look is what Open would say of a directory; it changes nothing. ErrInUse where another
// process uses it.
func Look(path, node string, demo bool) error {
	entries, err := usable(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d := &Dir{Path: path}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == lockFile }) {
		if err := d.Acquire(); err != nil {
			return err
		}
		defer d.lock.Close()
	}
	found, err := d.read()
	if err != nil || !found {
		return err
	}
	return d.refuses(node, demo)
}

// ErrInUse: another process uses the directory.
var ErrInUse = errors.New("is in use by another tidemark process: stop it, or give this one another data_dir")

// Foreign: there is something, and it is not ours. A start that was killed at
// once leaves a lock, and a marker not yet in its place.
func Foreign(entries []os.DirEntry) bool {
	others := false
	for _, e := range entries {
		switch e.Name() {
		case MarkerFile:
			return false
		case lockFile, MarkerFile + kit.NewEnd:
		default:
			others = true
		}
	}
	return others
}

// Acquire locks the directory, which no other process may use then.
func (d *Dir) Acquire() error {
	d.lock = flock.New(filepath.Join(d.Path, lockFile))
	ok, err := d.lock.TryLock()
	if err != nil {
		return fmt.Errorf("data_dir %s cannot be locked: %w", d.Path, err)
	}
	if !ok {
		return fmt.Errorf("data_dir %s %w", d.Path, ErrInUse)
	}
	return nil
}

// identify reads the marker, or writes it into an empty directory.
func (d *Dir) identify(node string, demo, replay bool) error {
	found, err := d.read()
	switch {
	case err != nil:
		return err
	case !found:
		d.Marker = Marker{Format: Format, Node: cmp.Or(node, nuid.Next()), Demo: demo}
		return d.WriteMarker()
	}
	d.made, d.fresh = false, false // somebody was here between the look and the lock
	if err := d.finishDrops(); err != nil {
		return err
	}
	if replay {
		d.Marker.Format = Format
		return d.refusesName(node, demo)
	}
	return d.refuses(node, demo)
}

// read reads the marker, if there is one.
func (d *Dir) read() (found bool, err error) {
	raw, err := os.ReadFile(filepath.Join(d.Path, MarkerFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("data_dir %s: %w", d.Path, err)
	}
	if err := json.Unmarshal(raw, &d.Marker); err != nil {
		return false, fmt.Errorf("data_dir %s: %s is damaged (%w): restore it from a backup, or move the directory away", d.Path, MarkerFile, err)
	}
	return true, nil
}

// refuses says why a node may not use the directory by what the marker says.
func (d *Dir) refuses(node string, demo bool) error {
	_, err := os.Stat(d.Join(BadgerDir)) // there an earlier build has it, whatever format it says
	if d.Marker.Format != Format || err == nil {
		return fmt.Errorf("data_dir %s has format %d and this version reads format %d: 'tidemark repair --replay' counts its EVENTS again; or use the version that wrote it, or another data_dir",
			d.Path, d.Marker.Format, Format)
	}
	return d.refusesName(node, demo)
}

func (d *Dir) refusesName(node string, demo bool) error {
	switch m := d.Marker; {
	case m.Node != node && node != "":
		return fmt.Errorf("data_dir %s was made as node %s and the configuration says node: %s: others know what is in it by that name; set node: %s, or choose another data_dir", d.Path, m.Node, node, m.Node)
	case m.Demo != demo && m.Demo:
		return fmt.Errorf("data_dir %s holds the demo's made-up numbers: choose another data_dir, or run with --demo", d.Path)
	case m.Demo != demo:
		return fmt.Errorf("data_dir %s holds real numbers, the demo would add made-up ones: choose another data_dir", d.Path)
	}
	return nil
}

// Counted says what the counts of a generation are here.
func (d *Dir) Counted(n generations.Number) Noted {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Marker.Counts[n]
}

// Note notes what the counts of a generation are here.
func (d *Dir) Note(n generations.Number, c Noted) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := maps.Clone(d.Marker.Counts)
	if counts == nil {
		counts = make(map[generations.Number]Noted)
	}
	counts[n] = c
	if c == (Noted{}) {
		delete(counts, n)
	}
	d.Marker.Counts = counts
	return d.WriteMarker()
}

// Generations is the record that this node last acted on.
func (d *Dir) Generations() (set generations.Set) {
	if d == nil {
		return set
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Marker.Generations != nil {
		set = *d.Marker.Generations
	}
	return set
}

// NoteGenerations notes it.
func (d *Dir) NoteGenerations(set generations.Set) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.Marker
	d.Marker.Generations = &set
	err := d.WriteMarker()
	if err != nil {
		d.Marker = was
	}
	return err
}

// Of is where a generation has something.
func (d *Dir) Of(n generations.Number, name string) string {
	return filepath.Join(d.Path, GenerationsDir, n.String(), name)
}

// Stored are the generations that something is stored of.
func (d *Dir) Stored() (numbers []generations.Number, err error) {
	entries, err := os.ReadDir(d.Join(GenerationsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && n > 0 {
			numbers = append(numbers, generations.Number(n))
		}
	}
	return numbers, nil
}

// WriteMarker replaces the marker at one stroke.
func (d *Dir) WriteMarker() error {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // the record comes back as it was
	if err := e.Encode(d.Marker); err != nil {
		return err
	}
	path := filepath.Join(d.Path, MarkerFile)
	if err := kit.ReplaceFile(path, 0o666, kit.Bytes(raw.Bytes())); err != nil {
		return fmt.Errorf("data_dir %s cannot be written: %w", d.Path, err)
	}
	return nil
}

// Join is the path of what has a name in the directory.
func (d *Dir) Join(name string) string { return filepath.Join(d.Path, name) }

// Close lets the directory go.
func (d *Dir) Close() error { return d.lock.Close() }

// Abandon lets the directory go, and takes away what this process made of it.
// Only before the streams are open: from then on producers' events may be in it.
func (d *Dir) Abandon() {
	d.lock.Close()
	switch {
	case d.made:
		os.RemoveAll(d.Path)
	case d.fresh:
		for _, name := range []string{MarkerFile, GenerationsDir, StreamsDir, KeyFile, lockFile} {
			os.RemoveAll(d.Join(name))
		}
	}
}
