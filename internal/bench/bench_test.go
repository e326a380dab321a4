package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// tiny is enough to see that every line comes about.
var tiny = sizes{
	rounds:  1,
	backlog: 5000, packed: 5120, replayed: 5120,
	sustained: 5120,
	pace:      1000, probes: 20, visible: 500 * time.Millisecond,
	asked: 1000, persons: 100, calls: 20, calling: 500 * time.Millisecond,
	pollers: 10, polled: 1000,
	rows: []int{500, 1000}, ask: 100 * time.Millisecond,
	hot: 2000, pauses: 1500 * time.Millisecond,
	moving: 500 * time.Millisecond, calm: 200 * time.Millisecond,
}

// A load is this program again, with other arguments, and so is an echo.
func TestMain(m *testing.M) {
	beChild(os.Args)
	os.Exit(m.Run())
}

// Every measurement runs, at a size that says nothing.
func TestEveryLine(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the program")
	}
	b, err := newBench(tiny, "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if b.redis == "" && os.Getenv("CI") == "true" {
		t.Error(errRedis)
	}
	good := b.run(context.Background())
	t.Log("\n" + b.table.text(machine(b.redis)))
	if !good {
		t.Fatal("a measurement failed")
	}
	for _, l := range b.table.lines {
		if len(l.ours) == 0 || l.ours.median() < 0 {
			t.Errorf("%s: no figure", l.what)
		}
		if b.redis == "" && strings.HasPrefix(l.beside, "Redis") && l.lack != errRedis {
			t.Errorf("%s: nothing says that there is no Redis", l.what)
		}
	}
	if want := 55; len(b.table.lines) != want {
		t.Errorf("%d lines, want %d", len(b.table.lines), want)
	}
}

func TestOnly(t *testing.T) {
	b, err := newBench(tiny, "polls,packs", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if len(b.wanted) != 2 || !b.wanted["polls"] || !b.wanted["packs"] {
		t.Errorf("%v", b.wanted)
	}
	if _, err := newBench(tiny, "polls,speed", t.Output()); err == nil || !strings.Contains(err.Error(), "multiget") {
		t.Errorf("an unknown name: %v", err)
	}
}

// After the run nothing is left, and nothing can be started.
func TestNothingIsLeft(t *testing.T) {
	b, err := newBench(tiny, "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.children.start(filepath.Join(b.dir, "log"), nil, "sleep", "60")
	if err != nil {
		t.Skip(err)
	}
	b.close()
	if p.ended() == nil {
		t.Error("a child still runs")
	}
	if _, err := b.children.start(filepath.Join(t.TempDir(), "log"), nil, "sleep", "60"); err == nil {
		t.Error("a child was started after the end")
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("the directory is still there")
	}
}

// The rival does the changes that the default rules derive, one for one.
func TestRivalCountsTheSame(t *testing.T) {
	c := twin.EveryTime(config.Default())
	schema, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	program, err := operators.Compile(schema, c.Rules(), 1, operators.Limits{Events: 1 << 20, Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	type cell struct {
		column string
		id     uint64
	}
	want, got := map[cell]int64{}, map[cell]int64{}
	var messages []pipeline.Message
	community := newCommunity(7)
	for i := range uint64(5000) {
		kind, body := community.event(nil)
		if i%100 == 0 { // a user to themself
			body = toThemself(body)
		}
		messages = append(messages, pipeline.Message{Sequence: i + 1, Time: 1, Subject: "events." + kind, Data: body})
		var e rivalEvent
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		e.changes(func(counter string, id uint64, column string) { got[cell{counter + "." + column, id}]++ })
	}
	derived, err := program.NewLane().Derive(0, pipeline.EndOf(5000), messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range derived {
		if len(d.Letters) > 0 {
			t.Fatalf("refused: %v", d.Letters[0])
		}
		w, err := pipeline.DecodeWindow(d.Window)
		if err != nil {
			t.Fatal(err)
		}
		s := pipeline.ReadSection(w.Sections[0], w.From)
		for change, ok := s.Next(); ok; change, ok = s.Next() {
			if change.Op == pipeline.OpCell {
				n, _ := change.Delta.Amount()
				want[cell{w.Columns[change.Column], change.ID}] += n
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	for at, n := range want {
		if got[at] != n {
			t.Errorf("%v: the rules count %d, the rival %d", at, n, got[at])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the rules change %d cells, the rival %d", len(want), len(got))
	}
}

// toThemself makes the actor 5 and the author or target 5 too.
func toThemself(body []byte) []byte {
	var e map[string]any
	_ = json.Unmarshal(body, &e)
	for _, name := range []string{"actor", "author", "target"} {
		if _, ok := e[name]; ok {
			e[name] = 5
		}
	}
	out, _ := json.Marshal(e)
	return out
}

func TestPosts(t *testing.T) {
	seen := map[uint64]bool{}
	wide := 0
	for i := range uint64(100_000) {
		id := postID(i)
		if seen[id] || id == 0 {
			t.Fatalf("post %d has id %d, which is taken", i, id)
		}
		seen[id] = true
		for _, n := range countsOf(i) {
			if n < 1 {
				t.Fatalf("post %d counts %v", i, countsOf(i))
			}
		}
		if countsOf(i)[likesAt] > 255 {
			wide++
		}
	}
	if wide < 100 || wide > 400 {
		t.Errorf("%d of 100,000 like counts do not fit into 8 bits; some 200 are meant to", wide)
	}
	if line := string(adjustLine(nil, 42, "like", 3)); line != `{"type":"adjust","counter":"post","id":42,"column":"like","set":3}` {
		t.Error(line)
	}
}

func TestSample(t *testing.T) {
	s := sample{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := s.median(); got != 3 {
		t.Errorf("median %v", got)
	}
	if got := (sample{1, 2}).median(); got != 1.5 {
		t.Errorf("median of two %v", got)
	}
	if got := (sample{6, 8, 9}).over(sample{2, 4}); !slices.Equal(got, sample{3, 2}) {
		t.Errorf("ratios %v", got)
	}
	if got := number(sample{}.median()) + number(sample{}.quantile(1)); got != "––" {
		t.Errorf("of nothing: %s", got)
	}
	for v, want := range map[float64]string{
		0: "0", 0.7: "0.700", 0.0123: "0.0123", 4: "4.00", 47.25: "47.2", 123.4: "123", 1234: "1,230",
		999_999: "1,000,000", 12_345_678: "12,300,000", -1234: "-1,230", -123: "-123", 1e-9: "0.000000",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		line
		want string
	}{
		"no target":       {line{ours: sample{1}}, "–"},
		"no figure":       {line{target: atLeast(1)}, "–"},
		"no rival":        {line{ours: sample{1}, target: ratioAtLeast(1)}, "–"},
		"fast enough":     {line{ours: sample{5, 1, 6}, target: atLeast(5)}, "yes"},
		"too slow":        {line{ours: sample{5, 1, 4}, target: atLeast(5)}, "no"},
		"small enough":    {line{ours: sample{5}, target: atMost(5)}, "yes"},
		"too large":       {line{ours: sample{5.1}, target: atMost(5)}, "no"},
		"ratio holds":     {line{ours: sample{4, 9}, theirs: sample{1, 3}, target: ratioAtLeast(3.5)}, "yes"},
		"ratio does not":  {line{ours: sample{4, 9}, theirs: sample{1, 3}, target: ratioAtLeast(3.6)}, "no"},
		"the median does": {line{ours: sample{1, 50, 60}, target: atMost(50)}, "yes"},
	} {
		if got := c.verdict(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out table
	out.add(line{what: "ingest", unit: "events/s", ours: sample{300_000, 330_000}, beside: "bare", theirs: sample{400_000, 400_000}, target: ratioAtLeast(0.7)})
	out.add(line{what: "memory", unit: "bytes", ours: sample{20}, beside: "Redis", lack: errRedis, target: atMost(20)})
	out.fail("feed", errors.New("no\nluck"))
	out.note("a note of %d words", 4)
	const text = `two cores

what            Tidemark           rounds  beside it                                                           figure  ratio      target  holds
ingest  315,000 events/s  300,000–330,000  bare                                                      400,000 events/s  0.787     ≥ 0.7 ×  yes
memory        20.0 bytes                –  Redis: no redis-server in PATH: apt install redis-server                 –      –  ≤ 20 bytes  yes
feed              failed                –  see below                                                                –      –           –  –

feed failed: no luck
a note of 4 words
`
	if got := out.text("two cores"); got != text {
		t.Errorf("text:\n%s\nwant:\n%s", got, text)
	}
	const markdown = `two cores

| what | Tidemark | rounds | beside it | figure | ratio | target | holds |
|---|--:|--:|---|--:|--:|--:|---|
| ingest | 315,000 events/s | 300,000–330,000 | bare | 400,000 events/s | 0.787 | ≥ 0.7 × | yes |
| memory | 20.0 bytes | – | Redis: no redis-server in PATH: apt install redis-server | – | – | ≤ 20 bytes | yes |
| feed | failed | – | see below | – | – | – | – |

- feed failed: no luck
- a note of 4 words
`
	if got := out.markdown("two cores"); got != markdown {
		t.Errorf("markdown:\n%s\nwant:\n%s", got, markdown)
	}
}

func TestPausesIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	before := "gc 1 @0.010s 2%: 9.0+0.5+9.0 ms clock, 0.03+0.1/0.4/0.1+0.05 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	after := "time=… level=ERROR msg=x\n" + strings.NewReplacer("9.0+0.5+9.0", "0.018+1.1+0.25").Replace(before) +
		"gc 3 @0.1s 0%: 0.5+3+0.003 ms clock, 0+0/0/0+0 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)\n"
	if err := os.WriteFile(path, []byte(before+after), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := pausesIn(path, int64(len(before)))
	if err != nil || !slices.Equal(got, sample{0.018, 0.25, 0.5, 0.003}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestOthers(t *testing.T) {
	begun := cpu{at: time.Unix(0, 0), busy: time.Hour, ours: time.Minute}
	now := cpu{at: time.Unix(10, 0), busy: time.Hour + 12*time.Second, ours: time.Minute + 7*time.Second}
	if got := begun.others(now, 2); got != 0.25 {
		t.Errorf("%v", got)
	}
	if got := ticks("cpu 100 x 20", 1, 2, 3, 9); got != 1200*time.Millisecond {
		t.Errorf("ticks %v", got)
	}
}
