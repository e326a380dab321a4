package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Origin is the system that is backed up.
type Origin interface {
	// Export opens an export of a shard, or of the commons, of a node that is up to
	// date with it; each call may be another's. release must be called.
	Export(ctx context.Context, shard pipeline.Shard) (from cold.Source, node string, release func(), err error)
	// Last is the newest message of EVENTS.
	Last(ctx context.Context) (sequence uint64, err error)
	// Open reads EVENTS on after a position.
	Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error)
}

// Options shape a backup.
type Options struct {
	Shards int
	Rules  string // fingerprint of counters and rules
	// Generations is the record, as in Manifest.
	Generations generation.Set
	CountedBy   string // see Manifest
	Mixed       bool
	Continues   Ancestor           // the EVENTS that this one goes on from; the zero: none
	Version     int                // of pipeline.FormatBackups; 0: the newest
	Keep        int                // newest backups to keep; 0: all
	Progress    func(done, of int) // of the shards; nil: none
	Logger      *slog.Logger
}

// exportTries bounds how often a shard is asked for without coming further: each
// time of another node if there is one.
const exportTries = 3

// Make makes a backup of origin, with every event that was stored when it began, in a
// place: what the place has already is read and compared rather than copied. It returns
// when everything was read back. A process that is killed during it leaves objects that
// no manifest names, which the next backup uses or removes. ErrForeign: the place has
// backups of another system (lineage).
func Make(ctx context.Context, p Place, origin Origin, o Options) (*Manifest, error) {
	unlock, err := p.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	begun := time.Now()
	before, damaged := List(ctx, p)
	if damaged != nil {
		o.Logger.Error("backup: there are backups that cannot be read; nothing is removed", "error", damaged)
	}
	j := job{place: p, origin: origin, o: o, put: map[archive.Sum]bool{}, checked: map[archive.Sum]bool{}, m: &Manifest{
		Format: cmp.Or(o.Version, pipeline.FormatBackups.Newest), ID: newID(begun), Made: begun.UTC().Truncate(time.Millisecond), Shards: o.Shards, Rules: o.Rules, Store: cold.Format,
		CountedBy: o.CountedBy, Mixed: o.Mixed, Generations: o.Generations,
	}}
	if j.last, err = origin.Last(ctx); err != nil {
		return nil, err
	}
	if j.there, err = p.List(ctx, objectPrefix); err != nil {
		return nil, err
	}
	for s := range o.Shards + 1 {
		if err := j.shard(ctx, pipeline.Shard(s)); err != nil {
			return nil, err
		}
		if s == 0 {
			if j.m.Before, err = lineage(p, before, j.m.Events, o.Continues); err != nil {
				return nil, err
			}
		}
		if o.Progress != nil {
			o.Progress(s+1, o.Shards+1)
		}
	}
	if err := j.log(ctx); err != nil {
		return nil, err
	}
	for _, bytes := range j.m.Objects() {
		j.m.Bytes += bytes
	}
	j.m.Seconds = time.Since(begun).Seconds()
	if err := j.m.check(); err != nil {
		return nil, err
	}
	if err := j.seal(ctx); err != nil {
		return nil, err
	}
	if damaged == nil && o.Keep > 0 {
		if err := prune(ctx, p, o.Keep, o.Logger); err != nil {
			o.Logger.Error("backup: it is made, and old ones were not removed; the next one tries again", "error", err)
		}
	}
	return j.m, nil
}

// newID sorts by time.
func newID(now time.Time) string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102T150405.000Z") + "-" + hex.EncodeToString(b[:])
}

// job makes one backup.
type job struct {
	place   Place
	origin  Origin
	o       Options
	m       *Manifest
	last    uint64               // message of EVENTS, when it began: the backup has what that counts
	there   map[string]int64     // objects that the place has
	put     map[archive.Sum]bool // stored by this job
	checked map[archive.Sum]bool // read back, and good
	dict    cold.Dictionary      // the longest so far
}

// shard backs up a shard, of another node where one fails.
func (j *job) shard(ctx context.Context, s pipeline.Shard) error {
	var faults []error
	for len(faults) < exportTries {
		had := len(j.put) + len(j.checked)
		err := j.tryShard(ctx, s)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		j.o.Logger.Warn("backup: a shard could not be copied; trying again", "shard", s, "error", err)
		further := len(j.put)+len(j.checked) > had
		if !further || errors.Is(err, errIdentity) {
			faults = append(faults, err)
		}
		if errors.Is(err, errIdentity) {
			break
		}
	}
	return fmt.Errorf("backup: shard %d: %w", s, errors.Join(faults...))
}

// errIdentity: shards of different systems.
var errIdentity = errors.New("it does not go with the other shards")

func (j *job) tryShard(ctx context.Context, s pipeline.Shard) error {
	from, node, release, err := j.origin.Export(ctx, s)
	if err != nil {
		return err
	}
	defer release()
	m := from.Manifest()
	if s == 0 {
		j.m.Events = m.Streams.Events
	}
	switch {
	case m.Shard != s || m.Shards != j.o.Shards || m.Format != cold.Format:
		return fmt.Errorf("%w: node %s gives shard %d of %d in format %d", errIdentity, node, m.Shard, m.Shards, m.Format)
	case !m.Streams.Events.Equal(j.m.Events):
		return fmt.Errorf("%w: node %s counts the EVENTS created at %v, others that of %v", errIdentity, node, m.Streams.Events, j.m.Events)
	}
	if j.dict, err = cold.Union(j.dict, m.Dictionary); err != nil {
		return fmt.Errorf("%w: node %s: %w", errIdentity, node, err)
	}
	j.m.Store = cold.Format
	part := Part{Shard: s, Node: node, Dictionary: m.Dictionary, State: m.State}
	part.State.Sequence = 0 // DELTAS may be another by the time that it is restored
	fault := func(n int, err error) error {
		return fmt.Errorf("run %d of %d from node %s: %w", n+1, len(m.Runs), node, err)
	}
	// All that is asked of the node comes first: it gives up an export that is not
	// read for a while, and reading back what the place has takes long.
	for n, info := range m.Runs {
		sum, err := from.Sum(ctx, n)
		if err != nil {
			return fault(n, err)
		}
		part.Runs = append(part.Runs, Run{info, archive.Sum(sum)})
	}
	for n, r := range part.Runs {
		if err := j.store(ctx, r.Object, r.Bytes, func() io.Reader { return &runReader{ctx: ctx, from: from, run: n, bytes: r.Bytes} }); err != nil {
			return fault(n, err)
		}
	}
	var damaged []error // the next try copies them
	for n, r := range part.Runs {
		if err := j.compare(ctx, r.Object, r.Bytes); err != nil {
			damaged = append(damaged, fault(n, err))
		}
	}
	if len(damaged) > 0 {
		return errors.Join(damaged...)
	}
	j.m.Parts = append(j.m.Parts, part)
	return nil
}

// runReader reads a run from its beginning to its end.
type runReader struct {
	ctx       context.Context
	from      cold.Source
	run       int
	at, bytes int64
}

func (r *runReader) Read(b []byte) (int, error) {
	if r.at == r.bytes {
		return 0, io.EOF
	}
	n, err := r.from.Read(r.ctx, r.run, b[:min(int64(len(b)), r.bytes-r.at)], r.at)
	r.at += int64(n)
	return n, err
}

// log backs up the events between where the shards stand.
func (j *job) log(ctx context.Context) error {
	m := j.m
	m.From = pipeline.PositionMax
	last := j.last
	for _, p := range m.Parts {
		m.From, last = min(m.From, p.State.Applied), max(last, p.State.Applied.Sequence())
		m.Time = max(m.Time, p.State.Time)
	}
	if last == 0 { // nothing has happened yet
		m.Position = m.From
		return nil
	}
	if m.Position = pipeline.EndOf(last); m.From == m.Position {
		return nil
	}
	source, err := j.origin.Open(ctx, m.From)
	if err != nil {
		return fmt.Errorf("backup: the events after position %d, where a shard stands: %w", m.From, err)
	}
	defer source.Close()
	return archive.Write(ctx, source, m.Format, m.Events, m.From.Next(), last, func(s archive.Segment, bodies, index []byte) error {
		for _, f := range []struct {
			archive.File
			data []byte
		}{{s.Bodies, bodies}, {s.Index, index}} {
			if err := j.keep(ctx, f.Sum, f.Bytes, func() io.Reader { return newBytesReader(f.data) }); err != nil {
				return fmt.Errorf("backup: messages %d to %d: %w", s.First, s.Last, err)
			}
		}
		m.Time = max(m.Time, s.Time)
		m.Log = append(m.Log, s)
		return nil
	})
}

// keep has the place hold an object, whose content is known by its sum, and reads
// it back.
func (j *job) keep(ctx context.Context, sum archive.Sum, bytes int64, content func() io.Reader) error {
	if err := j.store(ctx, sum, bytes, content); err != nil {
		return err
	}
	err := j.compare(ctx, sum, bytes)
	if _, there := j.there[object(sum)]; err == nil || there || j.put[sum] {
		return err
	}
	if err := j.store(ctx, sum, bytes, content); err != nil { // that of an earlier backup was damaged
		return err
	}
	return j.compare(ctx, sum, bytes)
}

// store has the place hold an object, as it says.
func (j *job) store(ctx context.Context, sum archive.Sum, bytes int64, content func() io.Reader) error {
	name := object(sum)
	if size, there := j.there[name]; there && size == bytes {
		return nil
	}
	if err := j.place.Put(ctx, name, &summed{from: content(), hash: sha256.New(), want: sum}); err != nil {
		return err
	}
	j.m.Copied += bytes
	j.put[sum], j.there[name] = true, bytes
	return nil
}

// compare reads an object back, once. One that is damaged the place does not have.
func (j *job) compare(ctx context.Context, sum archive.Sum, bytes int64) error {
	if j.checked[sum] {
		return nil
	}
	err := verify(ctx, j.place, sum, bytes)
	switch {
	case err == nil:
		j.checked[sum] = true
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrMissing):
		delete(j.there, object(sum))
		if !j.put[sum] {
			j.o.Logger.Error("backup: an object that earlier backups name is damaged; it is copied again", "object", object(sum), "error", err)
		}
	}
	return err
}

// verify reads an object and compares it with its name.
func verify(ctx context.Context, p Place, sum archive.Sum, bytes int64) error {
	r, err := p.Get(ctx, object(sum))
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, r)
	got := archive.Sum(h.Sum(nil))
	if err == nil && got == sum && n == bytes {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s in %s: its %d bytes are not the %d that were written, their SHA-256 is %s (%v)", ErrCorrupt, object(sum), p, n, bytes, got, err)
}

// summed is a reader that fails at its end where the bytes are not those wanted.
type summed struct {
	from io.Reader
	hash hash.Hash
	want archive.Sum
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.hash.Write(b[:n])
	if err == io.EOF {
		if got := archive.Sum(s.hash.Sum(nil)); got != s.want {
			return n, fmt.Errorf("%w on the way: the SHA-256 is %s, and was %s", ErrCorrupt, got, s.want)
		}
	}
	return n, err
}

// seal writes the manifest.
func (j *job) seal(ctx context.Context) error {
	b, err := archive.Seal(j.m)
	if err == nil && len(b) > manifestBytesMax {
		err = fmt.Errorf("the manifest has %d bytes, and %d at most can be read", len(b), manifestBytesMax)
	}
	if err == nil {
		err = j.place.Put(ctx, manifestPrefix+j.m.ID+manifestEnd, newBytesReader(b))
	}
	if err == nil {
		_, err = Load(ctx, j.place, j.m.ID)
	}
	if err != nil {
		return fmt.Errorf("backup %s: %w", j.m.ID, err)
	}
	return nil
}
