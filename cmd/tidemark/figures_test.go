package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// figuresOf reads "name value" lines as a node would give them.
func figuresOf(text string) map[string]any {
	figures := map[string]any{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			figures[name] = json.Number(value)
		}
	}
	return figures
}

func printed(t *testing.T, s statsCommand, figures string) string {
	t.Helper()
	var out strings.Builder
	if err := s.print(&out, figuresOf(figures)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const everyFigure = `
	tidemark_rows{counter="post"} 1000000
	tidemark_row_bytes{counter="post"} 15728640
	tidemark_row_load{counter="post"} 0.8125
	tidemark_row_gets_total{counter="post"} 12
	tidemark_row_sets_total{counter="post"} 34
	tidemark_row_hits_total{counter="post"} 56
	tidemark_row_misses_total{counter="post"} 78
	tidemark_row_cold_reads_total{counter="post"} 9
	tidemark_row_errors_total{counter="post"} 1
	tidemark_row_evictions_total{counter="post"} 3
	tidemark_row_probe_mean{counter="post"} 1.0417
	tidemark_row_probe_longest{counter="post"} 7
	tidemark_row_cached{counter="post"} 5
	tidemark_rows_partial{counter="post"} 6
	tidemark_rows{counter="a"} 0
	tidemark_row_bytes{counter="a"} 512
	tidemark_column_sets_total{column="like",counter="post"} 30
	tidemark_column_escapes{column="like",counter="post"} 4
	tidemark_column_saturated_total{column="like",counter="post"} 0
	tidemark_column_sets_total{column="repost",counter="post"} 0
	tidemark_column_escapes{column="repost",counter="post"} 0
	tidemark_column_sets_total{column="x",counter="a"} 1
	tidemark_rows_dirty 8
	tidemark_events_total 99
	go_goroutines 17
`

func TestStatsBeginWithTables(t *testing.T) {
	want := `COUNTER     ROWS    BYTES  BYTES/ROW  LOAD  GETS  SETS  HITS  MISSES  COLD  ERRORS  EVICTED   PROBE
a              0      512          -     -     -     -     -       -     -       -        -       -
post     1000000  15.0MiB       15.7  0.81    12    34    56      78     9       1        3  1.04/7

COUNTER.COLUMN  SETS  ESCAPES  SATURATED
a.x                1        -          -
post.like         30        4          0

events_total                99
row_cached    counter=post   5
rows_dirty                   8
rows_partial  counter=post   6
`
	if got := printed(t, statsCommand{}, everyFigure); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := printed(t, statsCommand{All: true}, everyFigure)
	if !strings.Contains(got, "\npost.repost        0        0          -\n") || !strings.Contains(got, "\ngo_goroutines ") {
		t.Errorf("--all:\n%s", got)
	}
}

// A store that tells less, or something else under these names. Of a node with a row or two the
// tables have free places: their bytes are not the row's.
func TestStatsOfFewFigures(t *testing.T) {
	for figures, want := range map[string]string{
		"tidemark_events_total 99": "events_total    99\n",
		`tidemark_rows{counter="post",shard="3"} 5
		tidemark_rows 7
		tidemark_row_load{counter=""} 1
		tidemark_column_sets_total{column="like",counter="post"} 0
		tidemark_row_probe_longest{counter="post"} 4`: `COUNTER  ROWS  BYTES  BYTES/ROW  LOAD  GETS  SETS  HITS  MISSES  COLD  ERRORS  EVICTED  PROBE
post        -      -          -     -     -     -     -       -     -       -        -    -/4

row_load  counter=               1
rows                             7
          counter=post, shard=3  5
`,
		`tidemark_rows{counter="few"} 1
		tidemark_row_bytes{counter="few"} 76808
		tidemark_row_load{counter="few"} 0.0013
		tidemark_rows{counter="many"} 100
		tidemark_row_bytes{counter="many"} 3200
		tidemark_row_load{counter="many"} 0.25`: `COUNTER  ROWS    BYTES  BYTES/ROW  LOAD  GETS  SETS  HITS  MISSES  COLD  ERRORS  EVICTED  PROBE
few         1  75.0KiB          -  0.00     -     -     -       -     -       -        -      -
many      100   3.1KiB       32.0  0.25     -     -     -       -     -       -        -      -

`,
	} {
		if got := printed(t, statsCommand{}, figures); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// Every heading is explained.
func TestStatsHelp(t *testing.T) {
	help := statsCommand{}.Help()
	for line := range strings.Lines(printed(t, statsCommand{}, everyFigure)) {
		if !strings.HasPrefix(line, "COUNTER") {
			continue
		}
		for _, heading := range strings.Fields(line) {
			if !strings.Contains(help, "\n    "+heading+" ") {
				t.Errorf("%s is not explained", heading)
			}
		}
	}
}
