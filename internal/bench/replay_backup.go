package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// madeBackup is what `tidemark backup --json` prints.
type madeBackup struct {
	Bytes   int64   `json:"bytes"`
	Copied  int64   `json:"copied"`
	Seconds float64 `json:"seconds"`
}

// settle is how long checkpoints get to write what was applied: beside it a backup
// is made of runs, not of events.
const settle = 3 * time.Second

// backups measures backups into a directory, and restores: of some rows, beside
// cp and sync of the same directory; and how much the next backup copies after one
// row of a hundred has changed.
func (b *bench) backups(ctx context.Context) error {
	rows := b.size.rows[len(b.size.rows)-1]
	p, c, err := b.launch(ctx, "log: {level: error}\n")
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	b.say("backup: %s post rows", number(float64(rows)))
	if err := loadRows(ctx, c, 0, rows); err != nil {
		return err
	}
	what := number(float64(rows)) + " post rows"
	made := line{what: "backup of " + what + ", read back", unit: "MB/s", beside: "cp, and cmp"}
	restored := line{what: "restore of " + what, unit: "MB/s", beside: "cp"}
	share := line{what: "bytes of the next backup, 1 % of the rows changed", unit: "of the first", target: atMost(0.05)}
	for round := range b.size.rounds {
		if err := sleepFor(ctx, settle); err != nil {
			return err
		}
		dir, err := os.MkdirTemp(b.dir, "backup-")
		if err != nil {
			return err
		}
		to, data := filepath.Join(dir, "place"), filepath.Join(dir, "data")
		first, err := p.backup(ctx, to)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := p.command(ctx, io.Discard, "restore", to, "--data-dir", data); err != nil {
			return err
		}
		took := time.Since(begun)
		copied, compared, err := copyTree(ctx, to, filepath.Join(dir, "copy"))
		if err != nil {
			return err
		}
		mb := float64(first.Bytes) / 1e6
		made.ours, made.theirs = append(made.ours, mb/first.Seconds), append(made.theirs, mb/(copied+compared).Seconds())
		restored.ours, restored.theirs = append(restored.ours, mb/took.Seconds()), append(restored.theirs, mb/copied.Seconds())
		if err := changeSome(ctx, c, rows, round); err != nil {
			return err
		}
		if err := sleepFor(ctx, settle); err != nil {
			return err
		}
		second, err := p.backup(ctx, to)
		if err != nil {
			return err
		}
		share.ours = append(share.ours, float64(second.Copied)/float64(first.Bytes))
		b.say("backup: %s MB/s, restore %s MB/s, the next one copies %s of it", last(made.ours), last(restored.ours), last(share.ours))
		os.RemoveAll(dir)
	}
	b.table.add(made)
	b.table.add(restored)
	b.table.add(share)
	return nil
}

// changeSome changes every hundredth row.
func changeSome(ctx context.Context, c *client.Client, rows, round int) error {
	return feedLines(ctx, c, func(add func([]byte) error) (err error) {
		var buffer []byte
		for i := 0; i < rows && err == nil; i += 100 {
			buffer = adjustLine(buffer[:0], postID(uint64(i)), "like", int64(round+1))
			err = add(buffer)
		}
		return err
	})
}

// backup makes one with the program's own command.
func (p *program) backup(ctx context.Context, to string) (m madeBackup, err error) {
	var out bytes.Buffer
	if err := p.command(ctx, &out, "backup", to, "--json", "--nats", p.url); err != nil {
		return m, err
	}
	return m, json.Unmarshal(out.Bytes(), &m)
}

// command runs the program with other arguments.
func (p *program) command(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, p.b.binary, args...)
	var errs bytes.Buffer
	c.Stdout, c.Stderr, c.Dir = out, &errs, p.dir // its config.yaml
	if err := c.Run(); err != nil {
		return fmt.Errorf("tidemark %s: %w: %s", args[0], err, errs.Bytes())
	}
	return nil
}

// copyTree copies a directory and makes it durable, and compares it.
func copyTree(ctx context.Context, from, to string) (copied, compared time.Duration, err error) {
	begun := time.Now()
	if out, err := exec.CommandContext(ctx, "sh", "-c", `cp -r "$0" "$1" && sync "$1" && find "$1" -type f -exec sync {} +`, from, to).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("cp: %w: %s", err, out)
	}
	copied = time.Since(begun)
	begun = time.Now()
	if out, err := exec.CommandContext(ctx, "diff", "-r", from, to).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("diff: %w: %s", err, out)
	}
	return copied, time.Since(begun), nil
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
