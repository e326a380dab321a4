package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

type explainCommand struct {
	Number string `arg:"" help:"COUNTER.COLUMN, like post.like; unread.feed; unread.channel:NAME; or unread."`
	ID     id     `arg:"" name:"id" help:"The post, the user, or whatever the counter is keyed by."`
	Limit  int    `default:"20" help:"Events to show, 1 to 1000 (${default})."`
	Before string `placeholder:"POSITION" help:"Events before this alone: the next of the page before."`
	remote
}

func (explainCommand) Help() string {
	return `Shows the events behind a number, the newest first, and what each changed: +1, -1, or =5
where it set the number. The events behind a feed or a channel are what is in it now, +1
each, down to the read that it counts from. "?" stands beside a change that depends on what was not found in
the time (--timeout), or is not in the log any more.

EXAMPLE

    tidemark explain post.like 42
    tidemark explain user.follower 7 --limit 100
    tidemark explain unread 7
    tidemark explain unread.channel:system 7
    tidemark explain post.like 42 --before 5939442 --json`
}

func (e *explainCommand) Run(t *terminal) error {
	if e.Limit < 1 || e.Limit > 1000 {
		return usage("--limit %d is not from 1 to 1000", e.Limit)
	}
	before := pipeline.Position(0)
	if e.Before != "" {
		var err error
		if before, err = pipeline.ParsePosition(e.Before); err != nil || before == 0 {
			return usage("--before %s is not a position", e.Before)
		}
	}
	return e.ask(func(ctx context.Context, c *client.Client) error {
		if e.JSON {
			return asUsage(e.printReply(ctx, c, t, "explain", struct {
				Number  string `json:"number"`
				ID      string `json:"id"`
				Limit   int    `json:"limit"`
				Before  string `json:"before"`
				Timeout int64  `json:"timeout_ms"`
			}{e.Number, strconv.FormatUint(uint64(e.ID), 10), e.Limit, before.String(), e.Timeout.Milliseconds()}))
		}
		return asUsage(e.pages(ctx, c, t, before))
	})
}

// pages asks until there are as many events as wanted, or the time is over: a
// page may end early.
func (e *explainCommand) pages(ctx context.Context, c *client.Client, t *terminal, before pipeline.Position) error {
	var all client.ExplainReply
	for {
		end, _ := ctx.Deadline()
		page, err := c.Explain(ctx, client.ExplainRequest{
			Number: e.Number, ID: uint64(e.ID), Limit: e.Limit - len(all.Events), Before: before,
			Timeout: max(time.Until(end)-answerSlack, answerSlack),
		})
		if err != nil {
			return err
		}
		if all.AsOf == 0 {
			all.Value, all.Numbers, all.AsOf, all.Since, all.Notes = page.Value, page.Numbers, page.AsOf, page.Since, page.Notes
			if page.Stale > 0 { // reading the log may take longer than an answer is fresh
				all.Notes = append(all.Notes, fmt.Sprintf("the number can be %d ms old", page.Stale.Milliseconds()))
			}
		}
		all.Events = append(all.Events, page.Events...)
		all.Next, all.Base = page.Next, page.Base
		if before = page.Next; page.Next == 0 || len(all.Events) >= e.Limit || time.Until(end) < e.Timeout/2 {
			break
		}
	}
	return e.print(t, &all)
}

func (e *explainCommand) print(t *terminal, r *client.ExplainReply) error {
	fmt.Fprintf(t.out, "%s of %d is %d, as of position %s", e.Number, uint64(e.ID), r.Value, r.AsOf)
	for i, name := range sortedKeys(r.Numbers) {
		fmt.Fprintf(t.out, "%s%s %d", []string{": ", ", "}[min(i, 1)], name, r.Numbers[name])
	}
	fmt.Fprintln(t.out)
	for _, name := range sortedKeys(r.Since) {
		if at := r.Since[name]; at > 1 {
			fmt.Fprintf(t.out, "%s counts what is after position %s\n", name, at)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintln(t.out, note)
	}
	out := table{left: []bool{false, true, true, false, true}}
	out.add("position", "time", "type", "change", "event")
	for i := range r.Events {
		event := &r.Events[i]
		out.add(event.Position.String(), event.Time.UTC().Format("2006-01-02T15:04:05Z"), event.Type, changeOf(event), bodyOf(event))
	}
	if len(r.Events) > 0 {
		if err := out.print(t.out); err != nil {
			return err
		}
	}
	switch {
	case r.Next != 0:
		fmt.Fprintf(t.out, "more: --before %s\n", r.Next)
	case r.Base.Position != 0 && r.Base.Value == nil:
		fmt.Fprintf(t.out, "the log begins after position %s: what the number was there is not known\n", r.Base.Position)
	case r.Base.Position != 0:
		fmt.Fprintf(t.out, "the log begins after position %s: the number was %d there\n", r.Base.Position, *r.Base.Value)
	case len(r.Events) == 0:
		fmt.Fprintln(t.out, "there is no event behind it")
	}
	return nil
}

// changeOf is +1, or each number's: comment +1, like -3.
func changeOf(e *client.ExplainedEvent) string {
	text := e.Change
	if e.Changes != nil {
		var parts []string
		for _, name := range sortedKeys(e.Changes) {
			parts = append(parts, name+" "+e.Changes[name])
		}
		text = strings.Join(parts, ", ")
	}
	if e.Unsure {
		text += " ?"
	}
	return text
}

// bodyMax is how much of an event a line shows.
const bodyMax = 160

func bodyOf(e *client.ExplainedEvent) string {
	if e.Event == nil {
		return fmt.Sprintf("(%d bytes)", e.Bytes)
	}
	text := []rune(strings.Join(strings.Fields(string(e.Event)), " "))
	if len(text) > bodyMax {
		return string(text[:bodyMax]) + "…"
	}
	return string(text)
}
