package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
)

type slowlogCommand struct {
	Reset bool `help:"Empty the log behind the answer."`
	Limit int  `default:"20" help:"Lines of each list, 1 or more (${default})."`
	remote
}

func (slowlogCommand) Help() string {
	return `Shows the slowest requests since the last reset, and the latest of those that took longer than slow.threshold.
--json prints all that is kept.

TOTAL is the sum of: PARSE reading the request; TURN waiting for a worker; POSITION waiting for min_position;
MEMORY and DISK reading; NODES waiting for other nodes; LOG waiting for the log to store a read; WRITE writing the reply.

EXAMPLE

    tidemark slowlog
    tidemark slowlog --reset
    tidemark slowlog --json | jq '.slowest[0]'`
}

func (s *slowlogCommand) Run(t *terminal) error {
	if s.Limit < 1 {
		return usage("--limit %d is less than 1", s.Limit)
	}
	return s.ask(func(ctx context.Context, c *client.Client) error {
		if s.JSON {
			return s.printReply(ctx, c, t, "slowlog", struct {
				Reset bool `json:"reset,omitempty"`
			}{s.Reset})
		}
		log, err := c.SlowLog(ctx, s.Reset)
		if err != nil {
			return err
		}
		return s.print(t.out, &log)
	})
}

func (s *slowlogCommand) print(to io.Writer, log *query.SlowLog) error {
	fmt.Fprintf(to, "%s since %s", log.Node, clockTime(log.Since))
	threshold := time.Duration(log.ThresholdUS) * time.Microsecond
	if threshold > 0 {
		fmt.Fprintf(to, ": %s took longer than %s", requests(log.OverThreshold), threshold)
	}
	fmt.Fprint(to, "\n\nTHE SLOWEST\n")
	if err := s.table(log.Slowest).print(to); err != nil {
		return err
	}
	if len(log.Latest) > 0 {
		fmt.Fprintf(to, "\nTHE LATEST OVER %s\n", threshold)
		if err := s.table(log.Latest).print(to); err != nil {
			return err
		}
	}
	if more := max(len(log.Slowest), len(log.Latest)); more > s.Limit {
		fmt.Fprintf(to, "\nmore: --limit %d\n", more)
	}
	return nil
}

// slowShown is how much of a request a line shows.
const slowShown = 80

func (s *slowlogCommand) table(list []query.SlowRequest) *table {
	out := &table{left: []bool{1: true, 3: true, 14: true}}
	out.add("TOTAL", "ENDPOINT", "CODE", "WHEN", "PARSE", "TURN", "POSITION", "MEMORY", "DISK", "NODES", "LOG", "WRITE", "IDS", "COLD", "REQUEST")
	for _, r := range list[:min(len(list), s.Limit)] {
		line := []string{short(time.Duration(r.TotalUS) * time.Microsecond), r.Endpoint, strconv.Itoa(r.Code), clockTime(r.At)}
		for _, us := range []int64{r.ParseUS, r.TurnUS, r.PositionUS, r.MemoryUS, r.DiskUS, r.NodesUS, r.LogUS, r.WriteUS} {
			line = append(line, short(time.Duration(us)*time.Microsecond))
		}
		out.add(append(line, strconv.Itoa(r.IDs), strconv.Itoa(r.Cold), printable(r.Request, slowShown))...)
	}
	return out
}

func requests(n uint64) string {
	if n == 1 {
		return "1 request"
	}
	return strconv.FormatUint(n, 10) + " requests"
}

// clockTime is a moment as the wall clock here showed it.
func clockTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// short is a duration with three digits: 812µs, 53.2ms, 1.25s.
func short(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// printable is the beginning of somebody else's text, harmless to a terminal.
func printable(text string, most int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}
