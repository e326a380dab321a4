package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

type membersCommand struct {
	Column string `arg:"" help:"COUNTER.COLUMN, or a suffix: a column whose rules say once."`
	ID     id     `arg:"" help:"The row whose set it is."`
	Limit  int    `default:"100" help:"Members at most, 1 to ${people_max} (${default}); as many pages as that takes."`
	After  string `placeholder:"MEMBER" help:"Begin after this one: the last one of the list before."`
	remote

	after client.Member
}

func (membersCommand) Help() string {
	return `Shows the members of a row's set, by id, one a line; pairs of ids as 50,7.

EXAMPLE

    tidemark members post.like 42
    tidemark members user.liked 9 --limit 20 --after 50,7`
}

// Validate is called by kong.
func (m *membersCommand) Validate() error {
	if m.Limit < 1 || m.Limit > peopleMax {
		return fmt.Errorf("--limit %d is not from 1 to %d", m.Limit, peopleMax)
	}
	if m.After != "" {
		var ok bool
		if m.after, ok = idOrPair(m.After); !ok {
			return fmt.Errorf("--after %s is neither an id nor a pair of ids as 50,7", m.After)
		}
	}
	return m.remote.Validate()
}

// idOrPair reads 7 or 50,7.
func idOrPair(text string) (m client.Member, ok bool) {
	var a, b id
	first, second, isPair := strings.Cut(text, ",")
	err := a.UnmarshalText([]byte(first))
	if isPair {
		err = cmp.Or(err, b.UnmarshalText([]byte(second)))
	}
	return client.Member{A: uint64(a), B: uint64(b)}, err == nil
}

// Run reads page by page, as those do that list users.
func (m *membersCommand) Run(t *terminal) error {
	ctx, stop := interruptible()
	defer stop()
	nc, err := m.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := m.reach.untilDenied(ctx)
	defer done()
	c := client.New(nc)
	reply := membersJSON{Members: []memberJSON{}}
	request := client.MembersRequest{Column: m.Column, ID: uint64(m.ID), After: m.after, Timeout: m.Timeout}
	for {
		request.Limit = min(m.Limit-len(reply.Members), peoplePage)
		got, err := m.page(ctx, c, request)
		if err != nil {
			return m.explain(asUsage(err))
		}
		reply.add(got)
		if got.Next == (client.Member{}) || len(got.Missing) > 0 || len(reply.Members) >= m.Limit {
			break
		}
		request.After, request.MinPosition = got.Next, cmp.Or(request.MinPosition, got.AsOf)
	}
	return errors.Join(m.print(t, reply), m.whole(reply))
}

func (m *membersCommand) page(ctx context.Context, c *client.Client, r client.MembersRequest) (client.MembersReply, error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout+answerSlack)
	defer cancel()
	return c.Members(ctx, r)
}

func (m *membersCommand) whole(reply membersJSON) error {
	if !reply.Degraded {
		return nil
	}
	return wholeOr("ids", reply.Missing, time.Duration(reply.StaleMS)*time.Millisecond)
}

func (m *membersCommand) print(t *terminal, reply membersJSON) error {
	if m.JSON {
		return printJSON(t.out, reply)
	}
	var b strings.Builder
	for _, member := range reply.Members {
		b.WriteString(memberText(client.Member(member)) + "\n")
	}
	if _, err := fmt.Fprint(t.out, b.String()); err != nil {
		return err
	}
	if reply.Next != "" { // beside the list, which may go into a pipe
		fmt.Fprintf(t.err, "more: --after %s\n", reply.Next)
	}
	return nil
}

// membersJSON is the reply of tidemark.members.
type membersJSON struct {
	Members  []memberJSON `json:"members"`
	Next     string       `json:"next,omitempty"`
	AsOf     string       `json:"as_of"`
	Degraded bool         `json:"degraded,omitempty"`
	StaleMS  int64        `json:"stale_ms,omitempty"`
	Missing  []string     `json:"missing,omitempty"`
}

// memberJSON is "7", or ["50","7"].
type memberJSON client.Member

// MarshalJSON is called by encoding/json.
func (m memberJSON) MarshalJSON() ([]byte, error) {
	a := strconv.FormatUint(m.A, 10)
	if m.B == 0 {
		return json.Marshal(a)
	}
	return json.Marshal([]string{a, strconv.FormatUint(m.B, 10)})
}

// memberText is 7, or 50,7.
func memberText(m client.Member) string {
	if m.B == 0 {
		return strconv.FormatUint(m.A, 10)
	}
	return fmt.Sprintf("%d,%d", m.A, m.B)
}

func (r *membersJSON) add(page client.MembersReply) {
	for _, m := range page.Members {
		r.Members = append(r.Members, memberJSON(m))
	}
	r.AsOf = cmp.Or(r.AsOf, page.AsOf.String())
	r.Degraded = r.Degraded || page.Degraded
	r.StaleMS = max(r.StaleMS, page.Stale.Milliseconds())
	switch {
	case page.Next != (client.Member{}):
		r.Next = memberText(page.Next)
	case len(page.Missing) == 0: // after one that is, the list goes on where it stood
		r.Next = ""
	}
	for _, id := range page.Missing {
		r.Missing = append(r.Missing, strconv.FormatUint(id, 10))
	}
}
