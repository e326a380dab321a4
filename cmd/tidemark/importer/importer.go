// Package importer brings a file of events into the log, exactly once however
// often it is interrupted.
//
// The way of a line: input.go reads it (gzip or not, file or pipe), cut.go
// puts it into a pack, send.go publishes packs in order and takes their
// acknowledgements, record.go keeps in the bucket how far that has come, and
// stored.go finds out, after an interruption, what the log has beyond the
// record. Lines are not looked into: those that are no events become dead
// letters where all others do, and refused.go finds them there. Of a file of
// CSV, csv.go makes the lines first; what it cannot read it leaves out and names.
//
// # Exactly once
//
// Three things make a second run continue the first:
//
//	I. Where a pack begins and ends follows from the lines alone and from what
//	   the record says (its bounds; the line at which an input once ended), so
//	   every run, and every attempt in a run, cuts the same packs.
//	II. A pack says in its headers which lines it holds and what the hash of
//	   all lines up to its last one is. Its Nats-Msg-Id is made of the same.
//	III. The record is written before the first pack is sent, and names an
//	   EVENTS sequence up to which it has everything. All other packs of the import stand after that sequence and can be read back.
//
// So a run skips the lines that the record counts, reads back the headers after the
// record's sequence, and sends the packs that are not there. The hash finds a file that
// is not the one that was begun. What was still on its way from an interrupted run
// while its successor read back has the same Nats-Msg-Id as the successor's own pack:
// the stream keeps one of them, in its window of duplicates (two minutes), within which
// such a message arrives or never does.
//
// The record also says which process is at work (see [record]), so that two do not
// import the same at once. Should it come to that all the same, because one
// was taken for dead, they send the same packs in the same order with the same
// ids, and the stream keeps one of each.
//
// # Order
//
// Log order is the order of the file. Packs go out over a connection of their own that
// is never mended: with its loss, what the log has of it is the beginning of what was
// sent, and a new one goes on after that. (A connection that reconnects would send what
// it had gathered since then after packs that were lost.) A hole is only possible where
// a pack is refused or lost and a later one is not: a full stream that has room for a
// smaller one, a cluster that changes its leader. Counts stay exact then; the lines of
// the hole come late in the log, and a warning says which.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// packDefault is how many lines go into a message: beyond it the gain is small.
const packDefault = 256

const (
	retryWaitMin = 100 * time.Millisecond
	retryWaitMax = 2 * time.Second
	// patience is how long a server may be away. Short enough for its user to be still at
	// the desk: nothing is lost by running it again.
	patience = time.Minute
)

var (
	// ErrRunning: another process is importing the same at this moment.
	ErrRunning = errors.New("importer: another process is at it")
	// ErrDiffers: the input is not the one that the import began with.
	ErrDiffers = errors.New("importer: not the input that the import began with")
)

// Options say how to import. Zero fields take their defaults.
type Options struct {
	// Name of the import. Default: from the content, so that the same file,
	// and the same file with lines added, is the same import.
	Name string
	// Pack is how many lines go into a message, 1 to 1,024. Default 256. An
	// import that goes on keeps the number it began with.
	Pack int
	// CSV: the input's lines are counter,id,column,value, each a cell that is
	// set (see [table]); its first may be that header. Default: events.
	CSV bool
	// Force imports what begins with no event, which is refused otherwise (ErrNoEvents).
	Force bool
	// Progress hears how far it is: a terminal gets a bar, anything else a
	// line every few seconds. Default: none.
	Progress io.Writer
	Logger   *slog.Logger // default: none

	saveEvery time.Duration // of the record; tests have it more often
}

// Result says what a run did, also one that failed.
type Result struct {
	Import  string          // its name; "" when there were no lines
	Lines   uint64          // lines that this run brought into the log; blank ones never count
	Skipped uint64          // lines that earlier runs had brought
	Packs   uint64          // messages of this run
	Bytes   uint64          // of their lines
	Elapsed time.Duration   //
	Last    client.Position // the highest of a line in the log: an answer that waits for it counts all
	Grown   bool            // those were a whole input, which this one begins with
	Already bool            // the whole input had been imported before; nothing was published
	Bad     *Bad            // lines of CSV that were left out, in all runs; nil for none

	refusals *refusals // see Refused; nil when there were no lines
}

// Run imports the lines of the file at path, or of stdin for "-", into the
// event log. nc only says where the server is and how to get in: connections
// are made and closed here.
//
// Run waits while the server is away, up to a minute. With any error, ctx's included,
// the same call made again goes on where this one ended; all its progress has been
// reported when Run returns. An input that ends in the middle (a broken gzip file) is
// imported up to there. A line that no message can hold is left out, and a word about it
// takes its place, which becomes a dead letter.
//
// The input must have an end: lines are imported a pack at a time. Reading a
// stdin that stays silent is not given up when ctx ends; Run returns, and a
// goroutine waits for it.
func Run(ctx context.Context, nc *nats.Conn, path string, stdin io.Reader, o Options) (Result, error) {
	began := time.Now()
	o.Pack = cmp.Or(o.Pack, packDefault)
	o.saveEvery = cmp.Or(o.saveEvery, saveEvery)
	if o.Pack < 1 || o.Pack > pipeline.PackMax {
		return Result{}, fmt.Errorf("import %s: %d lines a pack; allowed: 1 to %d", path, o.Pack, pipeline.PackMax)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	in, err := openInput(path, stdin)
	if err != nil {
		return Result{}, fmt.Errorf("import %s: %w", path, err)
	}
	defer in.close()
	in.csv, in.force = o.CSV, o.Force
	r := &run{nc: nc, o: o, log: o.Logger, in: in, patience: patience}
	r.progress = startProgress(o.Progress, in)
	err = r.run(ctx)
	if err == nil && r.id != "" {
		r.result.refusals = &refusals{r.id, r.record.Letters, &in.events}
	}
	if err == nil && in.table != nil && in.table.bad.Lines > 0 {
		r.result.Bad = &in.table.bad
	}
	r.progress.end(r.result.Lines)
	r.result.Import = r.id
	r.result.Elapsed = time.Since(began)
	if err != nil {
		err = fmt.Errorf("import %s: %w", in.name, err)
	}
	return r.result, err
}

// run is one call of Run. One goroutine owns it; another reads the input.
type run struct {
	nc       *nats.Conn
	o        Options
	log      *slog.Logger
	in       *input
	progress *progress
	patience time.Duration
	result   Result

	id       string
	address  string    // in the record: where this run answers
	record   record    // what is settled; as it is stored, or newer
	revision uint64    // of the record in the bucket, 0 when there is none
	saved    time.Time // when it was last known to be ours

	packs  <-chan *pack     // from the reader, which ends with the run
	ended  bool             // packs is closed, and in.err says why
	queue  []*pack          // cut and not settled, in order
	sent   int              // how many of the queue are on their way
	bytes  int              // of those
	stored map[uint64]*pack // by first line: packs that the log has and that are not settled (no bodies)
	island uint64           // the last line in stored, 0 for none
	warned uint64           // the hole that ends here has been reported
	done   bool             // the record said so when we came
	moved  uint64           // packs settled
}

// fatal marks an error that another attempt would meet again.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

func (r *run) run(ctx context.Context) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.in.begin(ctx); err != nil {
		return err
	}
	if len(r.in.prefix) == 0 && r.in.err == nil {
		return nil // no lines at all
	}
	defer func() {
		cancel()
		r.in.wait()
	}()
	r.address = r.nc.NewInbox()
	failing := time.Now()
	for wait := retryWaitMin; ; wait = min(2*wait, retryWaitMax) {
		moved, saved := r.moved, r.saved
		err := r.attempt(ctx, reading)
		stop, isFatal := errors.AsType[fatal](err)
		if r.moved != moved || r.saved != saved && len(r.queue) == 0 { // it worked, or had nothing to do
			failing, wait = time.Now(), retryWaitMin
		}
		switch {
		case err == nil:
			return nil
		case isFatal:
			return stop.error
		case ctx.Err() != nil:
			return r.resumable(ctx.Err())
		case r.packs == nil: // the first attempt did not get as far as reading
			return err
		case time.Since(failing) > r.patience:
			return r.resumable(err)
		}
		r.log.Warn("import: interrupted, trying again", "import", r.id, "lines", r.record.Lines, "error", err)
		if kit.Sleep(ctx, wait) != nil {
			return r.resumable(ctx.Err())
		}
	}
}

// resumable says in an error how far it came and that it is not lost.
func (r *run) resumable(err error) error {
	return fmt.Errorf("stopped after line %d, run it again to go on: %w", r.record.Lines, err)
}

// attempt goes on with the import over one connection until it is done or the
// connection, or ctx, is.
func (r *run) attempt(ctx, reading context.Context) (err error) {
	s, err := dial(ctx, r.nc, r.address)
	if err != nil {
		return err
	}
	defer func() {
		err = s.orDenied(err)
		s.close()
	}()
	if r.id == "" {
		if r.id, err = s.identify(ctx, r.o.Name, r.in.prefix); err != nil {
			return err
		}
	}
	clean, err := r.claim(ctx, s)
	if err != nil {
		return err
	}
	r.result.Last = r.record.Last
	r.stored, r.island = nil, 0
	if !clean {
		if err := r.readBack(ctx, s); err != nil {
			return err
		}
	}
	if r.packs == nil {
		r.result.Skipped = r.record.Lines
		r.done = r.record.Done
		r.result.Grown = r.record.Done && r.record.Lines > 0
		r.packs = r.in.read(reading, s.lineBytesMax, r.record)
	}
	return r.send(ctx, s)
}
