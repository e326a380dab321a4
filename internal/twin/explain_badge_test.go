package twin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/explain"
	"github.com/tidemark-io/tidemark/query/service"
	"github.com/tidemark-io/tidemark/sinks"
)

// badges asks what is behind the badges of a world.
type badges struct {
	*world
	*client.Client
	r   *rand.Rand
	log *listLog
}

func (w *world) badges(t *testing.T, r *rand.Rand) *badges { return w.badgesOf(t, r, w.node) }

func (w *world) badgesOf(t *testing.T, r *rand.Rand, reader query.Reader) *badges {
	program, err := operators.Compile(w.schema, w.rules, 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log := &listLog{first: 1}
	x := explain.New(explain.Options{Schema: w.schema, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: log})
	nc := natstest.Connect(t, natstest.Server(t))
	s, err := service.New(nc, service.Options{Schema: w.schema, Reader: reader, Explainer: x, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	return &badges{w, client.New(nc), r, log}
}

// all are all pages of a number, and the first reply. In one page of two it is
// all that there is.
func (b *badges) all(number string, id uint64) (first client.ExplainReply, events []client.ExplainedEvent, err error) {
	r := client.ExplainRequest{Number: number, ID: id, Limit: []int{1 + b.r.IntN(6), 1000}[b.r.IntN(2)], Timeout: 20 * time.Second}
	for {
		page, err := b.Explain(context.Background(), r)
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

// want is what the model says of one set: the places of what is in it.
func wantSets(m *model, user uint64) map[string][]pipeline.Position {
	want := map[string][]pipeline.Position{"feed": nil}
	if m.dropped(user) {
		return map[string][]pipeline.Position{}
	}
	mark := m.mark(user, "feed")
	for _, author := range m.following(user) {
		since, _ := m.follow(user, author, len(m.log))
		for _, p := range m.listed(author) {
			if p.Position > max(mark, since) {
				want["feed"] = append(want["feed"], p.Position)
			}
		}
	}
	live, reads := m.live(), m.reads(user)
	for _, name := range slices.Concat(live.notices(), dotChannels) {
		cursor := m.mark(user, "channel:"+name)
		if len(reads) > 0 {
			cursor = max(cursor, markOf(&reads[0]))
		} else if !slices.Contains(dotChannels, name) {
			continue // new
		}
		for _, at := range live[name] {
			if at > cursor {
				want["channel:"+name] = append(want["channel:"+name], at)
			}
		}
	}
	for name := range want {
		slices.Sort(want[name])
		slices.Reverse(want[name])
	}
	return want
}

// docs/contract.md: "their sum is the number": of feed, channels and dots, alone and in
// the badge, in one page and in many, while a story with deletions, follows again, late
// reads and every bound goes on, and where the log's beginning is gone.
func TestExplainBadge(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./internal/twin -run TestExplainBadge -seed=%d", seed)
	worlds, seen := 12, map[string]int{}
	if testing.Short() {
		worlds = 4
	}
	missing := func() (kinds []string) {
		for _, what := range []string{"feed", "channel", "dot", "below", "read", "dropped", "retention", "posts_per_author", "limits.notices"} {
			if seen[what] == 0 && !testing.Short() {
				kinds = append(kinds, what)
			}
		}
		return kinds
	}
	const worldsMax = 240 // what one world in ten has is in one of these
	for number := 0; number < worlds || number < worldsMax && len(missing()) > 0; number++ {
		if err := explainBadges(t, seed, number, seen); err != nil {
			t.Fatalf("world %d: %v", number, err)
		}
	}
	if kinds := missing(); len(kinds) > 0 {
		t.Errorf("in no story there was anything to explain of: %v; %v", kinds, seen)
	}
}

func explainBadges(t *testing.T, seed uint64, number int, seen map[string]int) error {
	w, err := newWorld(t.TempDir(), setupOf(seed, number*perWorld))
	if err != nil {
		return err
	}
	defer w.close()
	r := chances(seed, number)
	b := w.badges(t, r)
	for story := range 6 {
		s, m := generate(r, 10*number+story, w.ages.once), &model{ages: w.ages, defaults: w.defaults}
		for rest := s.messages; len(rest) > 0; {
			n := min(1+r.IntN(25), len(rest))
			if err := w.publish(rest[:n], r.IntN(len(windowEvents)), m); err != nil {
				return err
			}
			if rest = rest[n:]; r.IntN(3) > 0 && len(rest) > 0 {
				continue
			}
			if err := w.settle(); err != nil {
				return err
			}
			m.now, m.notices = w.clock/1000, w.notices
			b.log.first = 1
			if r.IntN(4) == 0 {
				b.log.first += r.Uint64N(uint64(len(w.log)))
			}
			b.log.messages = w.log[b.log.first-1:]
			for _, user := range s.users {
				if err := b.explained(m, user, seen); err != nil {
					return fmt.Errorf("story %d, after %d messages, user %d: %w", story, len(w.log), user, err)
				}
			}
		}
		if end := s.finish(); len(end) > 0 {
			if err := w.publish(end, 3, m); err != nil {
				return err
			}
		}
		w.notices = nil
	}
	return nil
}

func (b *badges) explained(m *model, user uint64, seen map[string]int) error {
	want, below := wantSets(m, user), pipeline.At(b.log.first, 0)
	badge, events, err := b.all("unread", user)
	if err != nil {
		return err
	}
	answer, value := m.answer(m.count(), user), int64(0)
	for kind, n := range answer.Unread {
		if n = max(n, 0); badge.Numbers[kind] != n {
			return fmt.Errorf("%s is %d, want %d", kind, badge.Numbers[kind], n)
		}
		value += n
	}
	for name, places := range want {
		if n := int64(len(places)); badge.Numbers[name] != n {
			return fmt.Errorf("%s is %d, want %d", name, badge.Numbers[name], n)
		}
		value += int64(len(places))
		if err := b.set(name, places, below, events, true, seen); err != nil {
			return fmt.Errorf("%s in the badge: %w", name, err)
		}
	}
	if len(badge.Numbers) != len(unreadKinds)+len(want) || badge.Value != value {
		return fmt.Errorf("value %d of %v, want %d of %v", badge.Value, badge.Numbers, value, want)
	}
	if below == pipeline.At(1, 0) && b.defaults["unread.like"] == 0 {
		for kind, n := range answer.Unread {
			sum := int64(0)
			for _, e := range events {
				change, _ := strconv.ParseInt(e.Changes[kind], 10, 64)
				sum += change
			}
			if max(sum, 0) != max(n, 0) && !m.dropped(user) {
				return fmt.Errorf("%s is %d, by the events %d", kind, n, sum)
			}
		}
	}
	for _, name := range []string{"feed", "channel:" + channelNames[b.r.IntN(len(channelNames))]} {
		alone, events, err := b.all("unread."+name, user)
		if err != nil {
			return err
		}
		if alone.Value != int64(len(want[name])) {
			return fmt.Errorf("%s alone is %d, want %d", name, alone.Value, len(want[name]))
		}
		if err := b.set(name, want[name], below, events, false, seen); err != nil {
			return fmt.Errorf("%s alone: %w", name, err)
		}
		if err := b.bounds(m, user, name, &alone, seen); err != nil {
			return fmt.Errorf("%s: notes %q: %w", name, alone.Notes, err)
		}
		listed := len(events) - reads(events)
		if whole := alone.Base.Value; whole != nil && int(*whole) != len(want[name])-listed {
			return fmt.Errorf("%s: %d below the base, and %d of %d above", name, *whole, listed, len(want[name]))
		}
	}
	return nil
}

func reads(events []client.ExplainedEvent) (n int) {
	for _, e := range events {
		if e.Type == "read" {
			n++
		}
	}
	return n
}

// set compares the events of one set with its places, as far as the log has them.
func (b *badges) set(name string, places []pipeline.Position, below pipeline.Position, events []client.ExplainedEvent, badge bool, seen map[string]int) error {
	var got, want []pipeline.Position
	for _, at := range places {
		if at >= below {
			want = append(want, at)
		} else {
			seen["below"]++
		}
	}
	for i, e := range events {
		change := e.Change
		if badge {
			change = e.Changes[name]
		}
		switch {
		case change == "":
		case e.Unsure && below == pipeline.At(1, 0):
			return fmt.Errorf("%d is unsure", e.Position)
		case change == "+1" && e.Type == map[bool]string{true: "post", false: "notice"}[name == "feed"]:
			got = append(got, e.Position)
		case change == "=0" && e.Type == "read":
			seen["read"]++
			for _, older := range events[i+1:] {
				if badge && older.Changes[name] != "" || !badge {
					return fmt.Errorf("%d is before the read at %d", older.Position, e.Position)
				}
			}
		default:
			return fmt.Errorf("%d: %s of a %s", e.Position, change, e.Type)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the events are at %d, want %d", got, want)
	}
	if len(want) > 0 {
		kind, _, _ := strings.Cut(name, ":")
		if slices.Contains(dotChannels, strings.TrimPrefix(name, channelOf)) {
			kind = "dot"
		}
		seen[kind]++
	}
	return nil
}

const channelOf = "channel:"

// secondOf is when the event at a position was published.
func (m *model) secondOf(at pipeline.Position) int64 {
	return m.log[slices.IndexFunc(m.log, func(e logged) bool { return e.position == at })].second
}

// bounds: docs/contract.md: "says which bounds keep something out of the number".
func (b *badges) bounds(m *model, user uint64, name string, alone *client.ExplainReply, seen map[string]int) error {
	says := func(what string) bool {
		is := slices.ContainsFunc(alone.Notes, func(note string) bool { return strings.Contains(note, what) })
		if is {
			seen[what]++
		}
		return is
	}
	if m.dropped(user) {
		seen["dropped"]++
		if !says("inactive_after") {
			return fmt.Errorf("the user is dropped")
		}
		return nil
	}
	if name != "feed" {
		says("limits.notices")
		return nil
	}
	says("retention")
	says("posts_per_author")
	loose := *m
	loose.ages.retention = 1 << 50
	for _, at := range wantSets(&loose, user)["feed"] {
		// One that is young and not counted was pushed out by posts_kept: of what is
		// posted again, when its first place is too old.
		if m.old(m.secondOf(at), m.ages.retention) && !says("retention") {
			return fmt.Errorf("posts are too old")
		}
	}
	loose = *m
	loose.ages.postsPerAuthor = 1 << 30
	if len(wantSets(&loose, user)["feed"]) > len(wantSets(m, user)["feed"]) && !says("posts_per_author") {
		return fmt.Errorf("authors have more posts")
	}
	return nil
}

// wrong is a node that counts one post too many, or says that the user follows
// very many.
type wrong struct {
	*sinks.Node
	feed, follows int
	asked         int
}

func (w *wrong) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	w.asked++
	err := w.Node.Unread(ctx, users, channels, out, disk)
	out.Users[0].Feed += uint64(w.feed)
	return err
}

func (w *wrong) Standpoint(ctx context.Context, ask *query.StandpointAsk, out *query.Standpoint, disk bool) error {
	err := w.Node.Standpoint(ctx, ask, out, disk)
	out.Follows += w.follows
	return err
}

// A number that is not the sum of the events behind it is not answered as if it were,
// and a feed of more followees than are looked at is refused, both in words.
func TestExplainBadgeRefuses(t *testing.T) {
	w, err := newWorld(t.TempDir(), setup{shards: 2, owners: 1, dirtyRowsMax: 300, every: time.Hour, ages: agesOf(3, 3600, 7200)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	m := &model{ages: w.ages}
	if err := w.publish([]message{{events: []event{follow(bob, ann), post(ann, 11)}}}, 0, m); err != nil {
		t.Fatal(err)
	}
	if err := w.settle(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		wrong
		number, want string
	}{
		{wrong{}, "unread.feed", ""},
		{wrong{feed: 1}, "unread.feed", "changes faster than it is read: feed is 2, and there are 1 events behind it"},
		{wrong{feed: 1}, "unread", "tidemark recount user"},
		{wrong{feed: 1}, "unread.channel:system", ""},
		{wrong{follows: query.FolloweesMax}, "unread", "follows 100001; the feed of one who follows more than 100000 is not explained"},
		{wrong{follows: query.FolloweesMax}, "unread.channel:system", ""},
	} {
		c.Node = w.node
		b := w.badgesOf(t, rand.New(rand.NewPCG(1, 1)), &c.wrong)
		b.log.messages = w.log
		_, _, err := b.all(c.number, bob)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %+v: %v, want %q", c.number, c.wrong, err, c.want)
		}
		if c.feed > 0 && c.number == "unread.feed" && c.asked != 3 {
			t.Errorf("it was asked %d times", c.asked)
		}
	}
}
