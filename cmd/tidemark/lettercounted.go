package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/query/client"
)

// rebuilt knows which letters are of events that the serving generation counts. A
// letter names the generation that refused its event. Any other generation derived
// the event by itself, from EVENTS, and whether that one counts it follows from what it
// counts by.
type rebuilt struct {
	serving generation.Number
	judge   *judge // nil: there was no rebuild, and no letter is another generation's
}

// newRebuilt asks which generation serves, and by what it counts. What the bucket says
// must be what the nodes say: it may have been deleted a moment ago.
func newRebuilt(ctx context.Context, nc *nats.Conn, c *client.Client) (*rebuilt, error) {
	set, err := bucket.LoadGenerations(ctx, nc)
	if err != nil {
		return nil, err
	}
	figures, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	// A thin node does not say.
	if serving, says := figures["tidemark_generation_serving"].(json.Number); says && serving.String() != strconv.Itoa(int(set.Serving)) {
		return nil, fmt.Errorf("generation %s serves, and by the record in bucket %s it is %d: try again in a moment", serving, jetlog.Bucket, set.Serving)
	}
	r := &rebuilt{serving: set.Serving}
	if counting := set.All[set.Serving].Counting; len(counting) > 0 {
		by, err := config.Default().CountingBy(counting)
		if err != nil {
			return nil, fmt.Errorf("what generation %d counts: %w", set.Serving, err)
		}
		if r.judge, err = judgeByConfig(by); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// counts says whether the serving generation counts a letter's event, at the position
// where it came.
func (r *rebuilt) counts(l *letters.Letter) (bool, error) {
	if r.judge == nil || l.Generation == 0 || l.Generation == r.serving || l.Subject == "" {
		return false, nil
	}
	fault, err := r.judge.fault(l.Subject, l.Body)
	return fault == nil, err
}

// why says which generation counts a letter's event.
func (r *rebuilt) why(l *letters.Letter) string {
	return fmt.Sprintf("generation %d, which serves, counts the event there; generation %d refused it", r.serving, l.Generation)
}

// letterNotes know what became of the events of letters.
type letterNotes struct {
	first    map[letters.EventID]uint64 // the first letter of each event
	rebuilt  *rebuilt
	resender *letters.Resender
}

// newLetterNotes asks what there is to know. Letters are listed without a node too:
// then what the serving generation counts is not known, which is written to warn.
func newLetterNotes(ctx context.Context, nc *nats.Conn, box *letters.Box, found []letters.Letter, warn io.Writer) (n *letterNotes, err error) {
	n = new(letterNotes)
	if n.rebuilt, err = newRebuilt(ctx, nc, client.New(nc)); err != nil {
		fmt.Fprintf(warn, "not known: which events the serving generation counts: %s\n", sentence(err))
		n.rebuilt = new(rebuilt)
	}
	if n.resender, err = box.Resender(ctx); err != nil {
		return nil, err
	}
	from := found[0].Position
	for i := range found {
		from = min(from, found[i].Position)
	}
	n.first, err = box.Since(ctx, from)
	return n, err
}

// note says of a letter what became of its event.
func (n *letterNotes) note(ctx context.Context, l *letters.Letter, line *letterJSON) error {
	if event, ok := l.Event(); ok && n.first[event] < l.Sequence {
		line.Same = n.first[event]
	}
	counts, err := n.rebuilt.counts(l)
	if err != nil {
		return err
	}
	if counts {
		line.Counted = fmt.Sprintf("generation %d counts it", n.rebuilt.serving)
	}
	at, err := n.resender.Sent(ctx, l)
	if err == nil && at != 0 {
		line.Sent = at.String()
	}
	return err
}
