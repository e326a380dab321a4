package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/query/client"
)

type resendCommand struct {
	Seqs   []uint64 `arg:"" optional:"" name:"seq" help:"Their places in DEADLETTER, SEQ in the list."`
	Reason string   `placeholder:"R" help:"All that were refused for this reason: ${reasons}."`
	Data   string   `placeholder:"TEXT" help:"The mended event, of one SEQ."`
	File   string   `placeholder:"FILE" help:"The mended event, of one SEQ; - reads standard input."`
	Type   string   `placeholder:"T" help:"The event's type, where it is another one."`
	Config string   `placeholder:"FILE" help:"The node's configuration: what its rules would refuse is not sent."`
	remote

	mended []byte // nil: as they are
}

func (resendCommand) Help() string {
	return `Sends refused events again, as they came, when rules or configuration know them now, or one of them mended. Each becomes an event at the log's end, counted once however often it is sent, also after an interruption, and leaves the dead letters.

What the rules that serve, or those of --config, would still refuse is not sent. What the node refuses again is a dead letter again, and said. The exit code is 1 when one is neither counted nor 'sent before'; 'sent before' says that nothing was sent now.

An event sent as it came stays in EVENTS where it came, too: a later rebuild, or 'repair --replay', by rules that take it counts both. Where a rebuild brings the rules, resend nothing, and purge what was refused: the rebuild has counted it by itself.

EXAMPLE

    tidemark deadletters resend 7 8 9
    tidemark deadletters resend --reason unknown --config config.yaml
    tidemark deadletters resend 7 --data '{"actor":7,"post":42,"author":9}'
    tidemark deadletters show 7 --json | jq -r .body | sed s/autor/author/ | tidemark deadletters resend 7 --file -`
}

// Validate is called by kong.
func (r *resendCommand) Validate() error {
	mends := r.Data != "" || r.File != ""
	switch {
	case len(r.Seqs) == 0 && r.Reason == "":
		return errors.New("which ones? give their SEQ, or --reason")
	case len(r.Seqs) > 0 && r.Reason != "":
		return errors.New("SEQ and --reason are both given; give one of them")
	case r.Data != "" && r.File != "":
		return errors.New("--data and --file are both given; give one of them")
	case mends && len(r.Seqs) != 1:
		return errors.New("a mended event is that of one SEQ")
	case r.Type != "" && !eventType.MatchString(r.Type):
		return fmt.Errorf("%q is not a type of events", r.Type)
	}
	if err := knownReason(r.Reason); err != nil {
		return err
	}
	return r.remote.Validate()
}

// What became of a letter.
const (
	resendCounted = "counted"     // an event, and every answer counts it
	resendBefore  = "sent before" // an event already, or another letter of the event is
	resendSent    = "sent"        // an event; not known to be counted yet
	resendRefused = "refused"     // an event, which became a dead letter
	resendWrong   = "not sent"    // it would be refused
	resendGone    = "not there"   // no such letter
)

// resendResults are how they are counted up, in order.
var resendResults = []string{resendCounted, resendBefore, resendSent, resendRefused, resendWrong, resendGone}

// resentJSON is a letter that was to be sent again.
type resentJSON struct {
	Seq      uint64 `json:"seq"`
	Result   string `json:"result"`
	Position string `json:"position,omitempty"`
	Error    string `json:"error,omitempty"`
	Letter   uint64 `json:"letter,omitempty"` // that it became
}

// good says that a letter's event counts, or that an earlier run has sent it.
func good(result string) bool {
	return result == resendCounted || result == resendBefore
}

// resending is one run of the command.
type resending struct {
	command  *resendCommand
	client   *client.Client
	box      *letters.Box
	resender *letters.Resender
	judge    *judge

	sent   []letters.Resent  // now, or before
	last   pipeline.Position // of the events sent
	list   []resentJSON
	counts map[string]int
}

func (r *resendCommand) Run(t *terminal) error {
	if err := r.readMended(t); err != nil {
		return err
	}
	var rules *config.Config
	if r.Config != "" {
		s := settings{r.Config}
		var err error
		if rules, _, err = s.load(); err != nil {
			return err
		}
	}
	return r.lettersOn(func(ctx context.Context, nc *nats.Conn, box *letters.Box) error {
		run := &resending{command: r, client: client.New(nc), box: box, counts: map[string]int{}}
		var err error
		if rules != nil {
			run.judge, err = judgeByConfig(rules)
		} else {
			run.judge, err = judgeOfServing(ctx, nc)
		}
		if err != nil {
			return err
		}
		if run.resender, err = box.Resender(); err != nil {
			return err
		}
		failed := run.all(ctx)
		return errors.Join(run.print(t), failed)
	})
}

// judgeOfServing judges by the rules of the generation that serves.
func judgeOfServing(ctx context.Context, nc *nats.Conn) (*judge, error) {
	set, err := bucket.LoadGenerations(ctx, nc)
	if err == nil && set.Epoch == 0 {
		err = generation.ErrGone
	}
	if err != nil {
		return nil, err
	}
	by, err := config.Default().CountingBy(set.All[set.Serving].Counting)
	if err != nil {
		return nil, fmt.Errorf("what generation %d counts: %w", set.Serving, err)
	}
	return judgeByConfig(by)
}

// mendedMax bounds a mended event: no server takes a larger message.
const mendedMax = 64 << 20

func (r *resendCommand) readMended(t *terminal) (err error) {
	switch r.File {
	case "":
		if r.Data != "" {
			r.mended = []byte(r.Data)
		}
		return nil
	case "-":
		r.mended, err = io.ReadAll(io.LimitReader(t.in, mendedMax))
	default:
		r.mended, err = os.ReadFile(r.File)
	}
	if r.mended = bytes.TrimRight(r.mended, "\r\n"); err == nil && len(r.mended) == 0 {
		err = usage("the mended event is empty")
	}
	return err
}

// all sends what is to be sent, some at a time, and sees what becomes of it.
func (r *resending) all(ctx context.Context) error {
	seqs := slices.Compact(slices.Sorted(slices.Values(r.command.Seqs)))
	if r.command.Reason != "" {
		err := r.box.Visit(ctx, 1, r.command.Reason, func(l *letters.Letter) error {
			seqs = append(seqs, l.Sequence)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(seqs, letters.ResendMax) {
		if err := r.some(ctx, some); err != nil {
			return errors.Join(err, r.look(ctx))
		}
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	bad := len(seqs)
	for result, n := range r.counts {
		if good(result) {
			bad -= n
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %s not counted", bad, count(len(seqs), "dead letter"))
	}
	return nil
}

func (r *resending) some(ctx context.Context, seqs []uint64) error {
	var mended []letters.Mended
	for _, seq := range seqs {
		m, err := r.one(ctx, seq)
		if err != nil {
			return err
		}
		if m != nil {
			mended = append(mended, *m)
		}
	}
	if len(mended) == 0 {
		return nil
	}
	sent, err := r.resender.Send(ctx, mended)
	r.sent = append(r.sent, sent...)
	if jetlog.RefusedByHand(err) {
		return errRefused
	}
	return err
}

// one makes the event of a letter; nil: it is not to be sent, and what became of it is
// counted up.
func (r *resending) one(ctx context.Context, seq uint64) (*letters.Mended, error) {
	letter, err := letters.Letter{}, letters.ErrNoLetter
	if seq != 0 { // to JetStream, 0 is no number of a message, and an error of its own
		letter, err = r.box.Get(ctx, seq)
	}
	if errors.Is(err, letters.ErrNoLetter) {
		r.add(resentJSON{Seq: seq, Result: resendGone, Error: "there is no such dead letter: it was sent again, or deleted, or never was"})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, ok := letter.Event(); !ok {
		r.add(resentJSON{Seq: seq, Result: resendWrong, Error: "it is no node's letter: it does not say which event was refused"})
		return nil, nil
	}
	m, wrong, err := r.mend(&letter)
	if err != nil || wrong == "" {
		return &m, err
	}
	before, err := r.resender.Settle(ctx, &letter)
	switch {
	case err != nil:
		return nil, err
	case before.Position != 0:
		r.sent = append(r.sent, before)
	default:
		r.add(resentJSON{Seq: seq, Result: resendWrong, Error: wrong})
	}
	return nil, nil
}

// mend makes the event of a letter, or says what is wrong with it.
func (r *resending) mend(l *letters.Letter) (m letters.Mended, wrong string, err error) {
	m = letters.Mended{Letter: l, Body: l.Body}
	if r.command.mended != nil {
		m.Body = r.command.mended
	}
	came := strings.TrimPrefix(l.Subject, jetlog.EventsSubject)
	named := bodyType(m.Body)
	const pack = "pack"
	switch {
	case r.command.Type != "":
		m.Type = r.command.Type
	case r.command.mended != nil && named != "":
		m.Type = named
	case came != "" && came != pack, came == pack && l.Reason == string(pipeline.ReasonPack):
		m.Type = came
	case named != "": // a line of a pack
		m.Type = named
	case came == pack:
		return m, "type is missing: say it in the event, or give --type", nil
	default:
		return m, "its type is not known, for the letter does not say on which subject it came: give --type", nil
	}
	if !eventType.MatchString(m.Type) && m.Type != came {
		return m, fmt.Sprintf("%s is not a type of events", printable(named, beginsShown)), nil
	}
	fault, err := r.judge.fault(jetlog.EventsSubject+m.Type, m.Body)
	if err == nil && fault != nil {
		wrong = fmt.Sprintf("it would be refused (%s): %s", fault.Reason, fault.Detail)
	}
	return m, wrong, err
}

// bodyType is the type that an event names itself.
func bodyType(body []byte) string {
	var event struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &event) != nil {
		return ""
	}
	return event.Type
}

// look waits until what was sent is applied; letters of it are there by then.
func (r *resending) look(ctx context.Context) error {
	if len(r.sent) == 0 {
		return nil
	}
	first := r.sent[0].Position
	for _, s := range r.sent {
		first, r.last = min(first, s.Position), max(r.last, s.Position)
	}
	_, waited := r.client.Stats(ctx, client.Wait(r.last), client.Within(r.command.Timeout))
	since, err := r.box.Since(ctx, first)
	if err != nil {
		waited = cmp.Or(waited, err)
	}
	again := map[uint64]uint64{} // the sequence of an event that was sent, and its letter
	for event, letter := range since {
		again[event.Position.Sequence()] = letter
	}
	for _, s := range r.sent {
		line := resentJSON{Seq: s.Sequence, Result: resendCounted, Position: s.Position.String(), Letter: again[s.Position.Sequence()]}
		switch {
		case s.Before:
			line.Result = resendBefore
			if line.Letter != 0 {
				line.Error = "it was refused there"
			}
		case line.Letter != 0:
			line.Result, line.Error = resendRefused, r.refusal(ctx, line.Letter)
		case waited != nil:
			line.Result, line.Error = resendSent, "it is in the log and was not seen to be counted: "+sentence(waited)
		}
		r.add(line)
	}
	return err
}

// refusal says why the event of a letter was refused.
func (r *resending) refusal(ctx context.Context, seq uint64) string {
	l, err := r.box.Get(ctx, seq)
	if err != nil {
		return sentence(err)
	}
	return fmt.Sprintf("%s: %s", l.Reason, l.Error)
}

// add counts a letter up. Of very many, those that are counted are not listed.
func (r *resending) add(line resentJSON) {
	r.counts[line.Result]++
	if len(r.list) < lettersMax && !(good(line.Result) && r.command.Reason != "") {
		r.list = append(r.list, line)
	}
}

// countsTwice is a warning where events were sent as they came.
const countsTwice = "what was sent as it came stays in EVENTS where it came, too: a later rebuild or 'repair --replay' by rules that take it counts both"

func (r *resending) warning() string {
	if c := r.command; c.mended != nil || c.Type != "" || r.counts[resendCounted]+r.counts[resendSent]+r.counts[resendRefused] == 0 {
		return ""
	}
	return countsTwice
}

func (r *resending) print(t *terminal) error {
	slices.SortFunc(r.list, func(a, b resentJSON) int { return cmp.Compare(a.Seq, b.Seq) })
	if r.command.JSON {
		return printJSON(t.out, struct {
			Counts  map[string]int `json:"counts"`
			Letters []resentJSON   `json:"letters"`
			Warning string         `json:"warning,omitempty"`
		}{r.counts, slices.Concat([]resentJSON{}, r.list), r.warning()})
	}
	var b strings.Builder
	for _, l := range r.list {
		fmt.Fprintf(&b, "%d: %s", l.Seq, l.Result)
		if l.Position != "" {
			fmt.Fprintf(&b, ", at position %s", l.Position)
		}
		if l.Error != "" {
			fmt.Fprintf(&b, ": %s", printable(l.Error, refusedShown))
		}
		if l.Letter != 0 {
			fmt.Fprintf(&b, "; it is kept: tidemark deadletters show %d", l.Letter)
		}
		b.WriteByte('\n')
	}
	var all []string
	for _, result := range resendResults {
		if n := r.counts[result]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, result))
		}
	}
	switch {
	case len(all) == 0:
		b.WriteString("no dead letters\n")
	case len(r.list) != 1 || len(all) > 1:
		b.WriteString(strings.Join(all, ", ") + "\n")
	}
	if warning := r.warning(); warning != "" {
		b.WriteString("warning: " + warning + "\n")
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}
