package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/query"
)

func TestSlowlogTable(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.Local)
	slow := query.SlowRequest{
		Endpoint: "get", At: at, Code: 200, TotalUS: 61254, ParseUS: 11, TurnUS: 8000,
		MemoryUS: 243, DiskUS: 53_000, IDs: 1, Cold: 1, Request: `{"counter":"post","ids":[42]}`,
	}
	slower := slow
	slower.Endpoint, slower.Code, slower.TotalUS, slower.Request = "unread", 504, 90_000_000, "\x1b[2J\u009b"+strings.Repeat("é", 90)
	log := query.SlowLog{
		Node: "n1", Since: at, ThresholdUS: 50_000, OverThreshold: 1,
		Slowest: []query.SlowRequest{slower, slow}, Latest: []query.SlowRequest{slow},
	}
	head := "TOTAL  ENDPOINT  CODE  WHEN                     PARSE  TURN  POSITION  MEMORY  DISK  NODES  LOG  WRITE  IDS  COLD  REQUEST\n"
	line := "61.3ms  get        200  2026-02-03 04:05:06.789   11µs   8ms         0   243µs  53ms      0    0      0    1     1  {\"counter\":\"post\",\"ids\":[42]}\n"
	want := "n1 since 2026-02-03 04:05:06.789: 1 request took longer than 50ms\n\nTHE SLOWEST\n " + head +
		" 1m30s  unread     504  2026-02-03 04:05:06.789   11µs   8ms         0   243µs  53ms      0    0      0    1     1   [2J " + strings.Repeat("é", 75) + "…\n" + line +
		"\nTHE LATEST OVER 50ms\n " + head + line
	var out strings.Builder
	if err := (&slowlogCommand{Limit: 2}).print(&out, &log); err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
	out.Reset()
	log.ThresholdUS, log.Latest = 0, nil
	if err := (&slowlogCommand{Limit: 1}).print(&out, &log); err != nil || !strings.HasSuffix(out.String(), "…\n\nmore: --limit 2\n") || strings.Contains(out.String(), "LATEST") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 400: "0s", 1500: "2µs", 812 * time.Microsecond: "812µs", 5321 * time.Microsecond: "5.32ms",
		53211 * time.Microsecond: "53.2ms", 1254 * time.Millisecond: "1.25s", 61250 * time.Millisecond: "1m1.3s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
