package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/internal/node/upkeep"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

type backupCommand struct {
	To   backupPlace `arg:"" placeholder:"TO" help:"A directory, or nats:BUCKET, a JetStream object store; it is made where it is not there."`
	Keep int         `default:"0" placeholder:"N" help:"Newest backups to keep there; older ones are removed (0: none is)."`
	remote
}

func (backupCommand) Help() string {
	return `Copies what all nodes have counted, while they run: consistent at one position, and read back before it counts as made. What is there from earlier backups is not copied again.

Needs the rights of a node on the server. config.yaml's backup.to and backup.every make backups by themselves.

EXAMPLE

    tidemark backup /mnt/backups
    tidemark backup nats:BACKUPS --keep 7`
}

// Validate is called by kong.
func (b *backupCommand) Validate() error {
	if b.Keep < 0 {
		return fmt.Errorf("--keep %d is no number of backups", b.Keep)
	}
	return b.remote.Validate()
}

func (b *backupCommand) Run(t *terminal) error {
	return b.work(func(ctx context.Context, nc *nats.Conn) error {
		m, err := upkeep.Backup(ctx, nc, upkeep.BackupOptions{
			To: string(b.To), Keep: b.Keep, Progress: shardProgress(t, b.JSON, "backed up"), Logger: logger(t.err, config.Log{Level: "warn"}),
		})
		if err != nil {
			return err
		}
		if b.JSON {
			return printJSON(t.out, backupLine(m))
		}
		_, err = fmt.Fprintf(t.out, "backup %s of position %d: %s, of which %s are new here, read back; %.1f s\n", m.ID, m.Position, bytesText(uint64(m.Bytes)), bytesText(uint64(m.Copied)), m.Seconds)
		return err
	})
}

// work connects for something that takes as long as it takes.
func (r *remote) work(do func(ctx context.Context, nc *nats.Conn) error) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := r.dial(false)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := r.reach.untilDenied(ctx)
	defer done()
	return r.explain(do(ctx, nc))
}

// shardProgress shows shards as they are done, on a terminal.
func shardProgress(t *terminal, quiet bool, what string) func(done, of int) {
	f := screen(t.err)
	if f == nil || quiet {
		return nil
	}
	return func(done, of int) {
		end := "\r"
		if done == of {
			end = "\n"
		}
		fmt.Fprintf(f, "%d of %d shards %s%s", done, of, what, end)
	}
}

// screen is a writer that is a terminal; nil: it is none.
func screen(w io.Writer) *os.File {
	f, is := w.(*os.File)
	if !is {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}

type backupsCommand struct {
	From backupPlace `arg:"" optional:"" placeholder:"FROM" help:"A directory, or nats:BUCKET."`
	settings
	remote
}

func (backupsCommand) Help() string {
	return `Lists the backups in a place, the newest first; without one, those of config.yaml's backup.to. Each was read back when it was made.

EXAMPLE

    tidemark backups /mnt/backups
    tidemark backups nats:BACKUPS --json`
}

// backupJSON is a backup as --json has it.
type backupJSON struct {
	ID       string  `json:"id"`
	Made     string  `json:"made"`
	Position string  `json:"position"`
	Time     string  `json:"time,omitempty"` // log time
	Shards   int     `json:"shards"`
	Bytes    int64   `json:"bytes"`
	Copied   int64   `json:"copied"`
	Seconds  float64 `json:"seconds"`
}

func backupLine(m *backup.Manifest) backupJSON {
	return backupJSON{m.ID, m.Made.Format(time.RFC3339), m.Position.String(), logTime(m.Time), m.Shards, m.Bytes, m.Copied, m.Seconds}
}

// logTime is Unix milliseconds as people read them; "" for none.
func logTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return backup.TimeText(ms)
}

// backupPlace is where backups are: a directory, or nats:BUCKET.
type backupPlace string

// UnmarshalText is called by kong.
func (p *backupPlace) UnmarshalText(text []byte) error {
	*p = backupPlace(text)
	return config.CheckPlace(string(text))
}

// placeConn connects if a place is on the server; the connection may be nil.
func (r *remote) placeConn(place string) (*nats.Conn, error) {
	if !backup.IsBucket(place) {
		return nil, nil
	}
	return r.dial(false)
}

func (b *backupsCommand) Run(t *terminal) error {
	ctx, stop := interruptible()
	defer stop()
	from := string(b.From)
	if from == "" {
		c, _, err := b.load()
		if err != nil {
			return err
		}
		if from = c.Backup.To; from == "" {
			return usage("name a place: backup.to is empty")
		}
	}
	nc, err := b.placeConn(from)
	if err != nil {
		return err
	}
	if nc != nil {
		defer nc.Close()
		var done context.CancelFunc
		ctx, done = b.reach.untilDenied(ctx)
		defer done()
	}
	all, damaged := node.Backups(ctx, from, nc)
	damaged = b.explain(damaged)
	if damaged != nil && len(all) == 0 {
		return damaged // "no backup" would be said of a place that nobody could look at
	}
	if b.JSON {
		lines := make([]backupJSON, 0, len(all))
		for _, m := range all {
			lines = append(lines, backupLine(m))
		}
		return errors.Join(printJSON(t.out, struct {
			Backups []backupJSON `json:"backups"`
		}{lines}), damaged)
	}
	if damaged != nil {
		return errors.Join(printBackups(t.out, all), damaged)
	}
	return printBackups(t.out, all)
}

func printBackups(to io.Writer, all []*backup.Manifest) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(to, "no backup")
		return err
	}
	out := &table{left: []bool{0: true, 1: true}}
	out.add("ID", "LOG TIME", "POSITION", "SHARDS", "SIZE", "COPIED")
	for _, m := range all {
		out.add(m.ID, logTime(m.Time), m.Position.String(), strconv.Itoa(m.Shards), sizeText(float64(m.Bytes)), sizeText(float64(m.Copied)))
	}
	return out.print(to)
}

// absolute is a place as other processes, elsewhere, name it.
func absolute(place string) string {
	if path, err := filepath.Abs(place); err == nil && !backup.IsBucket(place) {
		return path
	}
	return place
}
