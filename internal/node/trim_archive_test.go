package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// killedTrim marks EVENTS as trimmed below a sequence, and removes nothing: the next
// trim finishes that, as far as it may, whatever the events' age.
func (s *site) killedTrim(below uint64, place string) {
	s.T.Helper()
	nc, err := nats.Connect(s.Server.URL)
	if err != nil {
		s.T.Fatal(err)
	}
	streams, err := jetlog.AttachEvents(s.T.Context(), nc, 0, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	_, err = streams.Trim(s.T.Context(), below, place, func(context.Context) error { nc.Close(); return nats.ErrConnectionClosed })
	if err == nil {
		s.T.Fatal("it removed something")
	}
}

// "What decides about deletion is read from the archive itself, not
// from the bucket": the bucket is deleted, and what is not archived is not trimmed.
func TestTrimReadsTheArchive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.Start(s.Config("a", "route hold answer"))
	s.Ready(n)
	random := rand.New(rand.NewPCG(7, 8))
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	s.backup(to, 0)
	if _, err := upkeep.Archive(t.Context(), s.NC, upkeep.ArchiveOptions{Directory: dir, Logger: silent, Progress: func(*archive.Segment) {}}); err != nil {
		t.Fatal(err)
	}
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	s.backup(to, 0)
	js, err := s.NC.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(jetlog.Bucket); err != nil {
		t.Fatal(err)
	}
	trim := func(o upkeep.TrimOptions) (t upkeep.Trimmed, err error) {
		o.Keep, o.From, o.Finish, o.Logger, o.Members = time.Hour, to, true, silent, n.Serving().Inside().Members
		s.Until("shards are assigned again", func() error {
			if t, err = upkeep.Trim(s.T.Context(), s.NC, o); t.Below == 1 {
				return errors.New(t.Bound)
			}
			return nil
		})
		return t, err
	}
	s.Until("the record is there again", func() error {
		set, err := bucket.LoadGenerations(s.T.Context(), s.NC)
		if err == nil && set.Epoch == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	s.killedTrim(16, to)
	if got, err := trim(upkeep.TrimOptions{}); err != nil || got.Below != 11 || !strings.Contains(got.Bound, "not archived in "+dir) {
		t.Errorf("%+v %v", got, err)
	}

	// An EVENTS that goes on from the archived one, after a restore, does not say yet that
	// it is archived: what is configured or given decides.
	restored, err := s.streams().State(t.Context(), jetlog.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	restored.Continues, restored.Archive = jetlog.Continues{After: 15, Events: restored.Created}, ""
	restored.Created = restored.Created.Add(time.Hour)
	bound := backup.Trim{Below: 30}
	if err := upkeep.BoundByArchive(&bound, restored, dir); err != nil || bound.Below != 11 {
		t.Errorf("%+v %v", bound, err)
	}

	// An archive that cannot be looked at decides nothing.
	if err := os.Rename(dir, dir+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	s.killedTrim(16, to)
	if got, err := trim(upkeep.TrimOptions{}); err == nil || got.Messages != 0 || !strings.Contains(err.Error(), "has no archive of it") {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := trim(upkeep.TrimOptions{Archive: dir + ".elsewhere"}); err != nil || got.Below != 11 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := trim(upkeep.TrimOptions{Unarchived: true}); err != nil || got.Below != 16 || got.Messages != 5 {
		t.Errorf("%+v %v", got, err)
	}
}

// A backup that somebody makes elsewhere is a copy: EVENTS is trimmed by those in backup.to.
func TestTrimGoesByBackupTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Backup.To, c.Backup.Every, c.Backup.Keep = filepath.Join(t.TempDir(), "backups"), time.Hour, 3
	n := s.Start(c)
	s.Ready(n)
	random := rand.New(rand.NewPCG(7, 8))
	everything(t, s.NC, bustle(s, random, 10))
	s.Until("a backup is made by itself", func() error {
		all, err := Backups(t.Context(), c.Backup.To, nil)
		if err == nil && len(all) == 0 {
			err = errors.New("none")
		}
		return err
	})
	all, err := Backups(t.Context(), c.Backup.To, nil)
	if err != nil {
		t.Fatal(err)
	}
	below := all[0].From.Next()
	everything(t, s.NC, bustle(s, random, 10))
	s.checkpointed(n)
	elsewhere := filepath.Join(t.TempDir(), "copy")
	s.backup(elsewhere, 0)
	s.killedTrim(20, elsewhere)
	got, err := upkeep.Trim(t.Context(), s.NC, upkeep.TrimOptions{Keep: time.Hour, Finish: true, Logger: silent})
	if err != nil || got.Place != c.Backup.To || got.Below > below {
		t.Errorf("%+v %v, and the backup in backup.to begins at %d", got, err, below)
	}
}
