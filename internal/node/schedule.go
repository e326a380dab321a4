package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// schedule makes backups on time while this process routes, and trims EVENTS after them.
// Its figures begin with the process.
type schedule struct {
	nc      *nats.Conn
	streams *jetlog.Streams
	members *bucket.Members
	config  *config.Config
	owner   jetlog.Owner  // of the backups that count: what serves
	limit   *move.Limiter // of the bytes read from nodes; nil: none
	routes  func() bool
	trouble *kit.Troubles
	log     *slog.Logger

	newest atomic.Int64 // when the newest was made, Unix ms; 0: there is none, or it is not known
	bytes  atomic.Int64 // that the last one copied
	millis atomic.Int64 // that it took
	failed atomic.Uint64
}

const (
	// backupLook is how often it is looked whether a backup is due.
	backupLook = 5 * time.Second
	// backupRetry is after which time one that failed is made again.
	backupRetry = time.Minute
)

// run makes backups on time, as long as this process routes, and trims EVENTS. The
// place says when the last one was made, so a process that begins to route goes on with
// the schedule.
func (s *schedule) run(ctx context.Context) {
	const part = "backup"
	var failed, trimmed time.Time
	ticker := time.NewTicker(backupLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !s.routes() {
			s.newest.Store(0) // the process that routes reports it
			s.trouble.Clear(part)
			continue
		}
		if time.Since(failed) < backupRetry {
			continue
		}
		err := s.once(ctx)
		if keep := s.config.NATS.Streams.Events.Keep; err == nil && keep > 0 && time.Since(trimmed) >= backupRetry {
			trimmed = time.Now()
			var t Trimmed
			if t, err = Trim(ctx, s.nc, TrimOptions{Keep: keep, From: s.config.Backup.To, Archive: s.config.NATS.Streams.Events.Archive, Logger: s.log, members: s.members}); t.Messages > 0 {
				s.log.Info("tidemark: EVENTS is trimmed", "messages", t.Messages, "begins_at", t.Below, "backup", t.Backup)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, backup.ErrInUse):
			s.trouble.Clear(part)
			continue
		}
		failed = time.Now()
		s.failed.Add(1)
		s.trouble.Set(part, err)
		s.log.Error("tidemark: backup failed; trying again", "to", s.config.Backup.To, "error", err)
	}
}

// once makes a backup if one is due.
func (s *schedule) once(ctx context.Context) error {
	b := s.config.Backup
	if s.newest.Load() == 0 {
		place, err := backup.OpenPlace(ctx, b.To, s.nc, true)
		if err != nil {
			return err
		}
		if err := s.streams.SetBackups(ctx, place.String()); err != nil {
			return err
		}
		state, err := s.streams.State(ctx, jetlog.EventsStream)
		if err != nil {
			return err
		}
		all, err := backup.List(ctx, place)
		for _, m := range all {
			if m.Generations.Owner(m.Generation()) != s.owner || !m.Events.Equal(state.Created) {
				continue // it is no base for what serves, or for what EVENTS is now
			}
			s.newest.Store(max(s.newest.Load(), m.Made.UnixMilli()))
		}
		if err != nil {
			s.log.Error("tidemark: backups are damaged", "in", place, "error", err)
		}
	}
	if made := s.newest.Load(); made != 0 && time.Since(time.UnixMilli(made)) < b.Every {
		return nil
	}
	m, err := Backup(ctx, s.nc, BackupOptions{To: b.To, Keep: b.Keep, Limit: s.limit, Logger: s.log, members: s.members})
	if err != nil {
		return err
	}
	s.newest.Store(m.Made.UnixMilli())
	s.bytes.Store(m.Copied)
	s.millis.Store(int64(1000 * m.Seconds))
	s.log.Info("tidemark: backed up", "to", b.To, "id", m.ID, "position", m.Position, "bytes", m.Bytes, "copied", m.Copied, "took", time.Duration(m.Seconds*1e9).Round(time.Millisecond))
	return nil
}

func (s *schedule) figures(c *figures.Collector) {
	c.Gauge("backup_age_seconds", "Since the newest backup in backup.to was made; NaN where none is known, as in those who do not route.", func() float64 {
		if made := s.newest.Load(); made != 0 {
			return time.Since(time.UnixMilli(made)).Seconds()
		}
		return math.NaN()
	})
	c.Gauge("backup_copied_bytes", "That the last backup of this process copied.", func() float64 { return float64(s.bytes.Load()) })
	c.Gauge("backup_seconds", "That the last backup of this process took, reading back included.", func() float64 { return float64(s.millis.Load()) / 1000 })
	c.Counter("backup_errors_total", "Backups that failed; they are tried again.", func() float64 { return float64(s.failed.Load()) })
}
