package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// peopleCommand is what following and followers have in common.
type peopleCommand struct {
	User  id     `arg:"" help:"Whose list."`
	Limit int    `default:"100" help:"Users at most, 1 to ${people_max} (${default}); as many pages as that takes."`
	After uint64 `placeholder:"USER" help:"Begin after this user: the last one of the list before."`
	remote
}

const (
	// peopleMax bounds a list, and the memory for it.
	peopleMax = 1_000_000
	// peoplePage is what a node gives at once.
	peoplePage = 10_000
)

type (
	followingCommand struct{ peopleCommand }
	followersCommand struct{ peopleCommand }
)

func (followingCommand) Help() string {
	return `Shows whom a user follows, by id, one a line.

EXAMPLE

    tidemark following 7
    tidemark following 7 --limit 1000000 | wc -l`
}

func (followersCommand) Help() string {
	return `Shows who follows a user, by id, one a line.

EXAMPLE

    tidemark followers 9
    tidemark followers 9 --limit 20 --after 1042`
}

// Validate is called by kong.
func (p *peopleCommand) Validate() error {
	if p.Limit < 1 || p.Limit > peopleMax {
		return fmt.Errorf("--limit %d is not from 1 to %d", p.Limit, peopleMax)
	}
	return p.remote.Validate()
}

func (f *followingCommand) Run(t *terminal) error { return f.run(t, (*client.Client).Following) }
func (f *followersCommand) Run(t *terminal) error { return f.run(t, (*client.Client).Followers) }

type pageOf = func(*client.Client, context.Context, client.UsersRequest) (client.UsersReply, error)

// run reads page by page, each within the timeout. With --json the pages make
// one reply, of the first one's as_of: another node may answer the later ones,
// and has to be as far.
func (p *peopleCommand) run(t *terminal, page pageOf) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := p.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := p.reach.untilDenied(ctx)
	defer done()
	c := client.New(nc)
	reply := peopleJSON{Users: []string{}}
	request := client.UsersRequest{User: uint64(p.User), After: p.After, Timeout: p.Timeout}
	for {
		request.Limit = min(p.Limit-len(reply.Users), peoplePage)
		got, err := p.page(ctx, c, page, request)
		if err != nil {
			return p.explain(err)
		}
		reply.add(got)
		if got.Next == 0 || len(got.Missing) > 0 || len(reply.Users) >= p.Limit {
			break
		}
		request.After, request.MinPosition = got.Next, cmp.Or(request.MinPosition, got.AsOf)
	}
	if err := p.print(t, reply); err != nil {
		return err
	}
	if reply.Degraded {
		return wholeOr("users", reply.Missing, time.Duration(reply.StaleMS)*time.Millisecond)
	}
	return nil
}

func (p *peopleCommand) page(ctx context.Context, c *client.Client, page pageOf, r client.UsersRequest) (client.UsersReply, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout+answerSlack)
	defer cancel()
	return page(c, ctx, r)
}

// peopleJSON is the reply of tidemark.following.
type peopleJSON struct {
	Users    []string `json:"users"`
	Next     string   `json:"next,omitempty"`
	AsOf     string   `json:"as_of"`
	Degraded bool     `json:"degraded,omitempty"`
	StaleMS  int64    `json:"stale_ms,omitempty"`
	Missing  []string `json:"missing,omitempty"`
}

func (p *peopleJSON) add(page client.UsersReply) {
	for _, user := range page.Users {
		p.Users = append(p.Users, strconv.FormatUint(user, 10))
	}
	if p.AsOf == "" {
		p.AsOf = page.AsOf.String()
	}
	p.Degraded = p.Degraded || page.Degraded
	p.StaleMS = max(p.StaleMS, page.Stale.Milliseconds())
	switch {
	case page.Next != 0:
		p.Next = strconv.FormatUint(page.Next, 10)
	case len(page.Missing) == 0: // after one that is, the list goes on where it stood
		p.Next = ""
	}
	for _, user := range page.Missing {
		p.Missing = append(p.Missing, strconv.FormatUint(user, 10))
	}
}

func (p *peopleCommand) print(t *terminal, reply peopleJSON) error {
	if p.JSON {
		return printJSON(t.out, reply)
	}
	var b strings.Builder
	for _, user := range reply.Users {
		b.WriteString(user + "\n")
	}
	if _, err := fmt.Fprint(t.out, b.String()); err != nil {
		return err
	}
	if reply.Next != "" { // beside the list, which may go into a pipe
		fmt.Fprintf(t.err, "more: --after %s\n", reply.Next)
	}
	return nil
}
