package node

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
//	  badger/         shards' checkpoints, of the first generation
//	  jetstream/      the embedded server's streams
//	  filters/        which ids stand where in EVENTS, by its rules; a cache
//	  generations/2/  badger/ and filters/ of the second generation, and so on
//	  generations/1.9f0c…/  of another generation 1, which counts by 9f0c…: moved aside
//	  restoring       there while a backup is being restored into it
const (
	markerFile     = "tidemark.json"
	lockFile       = "LOCK"
	badgerDir      = "badger"
	streamsDir     = "jetstream"
	filtersDir     = "filters"
	generationsDir = "generations"

	restoringFile = "restoring" // there while a backup is being restored into the directory

	dataFormat = 2
)

// marker is what a data directory says of itself, readable without opening it.
type marker struct {
	Format int    `json:"format"`
	Node   string `json:"node"` // this directory's name among all nodes
	Demo   bool   `json:"demo,omitempty"`

	noted // of the first generation
	// Later are the counts of the other generations that are here.
	Later map[generations.Number]noted `json:"later,omitempty"`
	// Generations is the record that this node last acted on; nil: there was none.
	Generations *generations.Set `json:"generations,omitempty"`

	// Ended are the generations that were given up in normal order, as this node has
	// seen: what is stored of them may be deleted. The newest endedMax.
	Ended []generations.Number `json:"ended,omitempty"`
	// Aborted are those of them that have never served.
	Aborted []generations.Number `json:"aborted,omitempty"`

	// Restored is there from a restore to the next start, which finds the EVENTS
	// that was counted, or makes one that goes on from it.
	Restored *restored `json:"restored,omitempty"`
}

// noted is what a directory says of the counts of one generation.
type noted struct {
	// Counting is which generation with that number it is (Generation.CountsBy).
	Counting string `json:"counting,omitempty"`
	// Mixed says that EVENTS no longer has all that was counted here.
	Mixed bool `json:"mixed,omitempty"`
}

// restored says where a restored directory stands.
type restored struct {
	Events   time.Time         `json:"events"` // when the EVENTS that was counted was created
	Position pipeline.Position `json:"position,string"`
	Place    string            `json:"place,omitempty"` // where the backup is
}

// continues is where an EVENTS goes on if it is lost and this directory is what
// was restored. A restore may end within a message (--at): its sequence is made up for
// as one of a lost tail is (Guard.Mend), so that its lines are passed over and all that
// comes later has a higher sequence.
func (d *dataDir) continues() (c jetlog.Continues) {
	if d != nil && d.marker.Restored != nil {
		at := d.marker.Restored.Position
		c.After, c.Events, c.Position, c.Place = at.Next()-1, d.marker.Restored.Events, at, d.marker.Restored.Place
	}
	return c
}

// settle records that this directory belongs to the current EVENTS.
func (d *dataDir) settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marker.Restored == nil {
		return nil
	}
	d.marker.Restored = nil
	return d.writeMarker()
}

// dataDir is a locked data directory.
type dataDir struct {
	path   string
	mu     sync.Mutex // guards marker once the directory is opened
	marker marker
	lock   *flock.Flock
	made   bool // by this process
	fresh  bool // made, or found empty
}

// openDataDir locks the directory, or makes it. A directory that is in use, of
// another format or with another node's name is refused untouched; node "" takes
// any name.
func openDataDir(path, node string, demo bool) (*dataDir, error) {
	d := &dataDir{path: path}
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.made = true
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("data_dir %s cannot be made: %w", path, err)
		}
	case err != nil:
		return nil, fmt.Errorf("data_dir %s cannot be read: %w", path, err)
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == restoringFile }):
		return nil, fmt.Errorf("data_dir %s: a restore into it has not come to its end: run 'tidemark restore' again", path)
	case foreign(entries):
		return nil, fmt.Errorf("data_dir %s holds files but no %s, so it is not tidemark's: choose another data_dir", path, markerFile)
	}
	d.fresh = len(entries) == 0
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if err := d.identify(node, demo); err != nil {
		d.abandon()
		return nil, err
	}
	return d, nil
}

// foreign: there is something, and it is not ours. A start that was killed at
// once leaves a lock, and a marker not yet in its place.
func foreign(entries []os.DirEntry) bool {
	others := false
	for _, e := range entries {
		switch e.Name() {
		case markerFile:
			return false
		case lockFile, markerFile + kit.NewEnd:
		default:
			others = true
		}
	}
	return others
}

func (d *dataDir) acquire() error {
	d.lock = flock.New(filepath.Join(d.path, lockFile))
	ok, err := d.lock.TryLock()
	if err != nil {
		return fmt.Errorf("data_dir %s cannot be locked: %w", d.path, err)
	}
	if !ok {
		return fmt.Errorf("data_dir %s is in use by another tidemark process: stop it, or give this one another data_dir", d.path)
	}
	return nil
}

// identify reads the marker, or writes it into an empty directory.
func (d *dataDir) identify(node string, demo bool) error {
	path := filepath.Join(d.path, markerFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.marker = marker{Format: dataFormat, Node: cmp.Or(node, nuid.Next()), Demo: demo}
		return d.writeMarker()
	case err != nil:
		return fmt.Errorf("data_dir %s: %w", d.path, err)
	}
	d.made, d.fresh = false, false // somebody was here between the look and the lock
	if err := json.Unmarshal(raw, &d.marker); err != nil {
		return fmt.Errorf("data_dir %s: %s is damaged (%w): restore it from a backup, or move the directory away", d.path, markerFile, err)
	}
	if err := d.finishDrops(); err != nil {
		return err
	}
	m := d.marker
	switch {
	case m.Format != dataFormat:
		return fmt.Errorf("data_dir %s has format %d and this version reads format %d: use the version that wrote it, or another data_dir", d.path, m.Format, dataFormat)
	case m.Node != node && node != "":
		return fmt.Errorf("data_dir %s was made as node %s and the configuration says node: %s: others know what is in it by that name; set node: %s, or choose another data_dir", d.path, m.Node, node, m.Node)
	case m.Demo != demo && m.Demo:
		return fmt.Errorf("data_dir %s holds the demo's made-up numbers: choose another data_dir, or run with --demo", d.path)
	case m.Demo != demo:
		return fmt.Errorf("data_dir %s holds real numbers, the demo would add made-up ones: choose another data_dir", d.path)
	}
	return nil
}

// counted says what the counts of a generation are here.
func (d *dataDir) counted(n generations.Number) noted {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == generations.First {
		return d.marker.noted
	}
	return d.marker.Later[n]
}

// note notes what the counts of a generation are here.
func (d *dataDir) note(n generations.Number, c noted) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == generations.First {
		d.marker.noted = c
		return d.writeMarker()
	}
	later := maps.Clone(d.marker.Later)
	if later == nil {
		later = make(map[generations.Number]noted)
	}
	later[n] = c
	if c == (noted{}) {
		delete(later, n)
	}
	d.marker.Later = later
	return d.writeMarker()
}

// generations is the record that this node last acted on.
func (d *dataDir) generations() (set generations.Set) {
	if d == nil {
		return set
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marker.Generations != nil {
		set = *d.marker.Generations
	}
	return set
}

// endedMax bounds what is remembered of generations that were given up.
const endedMax = 64

// appendBounded is a copy of numbers with one more, without the oldest beyond endedMax.
func appendBounded(numbers []generations.Number, n generations.Number) []generations.Number {
	numbers = append(slices.Clone(numbers), n)
	return numbers[max(0, len(numbers)-endedMax):]
}

// aborted says whether a generation was given up before it served.
func (d *dataDir) aborted(n generations.Number) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.marker.Aborted, n)
}

// ended are the generations that were given up in normal order, as this node has seen.
func (d *dataDir) ended() []generations.Number {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.marker.Ended)
}

// noteGenerations notes it.
func (d *dataDir) noteGenerations(set generations.Set) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.marker
	if was.Generations != nil {
		for _, n := range was.Generations.Ended(set) {
			d.marker.Ended = appendBounded(d.marker.Ended, n)
			if n == was.Generations.Building {
				d.marker.Aborted = appendBounded(d.marker.Aborted, n)
			}
		}
	}
	// A number comes again where a record was lost: what has it now was not given up.
	named := func(n generations.Number) bool { _, is := set.All[n]; return is }
	d.marker.Ended = slices.DeleteFunc(slices.Clone(d.marker.Ended), named)
	d.marker.Aborted = slices.DeleteFunc(slices.Clone(d.marker.Aborted), named)
	d.marker.Generations = &set
	err := d.writeMarker()
	if err != nil {
		d.marker = was
	}
	return err
}

// of is where a generation has something: the first one in the directory itself.
func (d *dataDir) of(n generations.Number, name string) string {
	if n == generations.First {
		return d.join(name)
	}
	return filepath.Join(d.path, generationsDir, strconv.FormatUint(uint64(n), 10), name)
}

// stored are the generations that something is stored of.
func (d *dataDir) stored() (numbers []generations.Number, err error) {
	for _, name := range []string{badgerDir, filtersDir} {
		if _, err := os.Stat(d.join(name)); err == nil {
			numbers = append(numbers, generations.First)
			break
		}
	}
	entries, err := os.ReadDir(d.join(generationsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 32)
		if err == nil && generations.Number(n) > generations.First {
			numbers = append(numbers, generations.Number(n))
		}
	}
	return numbers, nil
}

// writeMarker replaces the marker at one stroke.
func (d *dataDir) writeMarker() error {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // the record comes back as it was
	if err := e.Encode(d.marker); err != nil {
		return err
	}
	path := filepath.Join(d.path, markerFile)
	if err := kit.ReplaceFile(path, 0o666, kit.Bytes(raw.Bytes())); err != nil {
		return fmt.Errorf("data_dir %s cannot be written: %w", d.path, err)
	}
	return nil
}

func (d *dataDir) join(name string) string { return filepath.Join(d.path, name) }

// close lets the directory go.
func (d *dataDir) close() error { return d.lock.Close() }

// abandon lets the directory go, and takes away what this process made of it.
// Only before the streams are open: from then on producers' events may be in it.
func (d *dataDir) abandon() {
	d.lock.Close()
	switch {
	case d.made:
		os.RemoveAll(d.path)
	case d.fresh:
		for _, name := range []string{markerFile, badgerDir, generationsDir, streamsDir, lockFile} {
			os.RemoveAll(d.join(name))
		}
	}
}
