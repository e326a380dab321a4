package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

type restoreCommand struct {
	From    backupPlace `arg:"" placeholder:"FROM" help:"A directory, or nats:BUCKET, that holds backups."`
	DataDir string      `name:"data-dir" required:"" placeholder:"DIR" help:"The data directory to make, or to put the counts back into."`
	At      string      `placeholder:"POSITION|TIME" help:"As of then: a position, or a log time like 2026-05-01T12:00:00Z; the newest backup as it is otherwise."`
	Archive string      `type:"existingdir" placeholder:"DIR" help:"Archived events, for --at."`
	settings
	remote
}

func (restoreCommand) Help() string {
	return `Makes a data directory of the newest backup, for 'tidemark run' to go on from. All that is read is compared with its checksums. A directory that has counts is refused; one of a stopped node whose generations/ is gone is taken, with what else is in it.

With --at it takes the newest backup at or below that point, and counts the events after it up to there: from --archive, and from EVENTS on the server of --nats. Where all backups are of later points and the events reach back to the first one, it counts all of them up to there, by what the oldest backup counted by. To look at what was then, give the directory to a process with an embedded server of its own.

EXAMPLE

    tidemark restore /mnt/backups --data-dir ./data
    tidemark restore nats:BACKUPS --data-dir ./then --at 2026-05-01T12:00:00Z`
}

func (r *restoreCommand) Run(t *terminal) error {
	ctx, stop := interruptible()
	defer stop()
	c, _, err := r.load()
	if err != nil {
		return err
	}
	c.DataDir = r.DataDir
	at, err := pointOf(r.At)
	if err != nil {
		return err
	}
	if at.Time > 0 && !r.JSON {
		when := time.UnixMilli(at.Time)
		fmt.Fprintf(t.out, "as of %s, which is %s\n", when.Format(time.RFC3339), when.UTC().Format(time.RFC3339))
	}
	nc, err := r.placeConn(string(r.From))
	if err == nil && nc == nil && at.Set() {
		if nc, err = r.dial(false); err != nil && r.Archive != "" {
			nc, err = nil, nil // what the archive has may do
		}
	}
	if err != nil {
		return err
	}
	if nc != nil {
		defer nc.Close()
		var done context.CancelFunc
		ctx, done = r.reach.untilDenied(ctx)
		defer done()
	}
	restored, err := node.Restore(ctx, c, node.RestoreOptions{
		From: string(r.From), At: at, NATS: nc, Archive: r.Archive, Progress: shardProgress(t, r.JSON, "restored"), Logger: logger(t.err, c.Log),
	})
	if err != nil {
		return r.explain(err)
	}
	if r.JSON {
		return printJSON(t.out, struct {
			Backup   string `json:"backup"`
			Position string `json:"position"`
			Time     string `json:"time,omitempty"` // log time
			Bytes    int64  `json:"bytes"`
		}{restored.Backup, restored.Position.String(), logTime(restored.Time), restored.Bytes})
	}
	when := ""
	if restored.Time != 0 { // of an empty log there is none
		when = " (" + logTime(restored.Time) + ")"
	}
	of := "backup " + restored.Backup
	if restored.Backup == "" {
		of = "no backup is that old; counted from the first event on"
	}
	_, err = fmt.Fprintf(t.out, "%s: %s, at position %d%s\n", r.DataDir, of, restored.Position, when)
	return err
}

// pointOf reads --at.
func pointOf(at string) (backup.Point, error) {
	if at == "" {
		return backup.Point{}, nil
	}
	if n, err := strconv.ParseUint(at, 10, 63); err == nil && n > 0 {
		return backup.Point{Position: pipeline.Position(n)}, nil
	}
	when, is := timeOf(at)
	if !is || when.UnixMilli() <= 0 {
		return backup.Point{}, usage("--at %s is neither a position nor a time like 2026-05-01T12:00:00Z", at)
	}
	if when.After(time.Now()) {
		return backup.Point{}, usage("--at %s lies ahead: without --at the newest backup is restored", at)
	}
	return backup.Point{Time: when.UnixMilli()}, nil
}
