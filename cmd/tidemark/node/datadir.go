package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The data directory:
//
//	data/
//	  tidemark.json   what this directory is: format, shards, this node's name
//	  LOCK            held while a process uses it
//	  badger/         shards' checkpoints
//	  jetstream/      the embedded server's streams
//	  filters/        which ids stand where in EVENTS; a cache
//	  restoring       there while a backup is being restored into it
const (
	markerFile = "tidemark.json"
	lockFile   = "LOCK"
	badgerDir  = "badger"
	streamsDir = "jetstream"
	filtersDir = "filters"

	newSuffix = ".new" // of a marker not yet in its place

	restoringFile = "restoring" // there while a backup is being restored into the directory

	dataFormat = 1
)

// marker is what a data directory says of itself, readable without opening it.
type marker struct {
	Format int    `json:"format"`
	Shards int    `json:"shards"`
	Node   string `json:"node"` // this directory's name among all nodes
	Demo   bool   `json:"demo,omitempty"`
	// CountedBy tells the rules and limits that count here; Mixed says that what is
	// here was not all counted by them.
	CountedBy string `json:"counted_by,omitempty"`
	Mixed     bool   `json:"mixed,omitempty"`

	// Restored is there from a restore to the next start, which finds the EVENTS
	// that was counted, or makes one that goes on from it.
	Restored *restored `json:"restored,omitempty"`
}

// restored says where a restored directory stands.
type restored struct {
	Events   time.Time         `json:"events"` // when the EVENTS that was counted was created
	Position pipeline.Position `json:"position,string"`
}

// continues is where an EVENTS goes on if it is lost and this directory is what
// was restored.
func (d *dataDir) continues() (c jetlog.Continues) {
	if d != nil && d.marker.Restored != nil {
		c.After, c.Events = d.marker.Restored.Position.Sequence(), d.marker.Restored.Events
	}
	return c
}

// settle notes that the directory goes with the EVENTS that is there.
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

// openDataDir locks the directory, or makes it. A directory that is in use,
// of another format, with another number of shards or with another node's name is
// refused untouched; shards 0 takes any number, node "" any name.
func openDataDir(path, node string, shards int, demo bool) (*dataDir, error) {
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
	if err := d.identify(node, shards, demo); err != nil {
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
		case lockFile, markerFile + newSuffix:
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
func (d *dataDir) identify(node string, shards int, demo bool) error {
	path := filepath.Join(d.path, markerFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.marker = marker{Format: dataFormat, Shards: shards, Node: cmp.Or(node, nuid.Next()), Demo: demo}
		return d.writeMarker()
	case err != nil:
		return fmt.Errorf("data_dir %s: %w", d.path, err)
	}
	d.made, d.fresh = false, false // somebody was here between the look and the lock
	if err := json.Unmarshal(raw, &d.marker); err != nil {
		return fmt.Errorf("data_dir %s: %s is damaged (%w): restore it from a backup, or move the directory away", d.path, markerFile, err)
	}
	m := d.marker
	switch {
	case m.Format != dataFormat:
		return fmt.Errorf("data_dir %s has format %d and this version reads format %d: use the version that wrote it, or another data_dir", d.path, m.Format, dataFormat)
	case m.Shards != shards && shards != 0:
		return fmt.Errorf("data_dir %s was made with %d shards and the configuration says %d: set shards: %d, or rebuild with 'tidemark repair --replay'", d.path, m.Shards, shards, m.Shards)
	case m.Node != node && node != "":
		return fmt.Errorf("data_dir %s was made as node %s and the configuration says node: %s: others know what is in it by that name; set node: %s, or choose another data_dir", d.path, m.Node, node, m.Node)
	case m.Demo != demo && m.Demo:
		return fmt.Errorf("data_dir %s holds the demo's made-up numbers: choose another data_dir, or run with --demo", d.path)
	case m.Demo != demo:
		return fmt.Errorf("data_dir %s holds real numbers, the demo would add made-up ones: choose another data_dir", d.path)
	}
	return nil
}

// counted says by which rules is counted here.
func (d *dataDir) counted() (by string, mixed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.marker.CountedBy, d.marker.Mixed
}

// note notes by which rules is counted here.
func (d *dataDir) note(by string, mixed bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marker.CountedBy, d.marker.Mixed = by, mixed
	return d.writeMarker()
}

// writeMarker replaces the marker at one stroke.
func (d *dataDir) writeMarker() error {
	raw, err := json.MarshalIndent(d.marker, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.path, markerFile)
	if err := writeSynced(path+newSuffix, append(raw, '\n')); err != nil {
		return fmt.Errorf("data_dir %s cannot be written: %w", d.path, err)
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return fmt.Errorf("data_dir %s cannot be written: %w", d.path, err)
	}
	return nil
}

// writeSynced writes a file that is whole on disk before it is renamed.
func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
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
		for _, name := range []string{markerFile, badgerDir, streamsDir, lockFile} {
			os.RemoveAll(d.join(name))
		}
	}
}
