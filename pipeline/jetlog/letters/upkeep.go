package letters

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Count says how many letters there are of a reason.
type Count struct {
	Reason         string
	Letters        uint64
	Oldest, Newest Stamp
}

// Stamp says which letter, and when it was kept.
type Stamp struct {
	Sequence uint64 // in DEADLETTER
	Time     time.Time
}

// reasonsMax bounds a summary: somebody may publish under any subject there.
const reasonsMax = 100

// Summary counts the letters by reason, the most first. It says how many
// reasons it leaves out, beyond a hundred.
func (b *Box) Summary(ctx context.Context) (counts []Count, leftOut int, err error) {
	i, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(jetlog.DeadLetterSubject+">"))
	if err != nil {
		return nil, 0, fmt.Errorf("letters: look at %s: %w", jetlog.DeadLetterStream, err)
	}
	for subject, n := range i.State.Subjects {
		counts = append(counts, Count{Reason: strings.TrimPrefix(subject, jetlog.DeadLetterSubject), Letters: n})
	}
	slices.SortFunc(counts, func(a, b Count) int {
		if a.Letters != b.Letters {
			return cmp.Compare(b.Letters, a.Letters)
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	if leftOut = max(0, len(counts)-reasonsMax); leftOut > 0 {
		counts = counts[:reasonsMax]
	}
	for n := range counts {
		c := &counts[n]
		first, err := jetlog.NextStored(ctx, b.nc, jetlog.DeadLetterStream, 1, jetlog.DeadLetterSubject+c.Reason)
		if err == nil {
			c.Oldest = Stamp{first.Sequence, first.Time}
			first, err = jetlog.LastStored(ctx, b.nc, jetlog.DeadLetterStream, jetlog.DeadLetterSubject+c.Reason)
		}
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // all of them are gone meanwhile
			c.Letters = 0
		case err != nil:
			return nil, 0, fmt.Errorf("letters: read the letters of reason %s: %w", c.Reason, err)
		default:
			c.Newest = Stamp{first.Sequence, first.Time}
		}
	}
	return slices.DeleteFunc(counts, func(c Count) bool { return c.Letters == 0 }), leftOut, nil
}

// Before is the first letter that was kept at a time or after it; one past the
// last when there is none.
func (b *Box) Before(ctx context.Context, at time.Time) (uint64, error) {
	s, err := b.State(ctx)
	if err != nil || s.First > s.Last {
		return s.Last + 1, err
	}
	since := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at}
	first, found := s.Last+1, errors.New("found")
	err = jetlog.VisitHeaders(ctx, b.js, jetlog.DeadLetterStream, since, func(m *jetlog.Stored) error {
		first = m.Sequence
		return found
	})
	if err != nil && err != found {
		return 0, fmt.Errorf("letters: find the letters since %v: %w", at, err)
	}
	return first, nil
}

// Count says how many letters there are.
func (b *Box) Count(ctx context.Context) (uint64, error) {
	i, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("letters: look at %s: %w", jetlog.DeadLetterStream, err)
	}
	return i.State.Msgs, nil
}

// Purge deletes the letters below a sequence, 0 for all; with a reason, those.
// It says how many it deleted.
func (b *Box) Purge(ctx context.Context, reason string, below uint64) (uint64, error) {
	request := struct {
		Filter string `json:"filter,omitempty"`
		Below  uint64 `json:"seq,omitempty"`
	}{Below: below}
	if reason != "" {
		request.Filter = jetlog.DeadLetterSubject + reason
	}
	body, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	// jetstream.Stream.Purge does not say how many.
	reply, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+jetlog.DeadLetterStream, body)
	if err != nil {
		return 0, fmt.Errorf("letters: purge %s: %w", jetlog.DeadLetterStream, err)
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, fmt.Errorf("letters: purge %s: %w", jetlog.DeadLetterStream, err)
	}
	if answer.Error != nil {
		return 0, fmt.Errorf("letters: purge %s: %w", jetlog.DeadLetterStream, answer.Error)
	}
	return answer.Purged, nil
}
