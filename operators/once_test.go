package operators_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

var onceRules = operators.Rules{
	"like": {
		{Add: "post.like", Key: "post", Once: []string{"actor"}},
		{Add: "user.liked", Key: "author", Once: []string{"post", "actor"}},
		{Add: "user.others", Key: "author", Unless: "self"},
	},
	"post": {{Add: "user.authored", Key: "actor", Once: []string{"repost_of"}}},
	"view": {
		{Add: "video.views", Key: "video", Once: []string{"session"}, Keep: 60},
		{Add: "video.long", Key: "video", If: "long"},
		{Add: "video.places", Key: "place", If: "place", Once: []string{"viewer", "video"}},
		{Add: "video.viewers", Key: "video", If: "viewer", Once: []string{"viewer"}},
	},
	"visit": {{Add: "video.guests", Key: "video", Once: []string{"guest"}}, {Add: "user.others", Key: "guest"}},
}

// onceSchema has the columns of onceRules, and some without a rule.
func onceSchema(t interface{ Fatal(...any) }) *pipeline.Schema {
	list := columns(0, "like comment")
	list = append(list, columns(1, "liked others authored")...)
	list = append(list, columns(2, "views long places viewers guests exists")...)
	names := []string{"post", "user", "video"}
	sets := onceRules.Sets()
	for i := range list {
		list[i].Set = sets[names[list[i].Counter]+"."+list[i].Name]
	}
	s, err := pipeline.NewSchema(names, list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func onceProgram(t testing.TB, shards int, limits operators.Limits) *operators.Program {
	p, err := operators.Compile(onceSchema(t), onceRules, shards, limits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// setState applies windows as shards do, into maps; nothing is forgotten.
type setState struct {
	cells   map[string]int64 // video.views 5
	members map[string]bool  // post.like 42: {7 0}
	shown   []string         // operations, in order of windows and sections
	at      pipeline.Position
}

func newSetState() *setState {
	return &setState{cells: map[string]int64{}, members: map[string]bool{}}
}

func (s *setState) apply(t interface{ Fatalf(string, ...any) }, w *pipeline.Window) {
	if w.From != s.at {
		t.Fatalf("a window begins at %d, not %d", w.From, s.at)
	}
	s.at = w.To
	for _, section := range w.Sections {
		r := pipeline.ReadSection(section, w.From)
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			if c.Op == pipeline.OpCell {
				key := fmt.Sprintf("%s %d", w.Columns[c.Column], c.ID)
				s.cells[key] = c.Delta.Apply(s.cells[key])
				continue
			}
			o := &r.Operation
			if o.Op < pipeline.OpAdd {
				continue
			}
			if o.Position > w.To {
				t.Fatalf("position %d in a window up to %d", o.Position, w.To)
			}
			s.operate(w.Columns[o.Column], o)
		}
		if r.Err() != nil {
			t.Fatalf("%v", r.Err())
		}
	}
}

func (s *setState) operate(column string, o *pipeline.Operation) {
	row := fmt.Sprintf("%s %d", column, o.ID)
	member := fmt.Sprintf("%s: %v", row, o.Member)
	name := map[pipeline.Op]string{pipeline.OpAdd: "add", pipeline.OpTake: "take", pipeline.OpEmpty: "empty"}[o.Op]
	shown := name + " " + row
	if o.Op != pipeline.OpEmpty {
		shown += fmt.Sprintf(" %v by %d", o.Member, o.By)
	}
	s.shown = append(s.shown, shown)
	switch was := s.members[member]; {
	case o.Op == pipeline.OpEmpty:
		maps.DeleteFunc(s.members, func(m string, _ bool) bool { return strings.HasPrefix(m, row+":") })
		return
	case o.Op == pipeline.OpAdd && !was:
		s.members[member] = true
		s.cells[row] = pipeline.Add(o.By).Apply(s.cells[row])
	case o.Op == pipeline.OpTake && was:
		delete(s.members, member)
		s.cells[row] = pipeline.Add(-o.By).Apply(s.cells[row])
	default:
		return
	}
	if counter, _, _ := strings.Cut(column, "."); counter == "video" {
		s.cells[fmt.Sprintf("video.exists %d", o.ID)] = 1
	}
}

// deriveOnce runs one pack.
func deriveOnce(t *testing.T, lines ...string) (*setState, []pipeline.DeadLetter) {
	t.Helper()
	lane := onceProgram(t, 4, wide).NewLane()
	out, err := lane.Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Time: 60_000, Subject: "events.pack", Data: []byte(strings.Join(lines, "\n"))}})
	if err != nil || len(out) != 1 {
		t.Fatalf("%d windows, %v", len(out), err)
	}
	w, err := pipeline.DecodeWindow(out[0].Window)
	if err != nil {
		t.Fatal(err)
	}
	s := newSetState()
	s.apply(t, w)
	return s, out[0].Letters
}

// What TestOnceTwin does not draw: fields that are not there, ids and tokens of unusual shape, amounts
// at their bounds.
func TestOnce(t *testing.T) {
	const like, view = `{"type":"like","actor":1,"post":10,"author":2`, `{"type":"view","video":5`
	for name, c := range map[string]struct {
		lines []string
		ops   []string
		cells map[string]int64
	}{
		// docs/contract.md: "An event that lacks such a field counts as without `once`."
		"lacks a token": {
			[]string{view + `}`, view + `,"session":null}`, view + `,"session":0}`, view + `,"session":""}`, view + `,"session":"0"}`, view + `,"session":"\u0030","delete":true}`},
			nil,
			map[string]int64{"video.views 5": 4, "video.exists 5": 1},
		},
		"has an optional id": {
			[]string{`{"type":"post","actor":1,"post":10,"repost_of":9,"author":3}`},
			[]string{"add user.authored 1 {9 0} by 1"},
			map[string]int64{"user.authored 1": 1},
		},
		// docs/contract.md: "`42` and `"42"` are the same member"
		"tokens that are ids": {
			[]string{view + `,"session":42}`, view + `,"session":"42"}`, view + `,"session":"\u0034\u0032"}`, view + `,"session":"042"}`},
			[]string{
				"add video.views 5 {42 0} by 1", "add video.views 5 {42 0} by 1", "add video.views 5 {42 0} by 1",
				fmt.Sprintf("add video.views 5 %v by 1", pipeline.TokenMember([]byte("042"))),
			},
			map[string]int64{"video.views 5": 2, "video.exists 5": 1},
		},
		"amounts": {
			[]string{view + `,"session":42,"by":5}`, view + `,"session":42,"by":7}`, view + `,"session":43,"by":-9223372036854775807}`, view + `,"session":42,"by":3,"delete":true}`, view + `,"session":44,"by":0}`},
			[]string{
				"add video.views 5 {42 0} by 5", "add video.views 5 {42 0} by 7", "add video.views 5 {43 0} by -9223372036854775807",
				"take video.views 5 {42 0} by 3", "add video.views 5 {44 0} by 0",
			},
			map[string]int64{"video.views 5": -pipeline.Limit + 2, "video.exists 5": 1},
		},
		// docs/contract.md: "One field is an id if it is … or the `key` of a rule of the same event type"
		"a key is an id": {
			[]string{`{"type":"visit","video":5,"guest":"9"}`},
			[]string{"add video.guests 5 {9 0} by 1"},
			map[string]int64{"video.guests 5": 1, "video.exists 5": 1, "user.others 9": 1},
		},
		// docs/contract.md: "`del` of the row empties both."
		"del": {
			[]string{view + `,"session":"42","long":true}`, `{"type":"adjust","counter":"video","id":5,"del":true}`, view + `,"session":"42","delete":true}`},
			[]string{
				"add video.views 5 {42 0} by 1", "empty video.views 5", "empty video.places 5", "empty video.viewers 5", "empty video.guests 5",
				"take video.views 5 {42 0} by 1",
			},
			map[string]int64{"video.views 5": 0, "video.long 5": 0, "video.places 5": 0, "video.viewers 5": 0, "video.guests 5": 0, "video.exists 5": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, letters := deriveOnce(t, c.lines...)
			if len(letters) > 0 {
				t.Fatalf("refused: %s: %s", letters[0].Reason, letters[0].Detail)
			}
			if !maps.Equal(s.cells, c.cells) {
				t.Errorf("got  %v\nwant %v", s.cells, c.cells)
			}
			slices.SortStableFunc(s.shown, byRow) // sections are in the order of shards
			slices.SortStableFunc(c.ops, byRow)
			if !slices.Equal(s.shown, c.ops) {
				t.Errorf("got  %q\nwant %q", s.shown, c.ops)
			}
		})
	}
}

// byRow keeps the order within a column.
func byRow(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) }

// docs/events.md: "A field of `once` that is malformed refuses the event (`id`; a token: `field`),
// whether or not its rule holds."
func TestOnceRefusals(t *testing.T) {
	for body, want := range map[string]pipeline.Reason{
		`{"type":"view","video":5,"session":1.5}`:                                                pipeline.ReasonField,
		`{"type":"view","video":5,"session":1e3}`:                                                pipeline.ReasonField,
		`{"type":"view","video":5,"session":18446744073709551616}`:                               pipeline.ReasonField,
		`{"type":"view","video":5,"session":["a"]}`:                                              pipeline.ReasonField,
		`{"type":"view","video":5,"session":"` + strings.Repeat("x", 129) + `"}`:                 pipeline.ReasonField,
		`{"type":"view","video":5,"session":"` + strings.Repeat("ü", 65) + `"}`:                  pipeline.ReasonField,
		`{"type":"view","video":5,"session":"` + strings.Repeat("1", 129) + `","delete":true}`:   pipeline.ReasonField,
		`{"type":"view","video":5,"viewer":"many"}`:                                              pipeline.ReasonID,
		`{"type":"like","actor":1,"post":10,"author":0}`:                                         pipeline.ReasonID,
		`{"type":"post","actor":1,"post":10,"repost_of":"x","author":3}`:                         pipeline.ReasonID,
		`{"type":"visit","video":5,"guest":"f81d-4fae"}`:                                         pipeline.ReasonID,
		`{"type":"adjust","counter":"video","id":5,"column":"views","add":1,"delete":true}`:      pipeline.ReasonField,
		`{"type":"adjust","counter":"video","id":5,"column":"exists","set":1,"session":[1,2,3]}`: pipeline.ReasonUnknown,
	} {
		s, letters := deriveOnce(t, body)
		if len(letters) != 1 || letters[0].Reason != want || len(s.cells)+len(s.shown) > 0 {
			t.Errorf("%s: %+v and %v, want reason %s", body, letters, s.cells, want)
		}
	}
	for _, token := range []string{strings.Repeat("x", 128), strings.Repeat("ü", 64), strings.Repeat(`\u0078`, 128), "18446744073709551616", "0x0"} {
		if s, letters := deriveOnce(t, `{"type":"view","video":5,"session":"`+token+`"}`); len(letters) > 0 || len(s.members) != 1 {
			t.Errorf("%s: %+v and %v", token, letters, s.members)
		}
	}
}

// What a rule of another shape than the column's set would count is known to nobody.
func TestOnceMustAgree(t *testing.T) {
	for _, rule := range []operators.Rule{
		{Add: "post.like", Key: "post"},
		{Add: "post.like", Key: "post", Once: []string{"post", "actor"}},
		{Add: "post.like", Key: "post", Once: []string{"actor"}, Keep: 1},
		{Add: "post.like", Key: "post", Once: []string{"actor", "post", "author"}},
		{Add: "post.comment", Key: "post", Once: []string{"actor"}},
	} {
		rules := maps.Clone(onceRules)
		rules["love"] = []operators.Rule{rule}
		if _, err := operators.Compile(onceSchema(t), rules, 4, wide); err == nil || !strings.Contains(err.Error(), "by another set than the column's") {
			t.Errorf("%+v: %v", rule, err)
		}
	}
}

// The fingerprint of rules distinguishes what counts differently.
func TestOnceFingerprint(t *testing.T) {
	seen := map[uint64]string{onceProgram(t, 4, wide).Rules(): "as they are"}
	for name, change := range map[string]func(r *operators.Rule){
		"no keep":       func(r *operators.Rule) { r.Keep = 0 },
		"another token": func(r *operators.Rule) { r.Once = []string{"visitor"} },
		"an id":         func(r *operators.Rule) { r.Once = []string{"video"} },
		"a pair":        func(r *operators.Rule) { r.Once = []string{"actor", "video"} },
		"none":          func(r *operators.Rule) { r.Once, r.Keep = nil, 0 },
	} {
		rules := maps.Clone(onceRules)
		rules["view"] = slices.Clone(rules["view"])
		change(&rules["view"][0])
		schema := onceSchema(t)
		for i := range schema.Columns {
			schema.Columns[i].Set = rules.Sets()[schema.FullName(pipeline.Column(i))]
		}
		p, err := operators.Compile(schema, rules, 4, wide)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[p.Rules()]; other != "" {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[p.Rules()] = name
	}
}

// A window stays within its bytes, and its sections within their changes, when every
// event does all that it can to sets.
func TestOnceBounds(t *testing.T) {
	rules := operators.Rules{"big": nil}
	var list []pipeline.ColumnSpec
	for i := range operators.RulesMax {
		rules["big"] = append(rules["big"], operators.Rule{Add: fmt.Sprintf("big.c%d", i), Key: "k", Once: []string{"a", "b"}})
		list = append(list, pipeline.ColumnSpec{Name: fmt.Sprint("c", i), Bits: 8, Max: 63, Default: 1, Set: pipeline.SetSpec{Members: pipeline.MembersPairs}})
	}
	list = append(list, pipeline.ColumnSpec{Name: operators.ExistsColumn, Bits: 1, Max: 63, Hidden: true})
	schema, err := pipeline.NewSchema([]string{"big"}, list)
	if err != nil {
		t.Fatal(err)
	}
	for name, event := range map[string]string{
		"members":    `{"type":"big","k":18446744073709551615,"a":18446744073709551614,"b":%d,"by":-9223372036854775807}`,
		"deletions":  `{"type":"big","k":18446744073709551615,"a":18446744073709551614,"b":%d,"by":9223372036854775807,"delete":true}`,
		"no members": `{"type":"big","k":18446744073709551615,"a":18446744073709551614,"x":%d,"by":-9223372036854775807}`,
		"rows":       `{"type":"adjust","counter":"big","id":18446744073709551615,"del":true,"x":%d}`,
	} {
		for _, limits := range []operators.Limits{{Events: 65536, Bytes: 40 << 10}, {Events: 65536, Bytes: 32 << 20}} {
			p, err := operators.Compile(schema, rules, 1, limits)
			if err != nil {
				t.Fatal(err)
			}
			const events = 300
			var messages []pipeline.Message
			for i := range events {
				messages = append(messages, pipeline.Message{Sequence: uint64(i + 1), Time: int64(i) * 1000, Subject: "events.pack", Data: fmt.Appendf(nil, event, 1<<63+uint64(i))})
			}
			out, err := p.NewLane().Derive(0, pipeline.EndOf(events), messages)
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for _, d := range out {
				total += int(d.Events)
				bounded(t, name, d, limits)
			}
			if total != events || len(out) < 2 {
				t.Errorf("%s: %d of %d events in %d windows", name, total, events, len(out))
			}
		}
	}
}

// onceEvent is an event of onceRules, for the twin and as JSON.
type onceEvent struct {
	kind                     string
	id, other, author, third uint64
	token                    string
	by                       int64
	undo                     bool
}

func genOnce(t *rapid.T) (e onceEvent) {
	id := func(name string, from uint64) uint64 { return rapid.Uint64Range(from, 4).Draw(t, name) }
	return onceEvent{
		kind: rapid.SampledFrom([]string{"like", "like", "view", "view", "del", "set"}).Draw(t, "kind"),
		id:   id("id", 1), other: id("other", 1), author: id("author", 1), third: id("third", 0),
		token: rapid.SampledFrom([]string{"", "0", "7", "a", "b"}).Draw(t, "token"),
		by:    rapid.Int64Range(-3, 3).Draw(t, "by"), undo: rapid.IntRange(0, 3).Draw(t, "undo") == 0,
	}
}

func (e *onceEvent) json() string {
	switch e.kind {
	case "like":
		return fmt.Sprintf(`{"type":"like","post":%d,"actor":"%d","author":%d,"delete":%v}`, e.id, e.other, e.author, e.undo)
	case "view":
		return fmt.Sprintf(`{"type":"view","video":%d,"session":%q,"place":%d,"viewer":%d,"by":%d,"delete":%v}`, e.id, e.token, e.author, e.third, e.by, e.undo)
	case "del":
		return fmt.Sprintf(`{"type":"adjust","counter":"video","id":%d,"del":true}`, e.id)
	}
	return fmt.Sprintf(`{"type":"adjust","counter":"post","id":%d,"column":"like","set":%d}`, e.id, e.by)
}

// count does what the event says, as the contract's sentences have it.
func (e *onceEvent) count(cells map[string]int64, members map[string]bool) {
	add := func(column string, id uint64, by int64, member string) {
		key := fmt.Sprintf("%s %d", column, id)
		if e.undo {
			by = -by
		}
		if member != "" {
			if members[key+member] != e.undo {
				return
			}
			members[key+member] = !e.undo
		}
		cells[key] += by
		if strings.HasPrefix(column, "video.") {
			cells[fmt.Sprintf("video.exists %d", id)] = 1
		}
	}
	switch e.kind {
	case "like":
		add("post.like", e.id, 1, fmt.Sprint(" of ", e.other))
		add("user.liked", e.author, 1, fmt.Sprint(" of ", e.id, e.other))
		if e.author != e.other {
			add("user.others", e.author, 1, "")
		}
	case "view":
		token, pair, viewer := "", "", ""
		if e.token != "" && e.token != "0" {
			token = " of " + e.token
		}
		if e.third != 0 {
			pair, viewer = fmt.Sprint(" of ", e.third, e.id), fmt.Sprint(" of ", e.third)
			add("video.viewers", e.id, e.by, viewer)
		}
		add("video.views", e.id, e.by, token)
		add("video.places", e.author, e.by, pair)
	case "del":
		for _, column := range strings.Fields("views long places viewers guests exists") {
			key := fmt.Sprintf("video.%s %d", column, e.id)
			cells[key] = 0
			maps.DeleteFunc(members, func(m string, _ bool) bool { return strings.HasPrefix(m, key+" of") })
		}
	default:
		cells[fmt.Sprintf("post.like %d", e.id)] = e.by
	}
}

// "The same EVENTS through different window cuts give the same rows", sets
// too, and they are those of a model that knows nothing of windows.
func TestOnceTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(genOnce), 1, 40).Draw(t, "events")
		cells, members := map[string]int64{}, map[string]bool{}
		var messages []pipeline.Message
		for i, e := range events {
			e.count(cells, members)
			if i == 0 || rapid.Bool().Draw(t, "a message of its own") {
				messages = append(messages, pipeline.Message{Sequence: uint64(len(messages) + 1), Time: int64(i) * 700, Subject: "events.pack"})
			}
			m := &messages[len(messages)-1]
			m.Data = append(append(m.Data, e.json()...), '\n')
		}
		for _, limits := range []operators.Limits{wide, {Events: rapid.IntRange(1, 5).Draw(t, "events in a window"), Bytes: wide.Bytes}} {
			p, err := operators.Compile(onceSchema(nil), onceRules, rapid.IntRange(1, 8).Draw(t, "shards"), limits)
			if err != nil {
				t.Fatalf("%v", err)
			}
			out, err := p.NewLane().Derive(0, pipeline.EndOf(uint64(len(messages))), messages)
			if err != nil {
				t.Fatalf("%v", err)
			}
			s := newSetState()
			for _, d := range out {
				w, err := pipeline.DecodeWindow(d.Window)
				if err != nil || len(d.Letters) > 0 {
					t.Fatalf("%v %+v", err, d.Letters)
				}
				s.apply(t, w)
			}
			for _, either := range []map[string]int64{s.cells, cells} {
				for key := range either {
					if s.cells[key] != cells[key] {
						t.Fatalf("%s is %d, want %d\n%q", key, s.cells[key], cells[key], s.shown)
					}
				}
			}
			maps.DeleteFunc(members, func(_ string, in bool) bool { return !in })
			if len(s.members) != len(members) {
				t.Fatalf("members are %v, want %v", s.members, members)
			}
		}
	})
}

// Whatever comes, alone or cut into windows: the same cells, operations and dead letters.
func FuzzDeriveOnce(f *testing.F) {
	for _, line := range []string{
		`{"type":"like","actor":1,"post":2,"author":3}`, `{"type":"like","actor":1,"post":2,"author":3,"delete":true}`,
		`{"type":"post","actor":1,"post":2,"repost_of":"3","author":4}`, `{"type":"visit","video":5,"guest":"9"}`,
		`{"type":"view","video":5,"session":"f81d-4fae","viewer":7,"place":1,"by":-2,"long":true}`, `{"type":"view","video":5,"session":"\ud83d"}`,
		`{"type":"view","video":5,"session":42,"delete":true}`, `{"type":"view","video":5,"session":1e3}`, `{"type":"view","video":5,"session":""}`,
		`{"type":"adjust","counter":"video","id":5,"del":true}`, `{"type":"adjust","counter":"video","id":5,"column":"views","add":-1}`,
	} {
		f.Add([]byte(line))
		f.Add([]byte(line + "\n" + line))
	}
	whole, cut := onceProgram(f, 4, wide).NewLane(), onceProgram(f, 4, operators.Limits{Events: 1, Bytes: wide.Bytes}).NewLane()
	f.Fuzz(func(t *testing.T, body []byte) {
		run := func(lane *operators.Lane) (s *setState, letters []string) {
			out, err := lane.Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Time: 1000, Subject: "events.pack", Data: body}})
			if err != nil {
				t.Fatal(err)
			}
			s = newSetState()
			for _, d := range out {
				w, err := pipeline.DecodeWindow(d.Window)
				if err != nil || len(d.Window) > wide.Bytes {
					t.Fatalf("%d bytes, %v", len(d.Window), err)
				}
				s.apply(t, w)
				for _, l := range d.Letters {
					letters = append(letters, string(l.Reason)+" "+string(bytes.TrimSpace(l.Data)))
				}
			}
			slices.SortStableFunc(s.shown, byRow)
			return s, letters
		}
		a, lettersA := run(whole)
		b, lettersB := run(cut)
		slices.Sort(a.shown) // of several ids, which are in shards of their own
		slices.Sort(b.shown)
		if !maps.Equal(a.cells, b.cells) || !maps.Equal(a.members, b.members) || !slices.Equal(a.shown, b.shown) || !slices.Equal(lettersA, lettersB) {
			t.Fatalf("%v %v %q %q, cut: %v %v %q %q", a.cells, a.members, a.shown, lettersA, b.cells, b.members, b.shown, lettersB)
		}
	})
}
