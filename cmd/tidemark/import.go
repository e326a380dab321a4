package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/cmd/tidemark/importer"
	"github.com/tidemark-io/tidemark/query/client"
)

type importCommand struct {
	File string `arg:"" help:"Events, one JSON object a line, gzip too; - reads standard input."`
	Pack int    `default:"256" help:"Events in a message, 1 to 1024 (${default})."`
	Name string `help:"The import's name (its content gives it one). The same name goes on where it was interrupted."`
	Wait bool   `help:"Return when the node has counted the last event."`
	remote
}

func (importCommand) Help() string {
	return `Publishes events and shows how far it is. An import that was interrupted, at any moment, is run again with the same command: every event is counted once.

EXAMPLE

    tidemark import events.ndjson.gz --wait
    zcat events-*.gz | tidemark import - --name backfill`
}

// packMax is the contract's bound on events in a message.
const packMax = 1024

// Validate is called by kong.
func (i *importCommand) Validate() error {
	if i.Pack < 1 || i.Pack > packMax {
		return fmt.Errorf("--pack %d is out of bounds; allowed: 1 to %d", i.Pack, packMax)
	}
	return i.remote.Validate()
}

func (i *importCommand) Run(t *terminal) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := i.dial(false)
	if err != nil {
		return err
	}
	defer nc.Close()
	result, err := importer.Run(ctx, nc, i.File, t.in, importer.Options{
		Name: i.Name, Pack: i.Pack, Progress: t.err, Logger: slog.New(slog.DiscardHandler),
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s: the same command goes on from there", count(int(result.Skipped+result.Lines), "line"))
	case err != nil:
		return i.explain(err)
	}
	if i.Wait {
		if err := i.explain(waitApplied(ctx, client.New(nc), result.Last)); err != nil {
			return err
		}
	}
	return i.print(t, result)
}

// waitApplied has no bound but the user's patience: a long import takes long
// to count.
func waitApplied(ctx context.Context, c *client.Client, at client.Position) error {
	const tooLate, notReady = 504, 503
	for at > 0 {
		_, err := c.Schema(ctx, client.Wait(at), client.Within(5*time.Second))
		answer, answered := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.New("interrupted: all is in the log, and the node goes on counting")
		case !answered || answer.Code != tooLate && answer.Code != notReady:
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func (i *importCommand) print(t *terminal, r importer.Result) error {
	rate := float64(r.Lines) / max(r.Elapsed.Seconds(), 1e-3)
	if i.JSON {
		return printJSON(t.out, struct {
			Lines    uint64  `json:"lines"`
			Skipped  uint64  `json:"skipped"`
			Packs    uint64  `json:"packs"`
			Bytes    uint64  `json:"bytes"`
			Seconds  float64 `json:"seconds"`
			Position string  `json:"position"`
			Already  bool    `json:"already"`
		}{r.Lines, r.Skipped, r.Packs, r.Bytes, r.Elapsed.Seconds(), r.Last.String(), r.Already})
	}
	if r.Already {
		_, err := fmt.Fprintf(t.out, "imported before: nothing to do, the last event is at position %s\n", r.Last)
		return err
	}
	_, err := fmt.Fprintf(t.out, "%s in %s, %s, %.0f a second; the last is at position %s\n",
		count(int(r.Lines), "line"), count(int(r.Packs), "pack"), r.Elapsed.Round(time.Millisecond), rate, r.Last)
	return err
}
