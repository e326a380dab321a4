package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Point is up to where something is to be restored. The zero value is the newest
// backup as it is.
type Point struct {
	Position pipeline.Position // 0: not by position
	Time     int64             // log time, Unix milliseconds; 0: not by time
}

// TimeText is log time, in Unix milliseconds, as people read it.
func TimeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Set says whether a point was named.
func (at Point) Set() bool { return at != Point{} }

func (at Point) String() string {
	if at.Time != 0 {
		return "log time " + TimeText(at.Time)
	}
	return fmt.Sprintf("position %d", at.Position)
}

// Choose finds the newest backup at or below a point. Where all are of later ones it is
// what stands for nothing (Manifest.Nothing): to count from the first event may do.
// ErrNone: there is none. Of the newest of all it is an error that a manifest is damaged:
// that may be the newest.
func Choose(ctx context.Context, p Place, at Point) (*Manifest, error) {
	all, damaged := List(ctx, p)
	if damaged != nil && !at.Set() {
		return nil, fmt.Errorf("%w: which backup is the newest is not known: name a point (--at), or move the damaged manifest away", damaged)
	}
	position, time := at.Position, at.Time
	if position == 0 {
		position = math.MaxUint64
	}
	if time == 0 {
		time = math.MaxInt64
	}
	for _, m := range all {
		if m.Position <= position && m.Time <= time {
			return m, nil
		}
	}
	if at.Set() && len(all) > 0 {
		return nothing(p, at, all[len(all)-1]), nil
	}
	return nil, errors.Join(fmt.Errorf("%w in %s", ErrNone, p), damaged)
}

// nothing is what stands where the oldest backup of a place is of a later point: counted
// by the same, of the same EVENTS, before its first event.
func nothing(p Place, at Point, oldest *Manifest) *Manifest {
	m := *oldest
	m.ID, m.Mixed, m.From, m.Position, m.Time = "", false, 0, 0, 0
	m.Parts, m.Log, m.Bytes = make([]Part, len(oldest.Parts)), nil, 0
	m.none = fmt.Errorf("%w at or below %s in %s: the oldest is %s, at position %d, log time %s", ErrNone, at, p, oldest.ID, oldest.Position, TimeText(oldest.Time))
	return &m
}

// Verify reads all objects of a backup and compares them with their names.
func Verify(ctx context.Context, p Place, m *Manifest) error {
	for name, bytes := range m.Objects() {
		var sum archive.Sum
		if err := sum.UnmarshalText([]byte(name[len(objectPrefix):])); err != nil {
			return err
		}
		if err := verify(ctx, p, sum, bytes); err != nil {
			return fmt.Errorf("backup %s: %w", m.ID, err)
		}
	}
	return nil
}

// Source is a shard of a backup, for [cold.Import], which checks all that it
// reads. Not for concurrent use; Close must follow.
type Source struct {
	place    Place
	part     *Part
	manifest *cold.Manifest
	open     io.ReadCloser // of a run; nil: none
	run      int
	at       int64
}

var _ cold.Source = (*Source)(nil)

// Shard opens a shard of a backup, or the commons.
func Shard(p Place, m *Manifest, shard pipeline.Shard) *Source {
	part := &m.Parts[shard]
	s := &Source{place: p, part: part, manifest: &cold.Manifest{
		Format: m.Store, Shards: m.Shards, Shard: shard, Streams: cold.Streams{Events: m.Events}, Dictionary: part.Dictionary, State: part.State,
	}}
	for _, r := range part.Runs {
		s.manifest.Runs = append(s.manifest.Runs, r.Info)
	}
	return s
}

// Manifest implements [cold.Source].
func (s *Source) Manifest() *cold.Manifest { return s.manifest }

// Sum implements [cold.Source].
func (s *Source) Sum(_ context.Context, run int) (cold.Sum, error) {
	return cold.Sum(s.part.Runs[run].Object), nil
}

// Read implements [cold.Source]. Bytes in order cost nothing but themselves.
func (s *Source) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	name := object(s.part.Runs[run].Object)
	if s.open == nil || s.run != run || s.at > at {
		s.Close()
		var err error
		if s.open, err = s.place.Get(ctx, name); err != nil {
			return 0, err
		}
		s.run, s.at = run, 0
	}
	if n, err := io.CopyN(io.Discard, s.open, at-s.at); err != nil {
		return 0, fmt.Errorf("%w: %s in %s ends at byte %d: %w", ErrCorrupt, name, s.place, s.at+n, err)
	}
	n, err := io.ReadFull(s.open, b)
	s.at = at + int64(n)
	if n == 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return n, fmt.Errorf("%w: %s in %s ends at byte %d: %w", ErrCorrupt, name, s.place, s.at, err)
	}
	return n, nil
}

// Close closes it; nothing is lost.
func (s *Source) Close() {
	if s.open != nil {
		s.open.Close()
		s.open = nil
	}
}

// Log reads the events of a backup, from where its lowest shard stands to its
// position.
func Log(p Place, m *Manifest) (*archive.Source, error) {
	return archive.NewSource(m.Log, m.From, func(ctx context.Context, s *archive.Segment) (bodies, index []byte, err error) {
		if bodies, err = read(ctx, p, object(s.Bodies.Sum), s.Bodies.Bytes); err == nil {
			index, err = read(ctx, p, object(s.Index.Sum), s.Index.Bytes)
		}
		return bodies, index, err
	})
}
