package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// pointsMax is how many points in time are restored at the end of a seed.
const pointsMax = 3

// restoresPoints restores as of points in time, from a backup and what came behind it
// in the archive, in EVENTS, or in both: each is exact, and one that is not there is an
// error.
func (w *world) restoresPoints() error {
	place, all, err := w.backups()
	if err != nil || len(all) == 0 {
		return err
	}
	for i := range pointsMax {
		w.alone = w.archives > 0 && w.rand.IntN(3) == 0
		log := w.readable()
		if len(log) == 0 {
			continue
		}
		end := pipeline.EndOf(log[len(log)-1].Sequence)
		first := pipeline.At(1, 0)
		at := backup.Point{Position: first + pipeline.Position(w.rand.Uint64N(uint64(end-first)+1))}
		want := at.Position
		switch i {
		case 0:
			at = backup.Point{Time: log[w.rand.IntN(len(log))].Time.UnixMilli() + w.rand.Int64N(3) - 1}
			next := slices.IndexFunc(log, func(m *Stored) bool { return m.Time.UnixMilli() > at.Time })
			switch want = end; {
			case next == 0:
				continue
			case next > 0:
				want = pipeline.EndOf(log[next].Sequence - 1)
			}
		case 1:
			at.Position, want = end+1+pipeline.Position(w.rand.Uint64N(1<<12)), 0
		}
		if err := w.restoresPoint(place, all, at, want); err != nil {
			return fmt.Errorf("restored as of %v, by the archive alone %v: %w", at, w.alone, err)
		}
	}
	return nil
}

// readable is the log that a restore reads: all that was stored, or what the archive
// has of it and it alone.
func (w *world) readable() []*Stored {
	log := w.stored()
	if !w.alone {
		return log
	}
	last := uint64(0)
	if d, err := w.archive(); err == nil {
		_, last, _ = d.Extent()
	}
	return slices.DeleteFunc(slices.Clone(log), func(m *Stored) bool { return m.Sequence > last })
}

// restoresPoint restores as of a point, which must come to a position; 0: it must fail.
func (w *world) restoresPoint(place backup.Place, all []*backup.Manifest, at backup.Point, want pipeline.Position) error {
	m, err := backup.Choose(context.Background(), place, at)
	if errors.Is(err, backup.ErrNone) {
		if slices.ContainsFunc(all, func(m *backup.Manifest) bool {
			return at.Time == 0 && m.Position <= at.Position || at.Time != 0 && m.Time <= at.Time
		}) {
			return err
		}
		return nil // it is before the first backup
	}
	if err != nil {
		return err
	}
	if want != 0 {
		want = max(want, m.Position) // the archive alone may end before the backup
	}
	p := w.restoredTo(want)
	l, stands, err := w.restored(&p.disk, w.server.NewClient(p.number, nil), place, m, at)
	switch {
	case want == 0 && err == nil:
		err = fmt.Errorf("that is past the end of the log, and it came to %d", stands)
	case want == 0:
		err = nil
	case errors.Is(err, pipeline.ErrGap) && (w.alone || w.begins() > m.Position.Next()):
		err = w.lacks(m)
	case err == nil && stands != want:
		err = fmt.Errorf("from backup %d it came to %d, and not to %d", m.Position, stands, want)
	case err == nil:
		p.node = l.node
		err = w.compare(p, want, true)
		points.Add(1)
	}
	return errors.Join(err, l.close())
}

// lacks is an error unless what comes after a backup can be read nowhere: it was trimmed
// because of a newer one, and not archived.
func (w *world) lacks(m *backup.Manifest) error {
	first, last := w.begins(), uint64(math.MaxUint64)
	if w.alone {
		d, err := w.archive()
		if err != nil {
			return err
		}
		first, last, _ = d.Extent()
	}
	if next := m.Position.Next(); first <= next && next <= last {
		return fmt.Errorf("messages %d to %d can be read, and are said to be missing behind backup %d", first, last, m.Position)
	}
	return nil
}

// behind is the log behind a backup, as internal/node has it for a restore.
func (w *world) behind(m *backup.Manifest) (log backup.Opener, last uint64, err error) {
	var d *archive.Directory
	if w.archives > 0 {
		if d, err = w.archive(); err != nil {
			return nil, 0, err
		}
	}
	state := w.server.State(jetlog.EventsStream)
	if w.alone {
		log, last, err = backup.Behind(m, d, nil, archive.Stream{}, 0)
	} else {
		log, last, err = backup.Behind(m, d, w.server.NewClient(-1, nil).Events(jetlog.RunOptions{MessagesMax: runMax}), streamOf(state), state.Last)
	}
	return log, last, err
}

// mortal is a gate that lets so many calls on, and then kills who calls: what is being
// written then is on disk, or it is not.
type mortal struct {
	left atomic.Int64
	kill context.CancelFunc
	land bool
}

// Pass implements Gate.
func (m *mortal) Pass(ctx context.Context, c *Call) (Fate, error) {
	if m.left.Add(-1) > 0 {
		return Fate{}, ctx.Err()
	}
	m.kill()
	if m.land && c.Land != nil {
		m.land = false
		c.Land()
	}
	return Fate{}, context.Canceled
}

// half is a restore that is killed on its way, unless it was quicker: what it leaves is
// restored again, from the beginning.
func (w *world) half(p *process, m *backup.Manifest) (done bool) {
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	gate := &mortal{kill: kill, land: w.rand.IntN(2) == 0}
	gate.left.Store(1 + w.rand.Int64N(8*int64(len(m.Parts))))
	c := w.server.NewClient(p.number, gate)
	l, _, err := w.restoredBy(ctx, ctx, &p.disk, c, c.Place(&w.vault.place), m, backup.Point{})
	if err = errors.Join(err, l.close()); err == nil && ctx.Err() == nil {
		return true
	}
	w.note("the restore of %d is killed", p.number)
	restoresKilled.Add(1)
	p.disk = Disk{}
	return false
}
