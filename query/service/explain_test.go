package service

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// CONTRACT: "`explain unread USER`": where nothing counts 1:1, a badge is the feed
// and the channels.
func TestExplainBadgeOfFeedAndChannelsAlone(t *testing.T) {
	schema, err := pipeline.NewSchema([]string{"post"}, []pipeline.ColumnSpec{{Name: "like", Bits: 8, Max: 63}})
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{catalog: newCatalog(schema), limits: Limits{}.withDefaults(), publisher: nowhere{}}
	s.lanes = newLanes(s.limits)
	c := &call{body: []byte(`{"number":"unread","id":"7"}`), wait: wait{timeout: -1}}
	if f := s.parseExplain(c); f != nil {
		t.Fatalf("%+v", f)
	}
	if !c.explain.badge || c.explain.sets == nil || !c.explain.sets.feed || c.explain.sets.channels != nil {
		t.Fatalf("%+v", c.explain)
	}
	answer := &explained{
		explainCall: &c.explain, rows: new(query.Rows), asOf: 9,
		sets: &sets{numbers: []setNumber{{"feed", 2, 3}, {"channel:system", 1, 0}}},
		page: &query.Explanation{Events: []query.ExplainedEvent{{
			Position: 5, Type: "post", Body: []byte(`{"actor":9,"post":1}`), Sets: []query.SetChange{{NumberChange: query.NumberChange{Touched: true, N: 1}}},
		}}},
	}
	answer.sets.stand.Channels = []query.StandpointChannel{{Name: "system"}}
	want := `{"id":"7","value":3,"numbers":{"feed":2,"channel:system":1},"as_of":"9","since":{"feed":"3","channel:system":"0"},` +
		`"events":[{"position":"5","time":"1970-01-01T00:00:00.000Z","type":"post","change":"+1","changes":{"feed":"+1"},"event":{"actor":9,"post":1}}],` +
		`"base":{"position":"0","value":0}}`
	if got := string(append(answer.append(nil), '}')); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// CONTRACT: `"base":{"position":"…","value":0}`, and docs/contract.md: "`default`
// (default 0) is answered for a row that does not exist": what the number was before the
// first event is its default, for an id that has events as for one that has none.
func TestExplainBaseIsTheDefault(t *testing.T) {
	s := parser(t)
	c := &call{body: []byte(`{"number":"post.like","id":"42"}`), wait: wait{timeout: -1}}
	if f := s.parseExplain(c); f != nil {
		t.Fatalf("%+v", f)
	}
	like := func(next pipeline.Position) *query.Explanation {
		return &query.Explanation{Next: next, Events: []query.ExplainedEvent{{Position: 4, Type: "like", Body: []byte(`{}`), Changes: []query.NumberChange{{Touched: true, Set: true, N: 1}}}}}
	}
	for _, test := range []struct {
		name  string
		exist bool
		page  *query.Explanation
	}{{"no event", false, &query.Explanation{}}, {"one event", true, like(0)}, {"a page", true, like(4)}} {
		var rows query.Rows
		rows.Reset(1, 1)
		rows.Exist[0], rows.Values[0] = test.exist, 1
		answer := &explained{explainCall: &c.explain, rows: &rows, asOf: 8, page: test.page}
		if got := string(append(answer.append(nil), '}')); !strings.HasSuffix(got, `"base":{"position":"0","value":5}}`) {
			t.Errorf("%s: %s", test.name, got)
		}
	}
}

// CONTRACT: `{"id":"42","value":3,"as_of":"…","events":[{"position":"…","time":"2026-…Z",
// "type":"like","change":"+1","event":{…}}],"next":"…","base":{"position":"…","value":0}}`.
// A number that is a column has these keys, in this order, and no others.
func TestExplainReplyToTheLetter(t *testing.T) {
	s := parser(t)
	c := &call{body: []byte(`{"number":"post.comment","id":"42","limit":20}`), wait: wait{timeout: -1}}
	if f := s.parseExplain(c); f != nil {
		t.Fatalf("%+v", f)
	}
	var rows query.Rows
	rows.Reset(1, 1)
	rows.Exist[0], rows.Values[0] = true, 3
	answer := &explained{explainCall: &c.explain, rows: &rows, asOf: 8, page: &query.Explanation{
		Next: 4,
		Events: []query.ExplainedEvent{{
			Position: 4, Time: 1_782_820_000_123, Type: "like", Body: []byte(`{"actor":9}`), Changes: []query.NumberChange{{Touched: true, N: 1}},
		}},
	}}
	want := `{"id":"42","value":3,"as_of":"8","events":[{"position":"4","time":"2026-06-30T11:46:40.123Z","type":"like","change":"+1","event":{"actor":9}}],` +
		`"next":"4","base":{"position":"0","value":0}}`
	if got := string(append(answer.append(nil), '}')); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !slices.Equal(c.explain.words, []*word{s.catalog.counters["post"].words["comment"]}) {
		t.Errorf("%v", c.explain.words)
	}
}

// docs/contract.md: "says which bounds keep something out of the number": also where the
// page has all events that the log still has, and the posts that would show it are below
// the log's beginning.
func TestExplainBoundBelowTheBase(t *testing.T) {
	newest := query.SetEvent{Position: 9, Op: pipeline.OpPost, ID: 3, Other: 1, Change: query.NumberChange{Touched: true, N: 1}}
	answer := &explained{
		explainCall: &explainCall{id: 7}, rows: new(query.Rows), asOf: 9,
		sets: &sets{numbers: []setNumber{{feedName, 2, 3}}, members: []query.SetEvent{newest}, upto: 9},
		page: &query.Explanation{Base: 8, Events: []query.ExplainedEvent{{
			Position: 9, Type: "post", Body: []byte(`{}`), Sets: []query.SetChange{{NumberChange: newest.Change}},
		}}},
	}
	answer.sets.stand.PostsMax = 2
	var got struct{ Notes []string }
	if err := json.Unmarshal(append(answer.append(nil), '}'), &got); err != nil || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "feed.posts_per_author") {
		t.Errorf("notes %q, %v", got.Notes, err)
	}
}

// docs/contract.md: "says which bounds keep something out of the number", and only there:
// before a log is as old as feed.retention, the bound ends below its first message.
func TestExplainBoundBelowTheLog(t *testing.T) {
	for mark, want := range map[pipeline.Position]int{pipeline.At(1, 0) - 1: 0, pipeline.At(1, 0): 1, pipeline.EndOf(1): 1} {
		s := &sets{numbers: []setNumber{{feedName, 0, 0}}}
		s.stand.Feed.Mark = mark
		if got := s.notes(true); len(got) != want {
			t.Errorf("bound %d: notes %q, want %d", mark, got, want)
		}
	}
}
