package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// What is answered while more comes in is as of some position from its as_of to
// the newest then: each number is held between the least and the most that the
// twin has there, once EVENTS was read back that far. Unread feeds and channels
// are compared at rest only.

// told is an answer, with what it may be as of.
type told struct {
	about        people
	asked        pipeline.Position // the min_position
	asOf, newest pipeline.Position
	counter      string
	columns      []string
	ids          []uint64
	rows         [][]int64 // nil: missing
	missing      int
	degraded     bool // the answer says so
}

// ask asks once. The answer has no newest yet.
func (q question) ask(ctx context.Context, c *client.Client, about people, at pipeline.Position) (told, error) {
	a := told{about: about, asked: at}
	if q == unreadPoll {
		a.counter, a.ids = "unread", about.Users()
		reply, err := c.UnreadMany(ctx, client.UnreadRequest{Users: a.ids, MinPosition: at, Timeout: answeredWithin})
		for _, u := range reply.Users {
			if a.columns == nil && !u.Missing {
				a.columns = slices.Sorted(maps.Keys(u.Counts))
			}
			var row []int64
			for _, kind := range a.columns {
				if !u.Missing {
					row = append(row, u.Counts[kind])
				}
			}
			a.rows = append(a.rows, row)
		}
		a.asOf, a.missing, a.degraded = reply.AsOf, len(reply.Missing), reply.Degraded
		return a, err
	}
	a.counter, a.ids, a.columns = "post", about.Posts(), twin.PostColumns
	if q == usersGet {
		a.counter, a.ids, a.columns = "user", about.Users(), twin.UserColumns
	}
	reply, err := c.Get(ctx, client.GetRequest{Counter: a.counter, IDs: a.ids, Columns: a.columns, MinPosition: at, Timeout: answeredWithin})
	for _, row := range reply.Rows {
		a.rows = append(a.rows, row.Values)
	}
	a.asOf, a.missing, a.degraded = reply.AsOf, len(reply.Missing), reply.Degraded
	return a, err
}

var (
	// errWrong is an answer that must never be.
	errWrong = errors.New("soak: not the answer")
	// errPart is one that is not whole.
	errPart = errors.New("soak: not whole")
)

// take keeps an answer until it can be compared.
func (pr *probes) take(ctx context.Context, js jetstream.JetStream, in phase, a told) error {
	if a.asOf < a.asked || len(a.rows) != len(a.ids) {
		return fmt.Errorf("%w: %d of %d rows, as of %d, asked for %d", errWrong, len(a.rows), len(a.ids), a.asOf, a.asked)
	}
	end, err := endOf(ctx, js)
	if err != nil {
		return nil // the server has gone meanwhile: what is newest is not known
	}
	a.newest = max(pipeline.EndOf(end), a.asOf) // after a power cut EVENTS ends before what was counted, until that is mended
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.told = append(pr.told, a)
	if a.missing == 0 {
		return nil
	}
	pr.missing[in]++
	if in == besideFaults {
		return nil
	}
	return fmt.Errorf("%w: %d of %d are missing", errPart, a.missing, len(a.ids))
}

// check compares the answers since the last check; EVENTS was read back. Where
// log time was stepped, an unread number may be of a user who was dropped.
func (pr *probes) check(dropped bool) (numbers int, err error) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	all := pr.told
	pr.told = nil
	histories := map[people]*twin.History{}
	var wrong []string
	for _, a := range all {
		h := histories[a.about]
		if h == nil {
			h = a.about.(*twin.Community).History()
			histories[a.about] = h
		}
		for i, row := range a.rows {
			for j, v := range row {
				numbers++
				low, high := h.Between(a.counter, a.columns[j], a.ids[i], a.asOf, a.newest)
				if low <= v && v <= high || v == 0 && dropped && a.counter == "unread" {
					continue
				}
				wrong = append(wrong, fmt.Sprintf("%s.%s of %d is %d, must be %d to %d as of %d to %d; asked for %d\n%s",
					a.counter, a.columns[j], a.ids[i], v, low, high, a.asOf, a.newest, a.asked, a.about.About(a.ids[i])))
			}
		}
	}
	if len(wrong) > 0 {
		return numbers, fmt.Errorf("%d numbers of answers given meanwhile are not the twin's:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), differencesMax)], "\n"))
	}
	return numbers, nil
}
