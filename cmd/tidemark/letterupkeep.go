package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

type summaryCommand struct {
	remote
}

func (summaryCommand) Help() string {
	return `Counts the events that could not be understood by reason, and says when the oldest and the newest of them came.

EXAMPLE

    tidemark deadletters summary
    tidemark deadletters summary --json | jq '.reasons[] | {reason, letters}'`
}

// summaryJSON is a line of the summary.
type summaryJSON struct {
	Reason  string    `json:"reason"`
	Letters uint64    `json:"letters"`
	Oldest  stampJSON `json:"oldest"`
	Newest  stampJSON `json:"newest"`
}

type stampJSON struct {
	Seq  uint64    `json:"seq"` // in DEADLETTER
	Time time.Time `json:"time"`
}

func (s *summaryCommand) Run(t *terminal) error {
	return s.letters(func(ctx context.Context, box *letters.Box) error {
		counts, leftOut, err := box.Summary(ctx)
		if err != nil {
			return err
		}
		list, all := make([]summaryJSON, 0, len(counts)), uint64(0)
		for _, c := range counts {
			list = append(list, summaryJSON{
				c.Reason, c.Letters,
				stampJSON{c.Oldest.Sequence, c.Oldest.Time},
				stampJSON{c.Newest.Sequence, c.Newest.Time},
			})
			all += c.Letters
		}
		if s.JSON {
			return printJSON(t.out, struct {
				Letters uint64        `json:"letters"`
				Reasons []summaryJSON `json:"reasons"`
				LeftOut int           `json:"reasons_left_out,omitempty"`
			}{all, list, leftOut})
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(t.out, "no dead letters")
			return err
		}
		out := &table{left: []bool{0: true, 2: true, 3: true}}
		out.add("REASON", "LETTERS", "OLDEST", "NEWEST")
		for _, l := range list {
			out.add(printable(l.Reason, beginsShown), strconv.FormatUint(l.Letters, 10), clockTime(l.Oldest.Time), clockTime(l.Newest.Time))
		}
		if err := out.print(t.out); err != nil || leftOut == 0 {
			return err
		}
		_, err = fmt.Fprintf(t.out, "%s left out\n", count(leftOut, "more reason"))
		return err
	})
}

type purgeCommand struct {
	Reason string `placeholder:"R" help:"Only those refused for this reason: ${reasons}."`
	Before moment `placeholder:"TIME" help:"Only those kept before it: 2026-01-31, 2026-01-31T12:00:00Z, or so long ago: 7d, 12h."`
	Yes    bool   `help:"Delete all letters."`
	remote
}

func (purgeCommand) Help() string {
	return `Deletes events that could not be understood, and says how many. They are gone from the stream DEADLETTER, not from the event log.
Without --reason and --before it deletes nothing and says how many there are, unless --yes is given.

EXAMPLE

    tidemark deadletters purge --before 30d
    tidemark deadletters purge --reason json --before 2026-01-31
    tidemark deadletters purge --yes`
}

// Validate is called by kong.
func (p *purgeCommand) Validate() error {
	if err := knownReason(p.Reason); err != nil {
		return err
	}
	if time.Time(p.Before).After(time.Now()) {
		return fmt.Errorf("--before %s lies ahead", time.Time(p.Before).Format(time.RFC3339))
	}
	return p.remote.Validate()
}

func (p *purgeCommand) Run(t *terminal) error {
	return p.letters(func(ctx context.Context, box *letters.Box) error {
		all := p.Reason == "" && time.Time(p.Before).IsZero()
		if all && !p.Yes {
			n, err := box.Count(ctx)
			if err != nil {
				return err
			}
			return usage("this would delete all dead letters, %d of them: give --yes, or --reason or --before", n)
		}
		below := uint64(0)
		if at := time.Time(p.Before); !at.IsZero() {
			var err error
			if below, err = box.Before(ctx, at); err != nil {
				return err
			}
		}
		purged, err := box.Purge(ctx, p.Reason, below)
		if err != nil {
			return err
		}
		if p.JSON {
			return printJSON(t.out, struct {
				Purged uint64 `json:"purged"`
			}{purged})
		}
		_, err = fmt.Fprintf(t.out, "%s deleted\n", count(int(purged), "dead letter"))
		return err
	})
}

// moment is a point in time, or so long ago.
type moment time.Time

// UnmarshalText is called by kong.
func (m *moment) UnmarshalText(text []byte) error {
	if at, is := timeOf(string(text)); is {
		*m = moment(at)
		return nil
	}
	ago, err := agoOf(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time: say 2026-01-31, 2026-01-31T12:00:00Z, or so long ago: 7d, 12h", text)
	}
	if ago == 0 {
		return fmt.Errorf("%q ago is now, and all were kept before it: leave it out, which asks for --yes", text)
	}
	*m = moment(time.Now().Add(-ago))
	return nil
}

// timeOf reads a point in time as people write it; without a zone it is this machine's.
func timeOf(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// agoOf reads 7d, 1d12h and what Go's durations are.
func agoOf(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	part := time.Duration(0)
	if rest != "" {
		part, err = time.ParseDuration(rest)
	}
	if err == nil && part < 0 {
		err = errors.New("negative")
	}
	return time.Duration(n)*24*time.Hour + part, err
}
