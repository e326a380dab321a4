package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/query/client"
)

type publishCommand struct {
	Type   string   `arg:"" help:"The event's type: post, comment, like, …, or one of your rules'."`
	Fields []string `arg:"" optional:"" name:"field=value" help:"Its fields."`
	Wait   bool     `help:"Return when every answer counts it; fail when it was refused."`
	Force  bool     `help:"Publish it even if it would be refused, or if nothing reads its type or a field."`
	ID     string   `name:"id" placeholder:"ID" help:"Its Nats-Msg-Id: within two minutes the same one is stored once."`
	remote

	body  []byte
	names []string // of its fields
}

func (publishCommand) Help() string {
	return `Publishes one event, waits for the log's acknowledgement and prints the event's position. An event that would be refused, whose type no rule counts, or with a field that nothing reads is not published: the command says why, and --force publishes it all the same. The node alone knows what your rules need and which channels are open: --wait fails when it refused the event.

Values are whole numbers, true, false, or text; seen and what are lists with commas; a value that begins with [, { or " is JSON. A node ignores fields that nothing reads, of every producer.

EXAMPLE

    tidemark publish like actor=7 post=42 author=9
    tidemark publish follow actor=7 target=9 delete=true
    tidemark publish notice channel=system notice=1 --wait
    tidemark publish read actor=7 what=comment,feed seen=comment=3
    tidemark publish view video=5 by=3`
}

// Validate is called by kong.
func (p *publishCommand) Validate() (err error) {
	if err := p.remote.Validate(); err != nil {
		return err
	}
	switch {
	case p.Type == "":
		return nil // kong will say so
	case p.Type == "pack":
		return errors.New("a pack is many events: tidemark import sends them")
	case !eventType.MatchString(p.Type):
		return fmt.Errorf("%q is not a type of events", p.Type)
	}
	p.body, p.names, err = eventBody(p.Fields)
	return err
}

var (
	// eventType: what a subject's last token may be.
	eventType = regexp.MustCompile(`^[^\s.*>"\\[:cntrl:]]+$`)
	integer   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// eventBody is the event as a producer would write it, and the names of its fields.
func eventBody(fields []string) (body []byte, names []string, err error) {
	body = []byte{'{'}
	for _, field := range fields {
		name, text, found := strings.Cut(field, "=")
		switch {
		case !found || name == "":
			return nil, nil, fmt.Errorf("%q is not a field: say NAME=VALUE", field)
		case name == "type":
			return nil, nil, errors.New("type is named already: it is the first word")
		case slices.Contains(names, name):
			return nil, nil, fmt.Errorf("%s is given twice", name)
		}
		value, err := fieldValue(name, text)
		if err != nil {
			return nil, nil, err
		}
		if names = append(names, name); len(names) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, quoted(name)...), ':'), value...)
	}
	return append(body, '}'), names, nil
}

// fieldValue is JSON for what was typed.
func fieldValue(name, text string) ([]byte, error) {
	switch {
	case strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") || strings.HasPrefix(text, `"`):
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("%s: %s is not JSON", name, text)
		}
		return []byte(text), nil
	case name == "channel" || name == "counter" || name == "column": // a channel may be called 2026
		return quoted(text), nil
	case name == "what":
		return json.Marshal(strings.Split(text, ","))
	case name == "seen":
		return seenValue(text)
	case integer.MatchString(text) || text == "true" || text == "false":
		return []byte(text), nil
	}
	return quoted(text), nil
}

// seenValue reads comment=3,like=1.
func seenValue(text string) ([]byte, error) {
	value := []byte{'{'}
	for i, pair := range strings.Split(text, ",") {
		column, count, found := strings.Cut(pair, "=")
		if !found || !integer.MatchString(count) {
			return nil, fmt.Errorf("seen: %q is not COLUMN=N", pair)
		}
		if i > 0 {
			value = append(value, ',')
		}
		value = append(append(append(value, quoted(column)...), ':'), count...)
	}
	return append(value, '}'), nil
}

// quoted is a JSON string. What is not UTF-8 is replaced.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings can be written
	}
	return b
}

func (p *publishCommand) Run(t *terminal) error {
	return p.ask(func(ctx context.Context, c *client.Client) error {
		if err := p.check(ctx, c); err != nil {
			return err
		}
		from := uint64(1)
		var box *letters.Box
		if p.Wait {
			var err error
			if box, err = p.openLetters(ctx, c.Conn()); err != nil {
				return err
			}
			state, err := box.State(ctx)
			if err != nil {
				return err
			}
			from = state.Last + 1
		}
		ack, err := p.send(ctx, c.Conn())
		if err != nil {
			return err
		}
		if p.Wait {
			if ack.Duplicate {
				from = 1 // it came before
			}
			if err := p.counted(ctx, c, box, from, ack.Sequence); err != nil {
				return err
			}
		}
		return p.print(t, ack)
	})
}

// check refuses what the node would refuse or not read, if that is known here.
func (p *publishCommand) check(ctx context.Context, c *client.Client) error {
	if p.Force {
		return nil
	}
	schema, err := c.Schema(ctx)
	if err != nil {
		return err
	}
	if err := p.unknown(schema.Types); err != nil {
		return err
	}
	j, err := newJudge(schema)
	if err != nil {
		return err
	}
	fault, err := j.fault(jetlog.EventsSubject+p.Type, p.body)
	if err != nil || fault == nil {
		return err
	}
	return usage("this would be refused (%s): %s; --force publishes it all the same", fault.Reason, printable(fault.Detail, refusedShown))
}

// unknown is an error if no rule counts the type, or nothing reads a field. An earlier
// version of the node does not say which types there are.
func (p *publishCommand) unknown(types map[string][]string) error {
	if types == nil {
		return nil
	}
	fields, known := types[p.Type]
	if !known {
		return usage("no rule counts events of type %s: %s (--force publishes it all the same)", p.Type, config.Instead(p.Type, sortedKeys(types)))
	}
	for _, name := range p.names {
		if !slices.Contains(fields, name) {
			return usage("nothing reads the field %s of a %s: %s (--force publishes it all the same)", printable(name, nameShown), p.Type, config.Instead(name, fields))
		}
	}
	return nil
}

// schemaOf is the node's schema, as far as it answers.
func schemaOf(found client.Schema) (*pipeline.Schema, error) {
	var names []string
	var columns []pipeline.ColumnSpec
	for _, name := range sortedKeys(found.Counters) {
		for _, c := range found.Counters[name].Columns {
			columns = append(columns, pipeline.ColumnSpec{Counter: len(names), Name: c.Name, Suffix: c.Suffix, Bits: c.Bits, Max: c.Max, Default: c.Default})
		}
		names = append(names, name)
	}
	return pipeline.NewSchema(names, columns)
}

func (p *publishCommand) send(ctx context.Context, nc *nats.Conn) (*jetstream.PubAck, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	id := p.ID
	if id == "" {
		id = nuid.Next() // for attempts of this one
	}
	ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: jetlog.EventsSubject + p.Type, Data: p.body, Header: nats.Header{jetstream.MsgIDHeader: {id}}})
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return nil, noEvents(ctx, nc)
	case jetlog.RefusedByHand(err):
		return nil, errRefused
	case errors.Is(err, context.DeadlineExceeded) && p.reach.denial() == nil:
		return nil, fmt.Errorf("%s did not say in time whether it stored the event; within two minutes the same command with --id %s is safe", kit.Address(p.NATS), id)
	}
	return ack, err
}

// counted waits until the event is applied. A letter of it is there by then.
func (p *publishCommand) counted(ctx context.Context, c *client.Client, box *letters.Box, from, sequence uint64) error {
	at := pipeline.At(sequence, 0)
	figures, err := c.Stats(ctx, client.Wait(at), client.Within(p.Timeout))
	if err != nil {
		return stored(at, err)
	}
	refused := box.Visit(ctx, from, "", func(l *letters.Letter) error {
		if l.Position != at {
			return nil
		}
		return fmt.Errorf("it is in the log at position %s and was refused (%s): %s; it is kept: tidemark deadletters show %d",
			at, l.Reason, printable(l.Error, refusedShown), l.Sequence)
	})
	if refused != nil {
		return refused
	}
	if stopped := number(figures["tidemark_shards_failed"]); stopped > 0 {
		return stoppedError(stopped)
	}
	return nil
}

func (p *publishCommand) print(t *terminal, ack *jetstream.PubAck) error {
	at := pipeline.At(ack.Sequence, 0)
	if p.JSON {
		return printJSON(t.out, struct {
			Position  string `json:"position"`
			Seq       uint64 `json:"seq"`
			Duplicate bool   `json:"duplicate,omitempty"`
		}{at.String(), ack.Sequence, ack.Duplicate})
	}
	what := "published"
	switch {
	case ack.Duplicate:
		what = "published before"
	case p.Wait:
		what = "counted"
	}
	_, err := fmt.Fprintf(t.out, "%s, at position %s\n", what, at)
	return err
}
