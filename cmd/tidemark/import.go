package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/cmd/tidemark/importer"
	"github.com/tidemark-io/tidemark/cmd/tidemark/importer/snapshot"
	"github.com/tidemark-io/tidemark/query/client"
)

type importCommand struct {
	File   string `arg:"" optional:"" help:"Events, one JSON object a line, gzip too; - reads standard input."`
	Format string `default:"ndjson" placeholder:"F" help:"What a line of FILE is: ndjson (an event), or csv (counter,id,column,value: a count to set)."`
	Pack   *int   `placeholder:"N" help:"Events in a message, 1 to 1024 (256; of counts 1024)."`
	Name   string `help:"The import's name (its content gives it one). The same name goes on where it was interrupted."`
	Wait   bool   `help:"Return when the node has counted the last event, and say which lines were refused."`
	Force  bool   `help:"Import it even if its first lines are no events."`
	Strict bool   `help:"Wait, and fail when a line was refused."`

	FromRedis string   `placeholder:"URL" help:"Import the counts that a Redis holds: redis://HOST:PORT/DB." group:"Redis:"`
	Pattern   []string `sep:"none" placeholder:"P" help:"Which keys, of which column: 'post:{id}:likes=post.like'. Again for each column." group:"Redis:"`
	Spool     string   `placeholder:"DIR" help:"Where what is read from Redis is kept until it is imported (tidemark/ in the user's cache directory)." group:"Redis:"`
	remote
}

func (importCommand) Help() string {
	return `Publishes events and shows how far it is. An import that was interrupted, at any moment, is run again with the same command: every event is counted once.

--format csv takes lines of counter,id,column,value, with or without that header, and --from-redis the counts of a Redis (docs/from-redis.md says which patterns there are). Each becomes an event that sets the count: publish what happens afterwards after the import. Counts that cannot be read are named and left out; with --strict the exit code is 1 then.

A file that does not begin with events is not imported: the command says what it looks like. --force imports it all the same, and each line that is no event becomes a dead letter.

Input that begins with the lines of an earlier import is taken for the same one, grown: its first lines are skipped, which is said, and with --strict the exit code is 1. --name imports them all the same. A line that is too long for a message is left out, and counts as refused.

--wait says how many lines were refused, of all that the import has brought so far, and the first few with their numbers. Refused lines are kept ('tidemark deadletters'), and the exit code is 0, or 1 with --strict. It is 1 also when a part of the node has stopped.

EXAMPLE

    tidemark import events.ndjson.gz --wait
    tidemark import events.ndjson.gz --strict
    zcat events-*.gz | tidemark import - --name backfill
    tidemark import counts.csv.gz --format csv --wait
    tidemark import --from-redis redis://10.0.0.9:6379/0 --pattern 'post:{id}:likes=post.like' --pattern 'user:{id}=user.*' --wait`
}

const (
	// packMax is the contract's bound on events in a message.
	packMax = 1024

	formatEvents = "ndjson"
	formatCSV    = "csv"
)

// Validate is called by kong.
func (i *importCommand) Validate() error {
	redis := i.FromRedis != ""
	switch {
	case i.Format != formatEvents && i.Format != formatCSV:
		return fmt.Errorf("--format %q is unknown; there are: %s, %s", i.Format, formatEvents, formatCSV)
	case redis && i.File != "":
		return errors.New("a file and --from-redis are both given; give one of them")
	case redis && i.Format != formatEvents:
		return errors.New("--format is of a file, and --from-redis reads none")
	case redis && len(i.Pattern) == 0:
		return errors.New("--from-redis needs a --pattern for each column: 'post:{id}:likes=post.like'")
	case !redis && (len(i.Pattern) > 0 || i.Spool != ""):
		return errors.New("--pattern and --spool are for --from-redis")
	case !redis && i.File == "":
		return errors.New("expected \"<file>\": events, or - for standard input; or --from-redis")
	}
	if i.Pack != nil && (*i.Pack < 1 || *i.Pack > packMax) {
		return fmt.Errorf("--pack %d is out of bounds; allowed: 1 to %d", *i.Pack, packMax)
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
	if i.FromRedis != "" {
		return i.fromRedis(ctx, t, nc)
	}
	result, err := i.importFile(ctx, t, nc, i.File, i.Name)
	if err != nil {
		return err
	}
	return i.finish(ctx, t, nc, result, nil)
}

func (i *importCommand) importFile(ctx context.Context, t *terminal, nc *nats.Conn, file, name string) (importer.Result, error) {
	o := importer.Options{Name: name, Force: i.Force || i.FromRedis != "", Progress: t.err, Logger: slog.New(slog.DiscardHandler)}
	if i.Format == formatCSV || i.FromRedis != "" {
		o.CSV, o.Pack = true, packMax // counts are short
	}
	if i.Pack != nil {
		o.Pack = *i.Pack
	}
	result, err := importer.Run(ctx, nc, file, t.in, o)
	if err != nil && ctx.Err() != nil {
		return result, fmt.Errorf("interrupted after %s: the same command goes on from there", count(int(result.Skipped+result.Lines), "line"))
	}
	return result, i.explain(err)
}

// finish says what came of it, and waits for more of that when asked to.
func (i *importCommand) finish(ctx context.Context, t *terminal, nc *nats.Conn, result importer.Result, faults *snapshot.Faults) error {
	if !i.Wait && !i.Strict {
		return i.print(t, result, faults, nil)
	}
	reached, counted := i.waitCounted(ctx, client.New(nc), result.Last)
	if _, stopped := errors.AsType[stoppedError](counted); counted != nil && !stopped {
		return i.explain(counted)
	}
	refused, err := result.Refused(ctx, nc)
	if err != nil {
		return errors.Join(i.print(t, result, faults, nil), counted, fmt.Errorf("which lines were refused is not known: %w", err))
	}
	if !reached { // lines may be refused yet
		refused.AtLeast = "the node has not looked at all lines"
	}
	if err := i.print(t, result, faults, &refused); err != nil {
		return err
	}
	switch {
	case counted != nil || !i.Strict:
		return counted
	case refused.Lines > 0:
		return errors.New(refusedLines(refused))
	case refused.AtLeast != "":
		return errors.New("whether lines were refused is not known: " + refused.AtLeast)
	case result.Grown:
		return fmt.Errorf("%s skipped: an earlier import began with them", count(int(result.Skipped), "line"))
	case result.Bad != nil:
		return fmt.Errorf("%s left out", count(int(result.Bad.Lines), "line"))
	case faults != nil && faults.Keys > 0:
		return fmt.Errorf("%s left out", count(int(faults.Keys), "key"))
	}
	return nil
}

// stoppedError: so many shards of a node have stopped.
type stoppedError float64

func (s stoppedError) Error() string {
	return fmt.Sprintf("%s of the node stopped (the channels count as one): all is in the log, and not all is counted; its /readyz says why", count(int(s), "shard"))
}

// stepWait is how long a node is asked to wait at once.
const stepWait = 5 * time.Second

// waitCounted has no bound but the user's patience: a long import takes long
// to count. A node that has stopped in part may reach the position all the
// same, or never; once it is reached, all lines have been looked at.
func (i *importCommand) waitCounted(ctx context.Context, c *client.Client, at client.Position) (reached bool, err error) {
	const tooLate, notReady = 504, 503
	for at > 0 {
		figures, err := c.Stats(ctx, client.Wait(at), client.Within(stepWait))
		answer, answered := errors.AsType[*client.Error](err)
		late := answered && (answer.Code == tooLate || answer.Code == notReady)
		if late {
			figures, _ = c.Stats(ctx) // what it says, if it does
		}
		switch stopped := number(figures["tidemark_shards_failed"]); {
		case stopped > 0:
			return err == nil, stoppedError(stopped)
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, errors.New("interrupted: all is in the log, and the node goes on counting")
		case !late:
			return false, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return true, nil
}

func (i *importCommand) print(t *terminal, r importer.Result, faults *snapshot.Faults, refused *importer.Refused) error {
	if i.JSON {
		return printJSON(t.out, importDocument(r, faults, refused))
	}
	var b strings.Builder
	if r.Already {
		fmt.Fprintf(&b, "imported before: nothing to do, the last event is at position %s\n", r.Last)
		fmt.Fprintln(&b, "to import it all the same, give the import another name: --name NAME")
	} else {
		rate := float64(r.Lines) / max(r.Elapsed.Seconds(), 1e-3)
		fmt.Fprintf(&b, "%s in %s, %s, %.0f a second; the last is at position %s\n",
			count(int(r.Lines), "line"), count(int(r.Packs), "pack"), r.Elapsed.Round(time.Millisecond), rate, r.Last)
		if r.Skipped > 0 {
			fmt.Fprintf(&b, "%s before these skipped, for they were imported before; to import them all the same, give the import another name: --name NAME\n",
				count(int(r.Skipped), "line"))
		}
	}
	if r.Bad != nil {
		writeBad(&b, r.Bad)
	}
	if faults != nil && faults.Keys > 0 {
		writeFaults(&b, faults)
	}
	if refused != nil && refused.Lines > 0 {
		writeRefused(&b, refused)
	}
	if refused != nil && refused.AtLeast != "" {
		fmt.Fprintf(&b, "more lines may have been refused: %s\n", refused.AtLeast)
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// writeRefused says what was refused, the first lines one by one.
func writeRefused(b *strings.Builder, refused *importer.Refused) {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(refused.Reasons)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, refused.Reasons[reason]))
	}
	fmt.Fprintf(b, "%s (%s):\n", refusedLines(*refused), strings.Join(reasons, ", "))
	for _, line := range refused.Examples {
		where := fmt.Sprintf("line %d", line.Line)
		if line.Line == 0 {
			where = fmt.Sprintf("event %d", line.Event)
		}
		fmt.Fprintf(b, "  %s: %s\n", where, printable(line.Error, refusedShown))
	}
	if more := refused.Lines - uint64(len(refused.Examples)); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	fmt.Fprintf(b, "they are kept: tidemark deadletters, tidemark deadletters show %d\n", refused.Examples[0].Letter)
}

// refusedShown is how much of a reason a line shows.
const refusedShown = 200

func refusedLines(refused importer.Refused) string {
	text := count(int(refused.Lines), "line") + " refused"
	if refused.AtLeast != "" {
		text = "at least " + text
	}
	return text
}

// importJSON is what --json prints. The refused are of the whole import, and
// only there when it was waited for.
type importJSON struct {
	Import   string            `json:"import"`
	Lines    uint64            `json:"lines"`
	Skipped  uint64            `json:"skipped"`
	Packs    uint64            `json:"packs"`
	Bytes    uint64            `json:"bytes"`
	Seconds  float64           `json:"seconds"`
	Position string            `json:"position"`
	Already  bool              `json:"already"`
	Bad      uint64            `json:"bad,omitempty"`       // lines that are not counter,id,column,value
	BadLines []badRow          `json:"bad_lines,omitempty"` // the first ones
	LeftOut  uint64            `json:"left_out,omitempty"`  // keys of Redis that give no count
	Why      map[string]uint64 `json:"left_out_reasons,omitempty"`
	Keys     []snapshot.Fault  `json:"left_out_keys,omitempty"` // the first ones
	Refused  *uint64           `json:"refused,omitempty"`
	AtLeast  bool              `json:"refused_at_least,omitempty"`
	Reasons  map[string]uint64 `json:"refused_reasons,omitempty"`
	Examples []refusedRow      `json:"refused_lines,omitempty"` // the first ones
}

type badRow struct {
	Line  uint64 `json:"line"`
	Error string `json:"error"`
}

type refusedRow struct {
	Line   uint64 `json:"line,omitempty"` // in the input; left out when it is not known
	Event  uint64 `json:"event"`          // blank lines not counted
	Reason string `json:"reason"`
	Error  string `json:"error"`
	Letter uint64 `json:"letter"` // in DEADLETTER
}

func importDocument(r importer.Result, faults *snapshot.Faults, refused *importer.Refused) importJSON {
	document := importJSON{
		Import: r.Import, Lines: r.Lines, Skipped: r.Skipped, Packs: r.Packs, Bytes: r.Bytes,
		Seconds: r.Elapsed.Seconds(), Position: r.Last.String(), Already: r.Already,
	}
	if r.Bad != nil {
		document.Bad = r.Bad.Lines
		for _, line := range r.Bad.Examples {
			document.BadLines = append(document.BadLines, badRow(line))
		}
	}
	if faults != nil {
		document.LeftOut, document.Why, document.Keys = faults.Keys, faults.Reasons, faults.Examples
	}
	if refused != nil {
		document.Refused, document.AtLeast, document.Reasons = &refused.Lines, refused.AtLeast != "", refused.Reasons
		for _, line := range refused.Examples {
			document.Examples = append(document.Examples, refusedRow(line))
		}
	}
	return document
}
