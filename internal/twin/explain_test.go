package twin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/service"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// listLog is a log that ends where it ends.
type listLog struct {
	messages []pipeline.Message // without holes; the first one has sequence first
	first    uint64
	open     atomic.Int64 // sources
}

// begins is the log from a message on.
func (l *listLog) begins(log []pipeline.Message, first int) {
	l.first, l.messages = uint64(first), log[first-1:]
}

func (l *listLog) Extent(context.Context) (check.Extent, error) { return listParts{l}.Extent(), nil }

func (l *listLog) Begin(context.Context) (check.Parts, error) { return listParts{l}, nil }

func (l *listLog) Open(_ context.Context, from pipeline.Position, _ int) (pipeline.Source, error) {
	if from.Next() < l.first {
		return nil, pipeline.ErrGap
	}
	l.open.Add(1)
	rest := l.messages[from.Next()-l.first:]
	return &listSource{runsOf[pipeline.Message]{rest, 7, errors.New("read behind the end")}, l}, nil
}

// listParts are all of it.
type listParts struct{ *listLog }

func (p listParts) Extent() check.Extent {
	return check.Extent{First: p.first, Last: p.first + uint64(len(p.messages)) - 1, Created: time.Unix(1, 0)}
}

func (p listParts) Get(_ context.Context, sequence uint64) (m pipeline.Message, there bool, err error) {
	if sequence < p.first || sequence-p.first >= uint64(len(p.messages)) {
		return m, false, nil
	}
	return p.messages[sequence-p.first], true, nil
}

type listSource struct {
	runsOf[pipeline.Message]
	log *listLog
}

func (s *listSource) Close() error {
	s.log.open.Add(-1)
	return nil
}

// explaining asks what is behind the numbers of a world.
type explaining struct {
	*world
	*client.Client
	r    *rand.Rand
	log  *listLog
	x    *check.Explainer
	seen map[string]int
}

// explainer explains from a log, with filters of 40 events.
func (w *world) explainer(t *testing.T, log *listLog) *check.Explainer {
	program, err := operators.Compile(w.schema, w.rules, 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return check.NewExplainer(check.ExplainOptions{
		Schema: w.schema, Users: w.options().Users, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: log,
		Dir: t.TempDir(), Upto: func() uint64 { return log.first + uint64(len(log.messages)) - 1 },
		Rate: 1 << 30, BytesMax: 1 << 30, Events: 40,
	})
}

func (w *world) explaining(t *testing.T, r *rand.Rand) *explaining {
	x := &explaining{world: w, r: r, log: &listLog{}, seen: map[string]int{}}
	x.x = w.explainer(t, x.log)
	nc := natstest.Connect(t, natstest.Server(t))
	s, err := service.New(nc, service.Options{Schema: w.schema, Reader: w.node, Explainer: x.x, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	x.Client = client.New(nc)
	return x
}

// all are all pages of a number, and the first reply. In one page of two it is
// all that there is.
func (x *explaining) all(number string, id uint64) (first client.ExplainReply, events []client.ExplainedEvent, err error) {
	r := client.ExplainRequest{Number: number, ID: id, Limit: []int{1 + x.r.IntN(6), 1000}[x.r.IntN(2)], Timeout: 20 * time.Second}
	for {
		page, err := x.Explain(context.Background(), r)
		if err != nil {
			return first, nil, err
		}
		if len(page.Events) > r.Limit {
			return first, nil, fmt.Errorf("%d events in a page of %d", len(page.Events), r.Limit)
		}
		for _, e := range page.Events {
			if n := len(events); n > 0 && events[n-1].Position <= e.Position {
				return first, nil, fmt.Errorf("%d comes after %d", e.Position, events[n-1].Position)
			}
			events = append(events, e)
		}
		if r.Before == 0 {
			first = page
		}
		if r.Before = page.Next; page.Next == 0 {
			first.Base = page.Base
			return first, events, nil
		}
	}
}

// docs/contract.md: "The events behind the number, newest first, what each changed,
// paged; their sum is the number": of every number of generated stories, of feed, channels
// and dots, alone and in the badge, in one page and in many, with packs, deletions,
// adjusts, late reads, and what counts once; with filters and without; and where the log's
// beginning is gone.
func TestExplain(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./internal/twin -run 'TestExplain$' -seed=%d", seed)
	worlds, seen := 24, map[string]int{}
	if testing.Short() {
		worlds = 6
	}
	lacks := func(what string) bool { return seen[what] == 0 }
	kinds := []string{"feed", "channel", "dot", "below", "read"}
	for number := 0; number < worlds || number < 20*worlds && slices.ContainsFunc(kinds, lacks); number++ {
		if err := explainWorld(t, seed, number, seen); err != nil {
			t.Fatalf("world %d: %v", number, err)
		}
	}
	if t.Log(seen); slices.ContainsFunc(kinds, lacks) {
		t.Errorf("in no story there was anything to explain of some of %v", kinds)
	}
}

func explainWorld(t *testing.T, seed uint64, number int, seen map[string]int) error {
	of := setupOf(seed, number*perWorld)
	if of.ages.items > 0 { // what newer items have pushed out of a list an explanation may take for there
		of.ages.items = 1000
	}
	w, err := newWorld(t.TempDir(), of)
	if err != nil {
		return err
	}
	defer w.close()
	r := chances(seed, number)
	x := w.explaining(t, r)
	x.seen = seen
	for story := range 3 {
		s, m := generate(r, 10*number+story, w.ages), &model{ages: w.ages, defaults: w.defaults}
		for i := range s.messages {
			if w.ages.once || w.ages.items > 0 { // an explanation knows the times of the events that it reads alone
				s.messages[i].step = max(s.messages[i].step, 0)
			}
		}
		if err := w.runs(r, s.messages, m, func() error { return nil }, func() error {
			x.log.begins(w.log, 1)
			if r.IntN(3) == 0 {
				x.log.begins(w.log, max(len(w.log)-r.IntN(40), 1))
			}
			if r.IntN(4) == 0 {
				if err := x.x.Make(t.Context()); err != nil {
					return err
				}
			}
			m.now, m.notices = w.clock/1000, w.notices
			for _, user := range s.users {
				if err := errors.Join(w.settle(), x.badge(m, user)); err != nil {
					return fmt.Errorf("after %d messages, user %d: %w", len(w.log), user, err)
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("story %d: %w", story, err)
		}
		x.log.begins(w.log, 1)
		if err := errors.Join(x.numbers(s.people, m), w.finish(s, m)); err != nil {
			return fmt.Errorf("story %d: %w", story, err)
		}
	}
	if n := x.log.open.Load(); n != 0 {
		return fmt.Errorf("%d sources stay open", n)
	}
	return nil
}

// numbers compares each column of people with the model, event by event.
func (x *explaining) numbers(about people, m *model) error {
	type number struct {
		counter, column string
		id              uint64
		values          []int64 // before the first event, and after each
	}
	var all []*number
	for _, of := range []struct {
		counter string
		columns []string
		ids     []uint64
	}{
		{"user", userColumns, about.users},
		{"unread", unreadKinds, about.users},
		{"post", postColumns, about.posts},
		{"page", []string{"view"}, about.pages},
	} {
		for _, column := range of.columns {
			for _, id := range of.ids {
				all = append(all, &number{counter: of.counter, column: column, id: id})
			}
		}
	}
	note := func(_ *logged, c *counts) {
		for _, n := range all {
			n.values = append(n.values, m.value(c, n.counter, n.column, n.id))
		}
	}
	note(nil, &counts{})
	m.countEach(note)
	for _, n := range all {
		what := fmt.Sprintf("%s.%s of %d", n.counter, n.column, n.id)
		_, events, err := x.all(n.counter+"."+n.column, n.id)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		changes := map[pipeline.Position]client.ExplainedEvent{}
		for _, e := range events {
			changes[e.Position] = e
		}
		value := n.values[0]
		for i, e := range m.log {
			change := changes[e.position]
			if delete(changes, e.position); strings.HasPrefix(change.Change, "=") {
				value = 0
			}
			by, _ := strconv.ParseInt(strings.TrimPrefix(change.Change, "="), 10, 64)
			if value += by; value != n.values[i+1] || change.Unsure {
				return fmt.Errorf("%s after the event at %s (%s): %d by the events, %d by the model; explained: %+v", what, e.position, e.kind, value, n.values[i+1], change)
			}
		}
		if len(changes) > 0 {
			return fmt.Errorf("%s: explained, and not in the model: %v", what, changes)
		}
	}
	return nil
}

// setsOf is what the model says of the sets of a badge: the places of what is in them,
// the newest first.
func (m *model) setsOf(user uint64) map[string][]pipeline.Position {
	sets := map[string][]pipeline.Position{}
	if m.dropped(user) {
		return sets
	}
	live := m.live()
	sets["feed"] = m.feedPlaces(user)
	for _, name := range slices.Concat(live.notices(), dotChannels) {
		places := m.channelPlaces(live, user, name, slices.Contains(dotChannels, name))
		if len(places) > 0 {
			sets[channelOf+name] = places
		}
	}
	for name := range sets {
		sets[name] = slices.Sorted(slices.Values(sets[name]))
		slices.Reverse(sets[name])
	}
	return sets
}

const channelOf = "channel:"

// badge compares the badge of a user, and the feed and a channel alone.
func (x *explaining) badge(m *model, user uint64) error {
	want := m.setsOf(user)
	badge, events, err := x.all("unread", user)
	if err != nil {
		return err
	}
	answer, numbers, value := m.answer(m.count(), user), map[string]int64{}, int64(0)
	for kind, n := range answer.Unread {
		numbers[kind] = max(n, 0)
		sum := int64(0)
		for _, e := range events {
			change, _ := strconv.ParseInt(e.Changes[kind], 10, 64)
			sum += change
		}
		if x.log.first == 1 && x.defaults["unread.like"] == 0 && max(sum, 0) != max(n, 0) && !m.dropped(user) {
			return fmt.Errorf("%s is %d, by the events %d", kind, n, sum)
		}
	}
	for name, places := range want {
		numbers[name] = int64(len(places))
		if _, err := x.set(name, places, events, func(e *client.ExplainedEvent) string { return e.Changes[name] }); err != nil {
			return fmt.Errorf("%s in the badge: %w", name, err)
		}
	}
	for name, n := range numbers {
		if value += n; badge.Numbers[name] != n {
			return fmt.Errorf("%s is %d, want %d", name, badge.Numbers[name], n)
		}
	}
	if len(badge.Numbers) != len(numbers) || badge.Value != value {
		return fmt.Errorf("value %d of %v, want %d of %v", badge.Value, badge.Numbers, value, numbers)
	}
	for _, name := range []string{"feed", channelOf + channelNames[x.r.IntN(len(channelNames))]} {
		alone, events, err := x.all("unread."+name, user)
		if err != nil {
			return err
		}
		listed, err := x.set(name, want[name], events, func(e *client.ExplainedEvent) string { return e.Change })
		if err != nil {
			return fmt.Errorf("%s alone: %w", name, err)
		}
		if below := alone.Base.Value; alone.Value != numbers[name] || below != nil && *below != numbers[name]-int64(listed) {
			return fmt.Errorf("%s alone is %d, want %d; of these %d are above the base", name, alone.Value, numbers[name], listed)
		}
	}
	return nil
}

// set compares the events of one set with its places, as far as the log has them.
func (x *explaining) set(name string, places []pipeline.Position, events []client.ExplainedEvent, of func(*client.ExplainedEvent) string) (listed int, err error) {
	below := pipeline.At(x.log.first, 0)
	var got, want []pipeline.Position
	for _, at := range places {
		if at >= below {
			want = append(want, at)
		} else {
			x.seen["below"]++
		}
	}
	read := pipeline.Position(0)
	for i := range events {
		e := &events[i]
		switch change := of(e); {
		case change == "":
		case e.Unsure && x.log.first == 1:
			return 0, fmt.Errorf("%d is unsure", e.Position)
		case read != 0:
			return 0, fmt.Errorf("%d is before the read at %d", e.Position, read)
		case change == "+1" && e.Type == map[bool]string{true: "post", false: "notice"}[name == "feed"]:
			got = append(got, e.Position)
		case change == "=0" && e.Type == "read":
			x.seen["read"]++
			read = e.Position
		default:
			return 0, fmt.Errorf("%d: %s of a %s", e.Position, change, e.Type)
		}
	}
	if !slices.Equal(got, want) {
		return 0, fmt.Errorf("the events are at %d, want %d", got, want)
	}
	kind, channel, _ := strings.Cut(name, ":")
	if slices.Contains(dotChannels, channel) {
		kind = "dot"
	}
	x.seen[kind] += len(got)
	return len(got), nil
}
