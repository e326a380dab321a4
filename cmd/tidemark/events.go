package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/pipeline/archive"
)

type eventsCommand struct {
	Trim    trimCommand    `cmd:"" help:"Remove old events whose counts a backup has."`
	Archive archiveCommand `cmd:"" help:"Write the events before the newest backup to files."`
}

type trimCommand struct {
	Keep       string      `required:"" placeholder:"AGE" help:"Events younger than this stay: 7d, 12h; 2m at least."`
	From       backupPlace `placeholder:"PLACE" help:"Where the newest backup is (backup.to of the nodes, or where 'tidemark backup' made the last one)."`
	Archive    string      `placeholder:"DIR" help:"Where the archived events are here (the directory of 'tidemark events archive')."`
	Unarchived bool        `help:"Also events that are not archived, though earlier ones are."`
	remote
}

func (trimCommand) Help() string {
	return `Removes from EVENTS what is older than --keep, as far as the newest backup has what it counted, every node that is there has applied it, and it is archived, if anything was archived before. The backup must be there to be looked at, and so must the archive. Without --from the backup is the newest in backup.to of the nodes; where they have none, the last one that was made.

From then on a node that has lost all it counted needs the backup: 'tidemark restore'.

EXAMPLE

    tidemark events trim --keep 7d`
}

func (c *trimCommand) Run(t *terminal) error {
	keep, ok := config.ParseDuration(c.Keep)
	if !ok {
		return usage("--keep %s is not a duration like 7d or 12h", c.Keep)
	}
	if err := upkeep.TrimKeeps(keep); err != nil {
		return usage("--keep %v", err)
	}
	from := string(c.From)
	if from != "" {
		from = absolute(from)
	}
	archived := c.Archive
	if archived != "" {
		archived = absolute(archived)
	}
	return c.work(func(ctx context.Context, nc *nats.Conn) error {
		trimmed, err := upkeep.Trim(ctx, nc, upkeep.TrimOptions{Keep: keep, From: from, Archive: archived, Finish: true, Unarchived: c.Unarchived, Logger: logger(t.err, config.Log{Level: "warn"})})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, trimmed)
		}
		where := ""
		if trimmed.Messages > 0 {
			where = fmt.Sprintf("backup %s in %s has what was before; ", trimmed.Backup, trimmed.Place)
		}
		_, err = fmt.Fprintf(t.out, "%s removed, EVENTS begins with message %d; %s%s\n", count(int(trimmed.Messages), "message"), trimmed.Below, where, trimmed.Bound)
		return err
	})
}

type archiveCommand struct {
	Directory string `arg:"" placeholder:"DIR" help:"The directory; what is there already is not written again."`
	remote
}

func (archiveCommand) Help() string {
	return `Writes the events in EVENTS before the newest backup to files in a directory, those that it does not have: NDJSON, compressed with zstd, and beside it where each event stood in the log.

From then on only events that are archived are trimmed.

EXAMPLE

    tidemark events archive /mnt/events
    zstdcat /mnt/events/*.ndjson.zst | head`
}

func (c *archiveCommand) Run(t *terminal) error {
	begun := time.Now()
	return c.work(func(ctx context.Context, nc *nats.Conn) error {
		messages, bytes := 0, int64(0)
		d, err := upkeep.Archive(ctx, nc, upkeep.ArchiveOptions{
			Directory: absolute(c.Directory), Logger: logger(t.err, config.Log{Level: "warn"}),
			Progress: func(s *archive.Segment) {
				messages, bytes = messages+s.Messages, bytes+s.Bodies.Bytes+s.Index.Bytes
			},
		})
		if err != nil {
			return err
		}
		first, last, _ := d.Extent()
		if c.JSON {
			return printJSON(t.out, struct {
				First    uint64 `json:"first"`
				Last     uint64 `json:"last"`
				Messages int    `json:"messages"`
				Bytes    int64  `json:"bytes"`
			}{first, last, messages, bytes})
		}
		_, err = fmt.Fprintf(t.out, "%s archived in %s, %.1f s; %s has messages %d to %d\n", count(messages, "message"), bytesText(uint64(bytes)), time.Since(begun).Seconds(), c.Directory, first, last)
		return err
	})
}
