package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

const (
	manifestPrefix   = "backups/" // + id + ".json"
	manifestEnd      = ".json"
	objectPrefix     = "objects/" // + SHA-256
	manifestBytesMax = 64 << 20
)

// Manifest says what a backup is. It is written once all that it names was read
// back and compared, so whatever has one is verified. It never changes.
type Manifest struct {
	Format int       `json:"format"` // version of pipeline.FormatBackups
	ID     string    `json:"id"`     // sorts by the time that it was made
	Made   time.Time `json:"made"`   // by the clock of who made it

	Events time.Time  `json:"events"`           // when EVENTS was created: which system it is of
	Before []Ancestor `json:"before,omitempty"` // what that goes on from, the newest first
	Shards int        `json:"shards"`
	Rules  string     `json:"rules"` // fingerprint of counters and rules
	// Generations is the record of which generation this is of, with nothing but that:
	// what is restored counts by it.
	Generations generation.Set `json:"generations"`
	Store       int            `json:"store"` // format of the runs

	// CountedBy has the rules and limits that counted, "" where it is not known;
	// Mixed says that not all was counted by them.
	CountedBy string `json:"counted_by,omitempty"`
	Mixed     bool   `json:"mixed,omitempty"`

	From     pipeline.Position `json:"from,string"`     // where the shard that stands lowest does
	Position pipeline.Position `json:"position,string"` // what is restored stands here
	Time     int64             `json:"time"`            // log time there, Unix milliseconds

	Parts []Part            `json:"parts"` // by shard; the last is the commons
	Log   []archive.Segment `json:"log"`   // covers all after From up to Position

	Bytes   int64   `json:"bytes"`   // of all objects, each once
	Copied  int64   `json:"copied"`  // of these, that the place did not have
	Seconds float64 `json:"seconds"` // it took, reading back included

	none error // of one that stands for nothing: why no backup does
}

// Part is a shard.
type Part struct {
	Shard      pipeline.Shard  `json:"shard"`
	Node       string          `json:"node"` // from where
	Dictionary cold.Dictionary `json:"dictionary"`
	State      cold.State      `json:"state"`
	Runs       []Run           `json:"runs"` // newest first
}

// Run is a run of a shard, and which object it is.
type Run struct {
	run.Info
	Object archive.Sum `json:"object"`
}

// Nothing is true of what is no backup, and stands where there is none: see Choose.
func (m *Manifest) Nothing() bool { return m.none != nil }

// Generation is which one it is of.
func (m *Manifest) Generation() generation.Number { return m.Generations.Serving }

func object(sum archive.Sum) string { return objectPrefix + sum.String() }

// Objects are the names of all objects and their sizes.
func (m *Manifest) Objects() map[string]int64 {
	out := map[string]int64{}
	for _, p := range m.Parts {
		for _, r := range p.Runs {
			out[object(r.Object)] = r.Bytes
		}
	}
	for _, s := range m.Log {
		out[object(s.Bodies.Sum)], out[object(s.Index.Sum)] = s.Bodies.Bytes, s.Index.Bytes
	}
	return out
}

// check says what is wrong with a manifest, wherever it comes from.
func (m *Manifest) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: the manifest: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
	switch {
	case !pipeline.FormatBackups.Reads(m.Format):
		return fmt.Errorf("backup: it has version %d, and this program reads versions %d to %d: use the program that made it, or a newer one", m.Format, pipeline.FormatBackups.Oldest, pipeline.FormatBackups.Newest)
	case m.Store != cold.Format:
		return fmt.Errorf("backup: its runs have version %d, which this program does not read: use the program that made it", m.Store)
	case m.Shards < 1 || m.Shards > pipeline.ShardsMax || len(m.Parts) != m.Shards+1:
		return bad("%d parts of %d shards", len(m.Parts), m.Shards)
	case m.From > m.Position || m.Position > pipeline.PositionMax:
		return bad("from position %d to %d", m.From, m.Position)
	case m.Generations.Fault() != nil || m.Generations.Beside() != 0:
		return bad("of the generations it says that: %v", cmp.Or(m.Generations.Fault(), fmt.Errorf("there is one beside generation %d", m.Generations.Serving)))
	case m.Events.IsZero():
		return bad("it does not say of which EVENTS it is")
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if int(p.Shard) != i || p.State.Applied < m.From || p.State.Applied > m.Position {
			return bad("part %d is shard %d, at position %d", i, p.Shard, p.State.Applied)
		}
	}
	if err := archive.Chain(m.Log); err != nil {
		return err
	}
	switch n := len(m.Log); {
	case n == 0 && m.From == m.Position:
	case n == 0, m.Log[0].First > m.From.Next(), pipeline.EndOf(m.Log[n-1].Last) != m.Position, !m.Log[0].Events.Equal(m.Events):
		return bad("its events do not lead from position %d to %d", m.From, m.Position)
	}
	return nil
}

// Load reads the manifest of a backup and checks it.
func Load(ctx context.Context, p Place, id string) (*Manifest, error) {
	m := new(Manifest)
	b, err := read(ctx, p, manifestPrefix+id+manifestEnd, manifestBytesMax)
	if err == nil {
		err = archive.Unseal(b, m)
	}
	if err == nil {
		err = m.check()
	}
	if err == nil && m.ID != id {
		err = fmt.Errorf("%w: it is %s by its manifest", ErrCorrupt, m.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("backup %s in %s: %w", id, p, err)
	}
	return m, nil
}

// List reads the manifests that a place has, the newest position first. An error
// is of those that cannot be read; the others are there besides.
func List(ctx context.Context, p Place) ([]*Manifest, error) {
	names, err := p.List(ctx, manifestPrefix)
	if err != nil {
		return nil, err
	}
	var out []*Manifest
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		id, is := strings.CutSuffix(strings.TrimPrefix(name, manifestPrefix), manifestEnd)
		if !is {
			continue
		}
		m, err := Load(ctx, p, id)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(b.Position, a.Position), cmp.Compare(b.ID, a.ID))
	})
	return out, errors.Join(faults...)
}
