package importer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

// letterbench is a bench whose events are looked at as a router does, without
// a node: what is no event becomes a dead letter.
type letterbench struct {
	*bench
	lane    *operators.Lane
	letters *letters.DeadLetters
	looked  uint64 // sequence in EVENTS
}

func newLetterbench(t *testing.T) *letterbench {
	t.Helper()
	server := natstest.Server(t)
	streams, js := natstest.Streams(t, server)
	b := &letterbench{bench: benchOf(t, server, js)}
	c := config.Default()
	schema, err := c.Schema()
	b.must(err)
	program, err := operators.Compile(schema, c.Rules(), 4, operators.Limits{Events: 4096, Bytes: 1 << 20})
	b.must(err)
	b.lane = program.NewLane()
	b.letters, err = letters.NewDeadLetters(streams, nil)
	b.must(err)
	return b
}

// route keeps the letters of what came to EVENTS.
func (b *letterbench) route() {
	b.Helper()
	stream := b.events()
	for last := stream.CachedInfo().State.LastSeq; b.looked < last; b.looked++ {
		m, err := stream.GetMsg(b.ctx, b.looked+1)
		b.must(err)
		derived, err := b.lane.Derive(pipeline.EndOf(b.looked), pipeline.EndOf(m.Sequence), []pipeline.Message{
			{Sequence: m.Sequence, Time: m.Time.UnixMilli(), Subject: m.Subject, Header: m.Header, Data: m.Data},
		})
		b.must(err)
		for _, d := range derived {
			b.must(b.letters.Keep(b.ctx, d.Letters))
		}
	}
}

// other publishes what is not the import's.
func (b *letterbench) other(subject, body string) {
	b.Helper()
	_, err := b.js.Publish(b.ctx, subject, []byte(body))
	b.must(err)
}

func (b *letterbench) refused(r Result) Refused {
	b.Helper()
	refused, err := r.Refused(b.ctx, b.nc)
	b.must(err)
	return refused
}

// mixed are lines of which some are blank and some are no events, and what
// must be said of them.
func mixed(rng *rand.Rand, n int) (text string, want Refused) {
	want.Reasons = map[string]uint64{}
	var out strings.Builder
	events := uint64(0)
	for line := uint64(1); line <= uint64(n); line++ {
		bad, reason, why := "", "", ""
		switch rng.IntN(12) {
		case 0, 1:
			out.WriteString([]string{"", " \t", "\r"}[rng.IntN(3)] + "\n")
			continue
		case 2:
			bad, reason, why = `{"type":"like","actor":0,"post":1,"author":2}`, "id", "actor: 0 is not an id"
		case 3:
			bad, reason, why = fmt.Sprintf(`{"type":"follow","actor":%d,"target":%d}`, line, line), "self", fmt.Sprintf("user %d follows themself", line)
		default:
			fmt.Fprintf(&out, `{"type":"like","actor":%d,"post":1,"author":2}`+"\n", line)
			events++
			continue
		}
		events++
		out.WriteString(bad + "\n")
		want.Lines++
		want.Reasons[reason]++
		if len(want.Examples) < refusedShownMax {
			want.Examples = append(want.Examples, RefusedLine{Line: line, Event: events, Reason: reason, Error: why, Letter: want.Lines})
		}
	}
	return out.String(), want
}

func (b *letterbench) wantRefused(r Result, want Refused) {
	b.Helper()
	got := b.refused(r)
	for i := range got.Examples { // other producers' may be in between
		if i < len(want.Examples) {
			want.Examples[i].Letter = got.Examples[i].Letter
		}
	}
	if !reflect.DeepEqual(got, want) {
		b.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// Lines are named by their place in the input, blank ones included, whatever
// the packs; and counted each once.
func TestRefused(t *testing.T) {
	for name, o := range map[string]Options{"256": {}, "7": {Pack: 7}} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			b := newLetterbench(t)
			// Others' letters, before and among ours.
			b.other("events.like", "not ours")
			text, want := mixed(rand.New(rand.NewPCG(seed, 1)), 1000)
			r, err := b.run("\xef\xbb\xbf"+text, o)
			b.must(err)
			b.other("events.pack", "not ours\neither")
			b.route()
			b.wantRefused(r, want)

			// The same letters again, as a router that was stopped in between keeps them.
			stream, err := b.js.Stream(b.ctx, jetlog.DeadLetterStream)
			b.must(err)
			for sequence := stream.CachedInfo().State.LastSeq; sequence > 0; sequence -= min(sequence, 5) {
				m, err := stream.GetMsg(b.ctx, sequence)
				b.must(err)
				m.Header.Del(jetstream.MsgIDHeader)
				_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
				b.must(err)
			}
			b.wantRefused(r, want)

			// Run again, it says the same of what is there already.
			again, err := b.run("\xef\xbb\xbf"+text, Options{})
			if b.must(err); !again.Already {
				t.Errorf("%+v", again)
			}
			b.wantRefused(again, want)
		})
	}
}

func TestRefusedNothing(t *testing.T) {
	b := newLetterbench(t)
	lines, text := events(10)
	for _, text := range []string{text, "\n\n \n", ""} {
		r, err := b.run(text, Options{})
		b.must(err)
		b.route()
		b.want(lines)
		b.wantRefused(r, Refused{Reasons: map[string]uint64{}})
	}
}

// An import that goes on after an interruption, or with lines added, tells of
// all its lines.
func TestRefusedByEarlierRuns(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := newLetterbench(t)
	text, want := mixed(rand.New(rand.NewPCG(seed, 1)), 20_000)
	ctx, cancel := context.WithCancel(b.ctx)
	if _, err := Run(ctx, b.nc, "-", atBytes(text, len(text)/2, cancel), Options{Pack: 32}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.route()
	rest, err := b.run(text, Options{})
	if b.must(err); rest.Skipped == 0 {
		t.Errorf("%+v", rest)
	}
	b.route()
	b.wantRefused(rest, want)

	more := text + "\n\nno event\n"
	grown, err := b.run(more, Options{})
	b.must(err)
	b.route()
	want.Lines++
	want.Reasons["json"]++
	b.wantRefused(grown, want)

	// Another import is another's.
	other, err := b.run(more[len(more)-9:], Options{})
	b.must(err)
	b.route()
	if got := b.refused(other); got.Lines != 1 || got.Examples[0].Line != 1 {
		t.Errorf("%+v", got)
	}
}

// docs/architecture.md: "DEADLETTER discards its oldest when full": then it is said that
// there may be more.
func TestRefusedAtLeast(t *testing.T) {
	b := newLetterbench(t)
	b.other("events.like", "not ours")
	b.route()
	r, err := b.run("a\nb\nc\n{\"type\":\"like\",\"actor\":1,\"post\":1,\"author\":2}\nd\n", Options{})
	b.must(err)
	b.route()
	stream, err := b.js.Stream(b.ctx, jetlog.DeadLetterStream)
	b.must(err)
	b.must(stream.Purge(b.ctx))
	config := stream.CachedInfo().Config
	b.must(b.js.DeleteStream(b.ctx, config.Name))
	_, err = b.js.CreateStream(b.ctx, config)
	b.must(err)
	if got := b.refused(r); got.Lines != 0 || got.AtLeast == "" {
		t.Errorf("of a DEADLETTER that was recreated: %+v", got)
	}
	// The log of letters lost its tail: what is there now is at numbers that
	// were others' before.
	recreated, err := b.js.Stream(b.ctx, jetlog.DeadLetterStream)
	b.must(err)
	ahead := *r.refusals
	ahead.letters = lettersBegin{1000, recreated.CachedInfo().Created}
	if got := b.refused(Result{refusals: &ahead}); got.AtLeast == "" {
		t.Errorf("%+v", got)
	}
	b.must(b.js.DeleteStream(b.ctx, jetlog.DeadLetterStream))
	if _, err := r.Refused(b.ctx, b.nc); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error(err)
	}
	// An import may go on, and begin, without it.
	_, err = b.run("another\n", Options{})
	b.must(err)
}

// A letter that was deleted before an import began is none of it, one that was
// deleted since may be; the first and the last one too.
func TestRefusedBesideDeletedLetters(t *testing.T) {
	for name, c := range map[string]struct {
		before, since []uint64
		lines         uint64
		atLeast       bool
	}{
		"none":             {nil, nil, 4, false},
		"the last before":  {[]uint64{3}, nil, 4, false},
		"a later one":      {[]uint64{2}, []uint64{8}, 4, true}, // nobody knows whose it was
		"the first since":  {nil, []uint64{4}, 3, true},
		"the last since":   {nil, []uint64{7, 8}, 3, true},
		"all since":        {[]uint64{2}, []uint64{4, 5, 6, 7}, 0, true},
		"others' since":    {nil, []uint64{2}, 4, false},
		"before and since": {[]uint64{2}, []uint64{6}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLetterbench(t)
			b.other("events.pack", "not ours\nneither\nnor this")
			b.route()
			stream, err := b.js.Stream(b.ctx, jetlog.DeadLetterStream)
			b.must(err)
			for _, sequence := range c.before {
				b.must(stream.DeleteMsg(b.ctx, sequence))
			}
			r, err := b.run("a\nb\nc\nd\n", Options{})
			b.must(err)
			b.other("events.like", "not ours")
			b.route()
			for _, sequence := range c.since {
				b.must(stream.DeleteMsg(b.ctx, sequence))
			}
			if got := b.refused(r); got.Lines != c.lines || (got.AtLeast != "") != c.atLeast {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestLineSet(t *testing.T) {
	s, twin := lineSet{}, map[uint64]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		line := rng.Uint64N(1 << 17)
		if rng.IntN(1000) == 0 {
			line += 1 << 60
		}
		if s.add(line) == twin[line] {
			t.Fatalf("line %d", line)
		}
		twin[line] = true
	}
	full := lineSet{chunks: map[uint64]*[64]uint64{}}
	for i := range uint64(lineSetChunksMax) {
		full.chunks[i] = nil
	}
	if full.add(lineSetChunksMax<<12) || !full.full {
		t.Error("there is room")
	}
}

// The numbers of lines are exact up to a bound, and then not given.
func TestNumbersAreBounded(t *testing.T) {
	var n numbers
	for event := uint64(1); event <= blankRunsMax+10; event++ {
		n.next(2 * event) // every other line is blank
	}
	if len(n.runs) != blankRunsMax {
		t.Errorf("%d runs", len(n.runs))
	}
	got := map[uint64]uint64{}
	for _, event := range []uint64{1, 2, 1000, blankRunsMax, blankRunsMax + 1, blankRunsMax + 10, blankRunsMax + 11} {
		got[event] = n.line(event)
	}
	want := map[uint64]uint64{1: 2, 2: 4, 1000: 2000, blankRunsMax: 2 * blankRunsMax, blankRunsMax + 1: 0, blankRunsMax + 10: 0, blankRunsMax + 11: 0}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
