package upkeep

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

// Schedule makes backups on time while this process routes, and trims EVENTS after them.
// Its figures begin with the process. Set all fields but the figures before Run.
type Schedule struct {
	Nc      *nats.Conn
	Streams *jetlog.Streams
	Members *bucket.Members
	Config  *config.Config
	Owner   jetlog.Owner  // of the backups that count: what serves
	Limit   *move.Limiter // of the bytes read from nodes; nil: none
	Routes  func() bool
	Trouble *kit.Troubles
	Log     *slog.Logger

	Newest atomic.Int64 // when the newest was made, Unix ms; 0: there is none, or it is not known
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

// Run makes backups on time until ctx ends, as long as this process routes, and trims
// EVENTS. When the last backup was made is read from the place of backups: a process that
// begins to route goes on with the schedule.
func (s *Schedule) Run(ctx context.Context) {
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
		if !s.Routes() {
			s.Newest.Store(0) // the process that routes reports it
			s.Trouble.Clear(part)
			continue
		}
		if time.Since(failed) < backupRetry {
			continue
		}
		err := s.once(ctx)
		if keep := s.Config.NATS.Streams.Events.Keep; err == nil && keep > 0 && time.Since(trimmed) >= backupRetry {
			trimmed = time.Now()
			var t Trimmed
			if t, err = Trim(ctx, s.Nc, TrimOptions{Keep: keep, From: s.Config.Backup.To, Archive: s.Config.NATS.Streams.Events.Archive, Logger: s.Log, Members: s.Members}); t.Messages > 0 {
				s.Log.Info("tidemark: EVENTS is trimmed", "messages", t.Messages, "begins_at", t.Below, "backup", t.Backup)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, backup.ErrInUse):
			s.Trouble.Clear(part)
			continue
		}
		failed = time.Now()
		s.failed.Add(1)
		s.Trouble.Set(part, err)
		s.Log.Error("tidemark: backup failed; trying again", "to", s.Config.Backup.To, "error", err)
	}
}

// once makes a backup if one is due.
func (s *Schedule) once(ctx context.Context) error {
	b := s.Config.Backup
	if s.Newest.Load() == 0 {
		place, err := backup.OpenPlace(ctx, b.To, s.Nc, true)
		if err != nil {
			return err
		}
		if err := s.Streams.SetBackups(ctx, place.String()); err != nil {
			return err
		}
		state, err := s.Streams.State(ctx, jetlog.EventsStream)
		if err != nil {
			return err
		}
		all, err := backup.List(ctx, place)
		for _, m := range all {
			if m.Generations.Owner(m.Generation()) != s.Owner || !m.Events.Equal(state.Created) {
				continue // it is no base for what serves, or for what EVENTS is now
			}
			s.Newest.Store(max(s.Newest.Load(), m.Made.UnixMilli()))
		}
		if err != nil {
			s.Log.Error("tidemark: backups are damaged", "in", place, "error", err)
		}
	}
	if made := s.Newest.Load(); made != 0 && time.Since(time.UnixMilli(made)) < b.Every {
		return nil
	}
	m, err := Backup(ctx, s.Nc, BackupOptions{To: b.To, Keep: b.Keep, Limit: s.Limit, Logger: s.Log, members: s.Members})
	if err != nil {
		return err
	}
	s.Newest.Store(m.Made.UnixMilli())
	s.bytes.Store(m.Copied)
	s.millis.Store(int64(1000 * m.Seconds))
	s.Log.Info("tidemark: backed up", "to", b.To, "id", m.ID, "position", m.Position, "bytes", m.Bytes, "copied", m.Copied, "took", time.Duration(m.Seconds*1e9).Round(time.Millisecond))
	return nil
}

// Figures adds the figures of the schedule to a collector.
func (s *Schedule) Figures(c *figures.Collector) {
	c.Gauge("backup_age_seconds", "Since the newest backup in backup.to was made; NaN where none is known, as in those who do not route.", func() float64 {
		if made := s.Newest.Load(); made != 0 {
			return time.Since(time.UnixMilli(made)).Seconds()
		}
		return math.NaN()
	})
	c.Gauge("backup_copied_bytes", "That the last backup of this process copied.", func() float64 { return float64(s.bytes.Load()) })
	c.Gauge("backup_seconds", "That the last backup of this process took, reading back included.", func() float64 { return float64(s.millis.Load()) / 1000 })
	c.Counter("backup_errors_total", "Backups that failed; they are tried again.", func() float64 { return float64(s.failed.Load()) })
}
