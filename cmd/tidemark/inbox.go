package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// inboxPage is how many items a request of the command asks for, inboxMax how many it shows at
// most.
const (
	inboxPage = 1000
	inboxMax  = 100_000
)

type inboxCommand struct {
	User   id       `arg:"" help:"Whose items they are."`
	Kinds  []string `arg:"" optional:"" name:"kind" help:"Columns of unread (comment …) that keep items; all of them by default."`
	Unread bool     `help:"Unread items alone."`
	Limit  int      `default:"20" help:"Items at most, 1 to ${inbox_max} (${default}); as many pages as that takes."`
	Before string   `placeholder:"POSITION" help:"Begin before this one: where the list before says that there is more."`
	remote

	before pipeline.Position
}

func (inboxCommand) Help() string {
	return `Shows what is behind a user's unread numbers, the newest first: of each item when it came, its kind, who did it, the post it is about, and whether it is read; and its position, for 'tidemark read USER --items'.

EXAMPLE

    tidemark inbox 7
    tidemark inbox 7 comment mention --unread --limit 5`
}

// Validate is called by kong.
func (i *inboxCommand) Validate() error {
	if i.Limit < 1 || i.Limit > inboxMax {
		return fmt.Errorf("--limit %d is not from 1 to %d", i.Limit, inboxMax)
	}
	if i.Before != "" {
		var err error
		if i.before, err = pipeline.ParsePosition(i.Before); err != nil {
			return fmt.Errorf("--before %s is not a position", i.Before)
		}
	}
	return i.remote.Validate()
}

// Run reads page by page.
func (i *inboxCommand) Run(t *terminal) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := i.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := i.reach.untilDenied(ctx)
	defer done()
	c := client.New(nc)
	reply := inboxJSON{Items: []inboxItemJSON{}}
	request := client.InboxRequest{User: uint64(i.User), Kinds: i.Kinds, Unread: i.Unread, Before: i.before, Timeout: i.Timeout}
	for {
		request.Limit = min(i.Limit-len(reply.Items), inboxPage)
		got, err := i.page(ctx, c, request)
		if err != nil {
			return i.explain(asUsage(err))
		}
		reply.add(&got)
		if got.Next == 0 || len(got.Missing) > 0 || len(reply.Items) >= i.Limit {
			break
		}
		request.Before, request.MinPosition = got.Next, cmp.Or(request.MinPosition, got.AsOf)
	}
	return errors.Join(i.print(t, &reply), i.whole(&reply))
}

func (i *inboxCommand) page(ctx context.Context, c *client.Client, r client.InboxRequest) (client.InboxReply, error) {
	ctx, cancel := context.WithTimeout(ctx, i.Timeout+answerSlack)
	defer cancel()
	return c.Inbox(ctx, r)
}

func (i *inboxCommand) whole(reply *inboxJSON) error {
	if !reply.Degraded {
		return nil
	}
	return wholeOr("users", reply.Missing, time.Duration(reply.StaleMS)*time.Millisecond)
}

func (i *inboxCommand) print(t *terminal, reply *inboxJSON) error {
	if i.JSON {
		return printJSON(t.out, reply)
	}
	var b strings.Builder
	for _, item := range reply.Items {
		is := "unread"
		if item.Read {
			is = "read"
		}
		fmt.Fprintf(&b, "%-13s %s  %-6s  %-9s by %s", item.Position, item.Time, is, item.Kind, cmp.Or(item.Actor, "nobody"))
		if item.Post != "" {
			fmt.Fprintf(&b, ", post %s", item.Post)
		}
		b.WriteString("\n")
	}
	if _, err := fmt.Fprint(t.out, b.String()); err != nil {
		return err
	}
	if reply.Next != "" { // beside the list, which may go into a pipe
		fmt.Fprintf(t.err, "more: --before %s\n", reply.Next)
	}
	return nil
}

// inboxJSON is the reply of tidemark.inbox.
type inboxJSON struct {
	Items    []inboxItemJSON `json:"items"`
	Next     string          `json:"next,omitempty"`
	AsOf     string          `json:"as_of"`
	Degraded bool            `json:"degraded,omitempty"`
	StaleMS  int64           `json:"stale_ms,omitempty"`
	Missing  []string        `json:"missing,omitempty"`
}

type inboxItemJSON struct {
	Position string `json:"position"`
	Time     string `json:"time"`
	Kind     string `json:"kind"`
	Actor    string `json:"actor,omitempty"`
	Post     string `json:"post,omitempty"`
	Read     bool   `json:"read"`
}

func (r *inboxJSON) add(page *client.InboxReply) {
	idOf := func(id uint64) string {
		if id == 0 {
			return ""
		}
		return strconv.FormatUint(id, 10)
	}
	for _, i := range page.Items {
		r.Items = append(r.Items, inboxItemJSON{
			i.Position.String(), i.Time.UTC().Format(time.RFC3339), i.Kind, idOf(i.Actor), idOf(i.Post), i.Read,
		})
	}
	r.AsOf = cmp.Or(r.AsOf, page.AsOf.String())
	r.Degraded = r.Degraded || page.Degraded
	r.StaleMS = max(r.StaleMS, page.Stale.Milliseconds())
	switch {
	case page.Next != 0:
		r.Next = page.Next.String()
	case len(page.Missing) == 0: // after one that is, the list goes on where it stood
		r.Next = ""
	}
	for _, user := range page.Missing {
		r.Missing = append(r.Missing, idOf(user))
	}
}
