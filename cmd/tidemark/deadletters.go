package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

type deadlettersCommand struct {
	List lettersCommand `cmd:"" default:"withargs" help:"List refused events, the newest first."`
	Show letterCommand  `cmd:"" help:"Show a refused event whole, with its headers."`

	Resend  resendCommand  `cmd:"" help:"Send refused events again, mended or as they are."`
	Purge   purgeCommand   `cmd:"" help:"Delete refused events."`
	Summary summaryCommand `cmd:"" help:"Count refused events by reason."`
}

func (deadlettersCommand) Help() string {
	return `Without a further word it lists them ('tidemark help deadletters list' has the flags).

EXAMPLE

    tidemark deadletters
    tidemark deadletters --reason id
    tidemark deadletters summary
    tidemark deadletters show 7
    tidemark deadletters resend 7 --data '{"actor":7,"post":42,"author":9}'
    tidemark deadletters purge --before 30d`
}

type lettersCommand struct {
	Reason string `placeholder:"R" help:"Only those refused for this reason: ${reasons}."`
	Limit  int    `default:"20" help:"Events at most, 1 to ${letters_max} (${default})."`
	remote
}

// lettersMax bounds a list: each of its lines is a request for a body.
const lettersMax = 1000

func (lettersCommand) Help() string {
	return `Lists events that could not be understood, from the stream DEADLETTER, the newest first: SEQ is their place there, EVENT the
position at which they came (of an import's pack, the line's). What is wrong with each is the service's own sentence.

EXAMPLE

    tidemark deadletters
    tidemark deadletters --reason id --limit 100
    tidemark deadletters show 7
    tidemark deadletters --json | jq '.letters[].error'`
}

// Validate is called by kong.
func (l *lettersCommand) Validate() error {
	if l.Limit < 1 || l.Limit > lettersMax {
		return fmt.Errorf("--limit %d is not from 1 to %d", l.Limit, lettersMax)
	}
	if err := knownReason(l.Reason); err != nil {
		return err
	}
	return l.remote.Validate()
}

func knownReason(reason string) error {
	if reason != "" && !slices.Contains(pipeline.Reasons, pipeline.Reason(reason)) {
		return fmt.Errorf("--reason %q is unknown; there are: %s", reason, reasonNames())
	}
	return nil
}

func reasonNames() string {
	names := make([]string, 0, len(pipeline.Reasons))
	for _, reason := range pipeline.Reasons {
		names = append(names, string(reason))
	}
	return strings.Join(names, ", ")
}

// letterJSON is a line of the list.
type letterJSON struct {
	Seq      uint64    `json:"seq"` // in DEADLETTER
	Time     time.Time `json:"time"`
	Reason   string    `json:"reason"`
	Position string    `json:"position,omitempty"` // of the event
	EventSeq uint64    `json:"event_seq,omitempty"`
	Line     int       `json:"line"` // in its message, from 0
	Error    string    `json:"error"`
	Begins   string    `json:"begins"` // the body's first characters
}

// beginsShown is how much of a body a list shows.
const beginsShown = 60

func (l *lettersCommand) Run(t *terminal) error {
	return l.letters(func(ctx context.Context, box *letters.Box) error {
		found, more, err := box.Newest(ctx, l.Reason, l.Limit)
		if err != nil {
			return err
		}
		list, err := readLetters(ctx, box, found)
		if err != nil {
			return err
		}
		if l.JSON {
			return printJSON(t.out, struct {
				Letters []letterJSON `json:"letters"`
				More    bool         `json:"more"`
			}{list, more})
		}
		return printLetters(t.out, list, more, l.Limit)
	})
}

// readLetters reads letters whole.
func readLetters(ctx context.Context, box *letters.Box, found []letters.Letter) ([]letterJSON, error) {
	list := make([]letterJSON, 0, len(found))
	for _, f := range found {
		whole, err := box.Get(ctx, f.Sequence)
		if errors.Is(err, letters.ErrNoLetter) {
			continue // discarded since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, letterLine(whole))
	}
	return list, nil
}

func letterLine(l letters.Letter) letterJSON {
	line := letterJSON{
		Seq: l.Sequence, Time: l.Time, Reason: l.Reason, Error: l.Error,
		Begins: printable(string(l.Body[:min(len(l.Body), 4*beginsShown)]), beginsShown),
	}
	if l.Position != 0 {
		line.Position, line.EventSeq, line.Line = l.Position.String(), l.Position.Sequence(), l.Position.Line()
	}
	return line
}

func printLetters(to io.Writer, list []letterJSON, more bool, limit int) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(to, "no dead letters")
		return err
	}
	out := &table{left: []bool{1: true, 2: true, 4: true, 5: true}}
	out.add("SEQ", "TIME", "REASON", "EVENT", "WHY", "BEGINS")
	for _, l := range list {
		out.add(strconv.FormatUint(l.Seq, 10), clockTime(l.Time), l.Reason, l.Position, printable(l.Error, beginsShown), l.Begins)
	}
	if err := out.print(to); err != nil {
		return err
	}
	if more && limit < lettersMax {
		fmt.Fprintf(to, "more: --limit %d\n", min(10*limit, lettersMax))
	}
	return nil
}

type letterCommand struct {
	Seq uint64 `arg:"" name:"seq" help:"Its place in DEADLETTER, SEQ in the list."`
	remote
}

func (letterCommand) Help() string {
	return `Shows one refused event as it came: its headers, an empty line, its body. Characters that are not text are shown as \x1b;
--json has the body as it is ("body", or "body_base64" when it is not UTF-8).

Names that begin with Nats- or Tidemark- have Tidemark- in front when they were the event's own. 'tidemark deadletters
resend' tries an event again: it counts at its new place in the log.

EXAMPLE

    tidemark deadletters show 7
    tidemark deadletters show 7 --json | jq -r .body`
}

func (l *letterCommand) Run(t *terminal) error {
	return l.letters(func(ctx context.Context, box *letters.Box) error {
		letter, err := letters.Letter{}, letters.ErrNoLetter
		if l.Seq != 0 { // to JetStream, 0 is no number of a message, and an error of its own
			letter, err = box.Get(ctx, l.Seq)
		}
		if errors.Is(err, letters.ErrNoLetter) {
			state, err := box.State(ctx)
			switch {
			case err != nil:
				return err
			case state.First > state.Last:
				return fmt.Errorf("there is no dead letter %d: there are none", l.Seq)
			}
			return fmt.Errorf("there is no dead letter %d: there are those from %d to %d", l.Seq, state.First, state.Last)
		}
		if err != nil {
			return err
		}
		if l.JSON {
			return printJSON(t.out, letterDocument(letter))
		}
		return printLetter(t.out, letter)
	})
}

// wholeLetterJSON is a letter whole.
type wholeLetterJSON struct {
	Seq      uint64      `json:"seq"`
	Time     time.Time   `json:"time"`
	Reason   string      `json:"reason"`
	Position string      `json:"position,omitempty"`
	Error    string      `json:"error"`
	Headers  nats.Header `json:"headers"`
	Body     *string     `json:"body,omitempty"`
	Base64   string      `json:"body_base64,omitempty"` // where it is not UTF-8
}

func letterDocument(l letters.Letter) wholeLetterJSON {
	line := letterLine(l)
	document := wholeLetterJSON{Seq: l.Sequence, Time: l.Time, Reason: l.Reason, Position: line.Position, Error: l.Error, Headers: l.Header}
	if text := string(l.Body); utf8.ValidString(text) {
		document.Body = &text
	} else {
		document.Base64 = base64.StdEncoding.EncodeToString(l.Body)
	}
	return document
}

func printLetter(to io.Writer, l letters.Letter) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s\n", jetlog.DeadLetterSubject+l.Reason, clockTime(l.Time))
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		for _, value := range l.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", harmless(name), harmless(value))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", harmless(string(l.Body)))
	_, err := io.WriteString(to, b.String())
	return err
}

// harmless shows what a terminal would obey, and what is not UTF-8, as \x1b.
func harmless(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r) || r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// letters opens DEADLETTER and does one thing. Reading may take long, so the
// timeout is for connecting alone.
func (r *remote) letters(do func(ctx context.Context, box *letters.Box) error) error {
	return r.lettersOn(func(ctx context.Context, _ *nats.Conn, box *letters.Box) error { return do(ctx, box) })
}

func (r *remote) lettersOn(do func(ctx context.Context, nc *nats.Conn, box *letters.Box) error) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := r.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	box, err := r.openLetters(ctx, nc)
	if err != nil {
		return err
	}
	return r.explain(do(ctx, nc, box))
}

func (r *remote) openLetters(ctx context.Context, nc *nats.Conn) (*letters.Box, error) {
	opening, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	opening, done := r.reach.untilDenied(opening)
	defer done()
	box, err := letters.OpenBox(opening, nc)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("no stream %s at %s: is 'tidemark run' running?", jetlog.DeadLetterStream, kit.Address(r.NATS))
	}
	return box, r.explain(err)
}
