package operators_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

var defaultRules = operators.Rules{
	"post": {
		{Add: "user.post", Key: "actor"},
		{Add: "user.original", Key: "actor", Unless: "repost_of"},
		{Add: "post.repost", Key: "repost_of", If: "repost_of"},
		{Add: "user.reposted", Key: "author", If: "repost_of"},
		{Add: "unread.repost", Key: "author", If: "repost_of", Unless: "self"},
	},
	"comment": {{Add: "post.comment", Key: "post"}, {Add: "user.commented", Key: "author"}, {Add: "unread.comment", Key: "author", Unless: "self"}},
	"like":    {{Add: "post.like", Key: "post"}, {Add: "user.liked", Key: "author"}, {Add: "unread.like", Key: "author", Unless: "self"}},
	"mention": {{Add: "user.mentioned", Key: "target"}, {Add: "unread.mention", Key: "target", Unless: "self"}},
	"message": {{Add: "unread.message", Key: "target"}},
	"view":    {{Add: "video.views", Key: "video"}, {Add: "video.long", Key: "video", If: "long"}},
}

func columns(counter int, names string) (out []pipeline.ColumnSpec) {
	for _, name := range strings.Fields(names) {
		spec := pipeline.ColumnSpec{Counter: counter, Name: name, Bits: 16, Max: 63}
		if name == operators.ExistsColumn {
			spec.Hidden = true
		}
		out = append(out, spec)
	}
	return out
}

func schema(t interface{ Fatal(...any) }) *pipeline.Schema {
	list := columns(0, "repost comment like")
	list[2].Suffix = "cntan"
	list = append(list, columns(1, "post original following follower friend reposted commented mentioned liked")...)
	list = append(list, columns(2, "repost comment mention like follower message")...)
	list = append(list, columns(3, "views long exists")...)
	s, err := pipeline.NewSchema([]string{"post", "user", "unread", "video"}, list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func program(t testing.TB, shards int, limits operators.Limits) *operators.Program {
	p, err := operators.Compile(schema(t), defaultRules, shards, limits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var wide = operators.Limits{Events: 8192, Bytes: 512 << 10}

// state applies windows the way shards do, into a map.
type state struct {
	cells map[string]int64
	ops   []string // operations, in the order of sections
	at    pipeline.Position
}

func (s *state) apply(t interface{ Fatalf(string, ...any) }, shards int, d pipeline.Derived) {
	w, err := pipeline.DecodeWindow(d.Window)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if w.From != s.at || w.Header != d.Header {
		t.Fatalf("window %+v of %+v after %d", w.Header, d.Header, s.at)
	}
	s.at = w.To
	for number, section := range w.Sections {
		r := pipeline.ReadSection(section, w.From)
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			if number == shards {
				s.ops = append(s.ops, describe(&r.Operation))
				continue
			}
			if pipeline.ShardOf(c.ID, shards) != pipeline.Shard(number) {
				t.Fatalf("id %d in section %d", c.ID, number)
			}
			if c.Op != pipeline.OpCell {
				s.ops = append(s.ops, describe(&r.Operation))
				continue
			}
			key := fmt.Sprintf("%s %d", w.Columns[c.Column], c.ID)
			s.cells[key] = c.Delta.Apply(s.cells[key])
		}
		if r.Err() != nil {
			t.Fatalf("%v", r.Err())
		}
	}
}

var opNames = map[pipeline.Op]string{
	pipeline.OpFollow: "follow", pipeline.OpUnfollow: "unfollow", pipeline.OpFollowed: "followed", pipeline.OpUnfollowed: "unfollowed",
	pipeline.OpPost: "post", pipeline.OpUnpost: "unpost", pipeline.OpRead: "read", pipeline.OpNotice: "notice", pipeline.OpWithdraw: "withdraw",
}

func describe(o *pipeline.Operation) string {
	return fmt.Sprintf("%s %d %d @%d mark %d looked %d %q", opNames[o.Op], o.ID, o.Other, o.Position, o.Mark, o.Looked, o.Channels)
}

// deriveOne runs one body and shows what it changes.
func deriveOne(t *testing.T, subject, body string) (cells map[string]int64, letters []pipeline.DeadLetter) {
	t.Helper()
	lane := program(t, 4, wide).NewLane()
	out, err := lane.Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Time: 60_000, Subject: subject, Data: []byte(body)}})
	if err != nil {
		t.Fatal(err)
	}
	s := state{cells: map[string]int64{}}
	for _, d := range out {
		s.apply(t, 4, d)
		letters = append(letters, d.Letters...)
	}
	return s.cells, letters
}

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		subject, body string
		want          map[string]int64
	}{
		"repost": {
			"events.post", `{"type":"post","actor":1,"post":10,"repost_of":"9","author":2}`,
			map[string]int64{"user.post 1": 1, "post.repost 9": 1, "user.reposted 2": 1, "unread.repost 2": 1},
		},
		// docs/contract.md: "as JSON numbers or as decimal strings", up to 64 bits
		"escaped ids":     {"events.message", `{"actor":"\u0031","target":"1\u0032"}`, map[string]int64{"unread.message 12": 1}},
		"escaped numbers": {"events.view", `{"video":"\u0035","by":"\u002d3","long":"\u0030"}`, map[string]int64{"video.views 5": -3, "video.exists 5": 1}},
		"escaped counts and positions": {
			"events.pack", strings.Repeat(`{"type":"comment","actor":2,"post":10,"author":1}`+"\n", 5) +
				`{"type":"read","actor":1,"what":["\u0063omment","feed"],"seen":{"\u0063omment":"\u0033"},"as_of":"\u0031"}`,
			map[string]int64{"unread.comment 1": 2, "post.comment 10": 5, "user.commented 1": 5},
		},
		"largest id": {"events.message", `{"actor":1,"target":"18446744073709551615"}`, map[string]int64{"unread.message 18446744073709551615": 1}},
		// docs/contract.md: "Unknown fields are ignored", whatever they hold
		"unknown fields":      {"events.message", `{"x":{"y":[1,2,{"z":null}]},"actor":1,"post":"?","target":2,"at":"yesterday"}`, map[string]int64{"unread.message 2": 1}},
		"unknown half emoji":  {"events.message", `{"actor":1,"target":2,"text":"cut \ud83d","\udead":1}`, map[string]int64{"unread.message 2": 1}},
		"custom if half":      {"events.view", `{"video":5,"long":"\ud83d"}`, map[string]int64{"video.views 5": 1, "video.long 5": 1, "video.exists 5": 1}},
		"null is absent":      {"events.post", `{"actor":1,"post":10,"repost_of":null,"author":null,"delete":null}`, map[string]int64{"user.post 1": 1, "user.original 1": 1}},
		"zero is no original": {"events.post", `{"actor":1,"post":10,"repost_of":0}`, map[string]int64{"user.post 1": 1, "user.original 1": 1}},
		"white space":         {"events.message", "\n {\"actor\" : 1 ,\n\t\"target\":2 } \r\n", map[string]int64{"unread.message 2": 1}},
		"escaped name":        {"events.message", `{"\u0061ctor":1,"target":2}`, map[string]int64{"unread.message 2": 1}},
		// docs/contract.md: "by (integer amount for custom counters, default 1)"; a row written
		// to exists
		"custom":       {"events.view", `{"video":5,"by":3}`, map[string]int64{"video.views 5": 3, "video.exists 5": 1}},
		"by elsewhere": {"events.message", `{"actor":1,"target":2,"by":7}`, map[string]int64{"unread.message 2": 1}},
		"read all": {
			"events.read", `{"actor":1,"what":["all"]}`,
			map[string]int64{"unread.repost 1": 0, "unread.comment 1": 0, "unread.mention 1": 0, "unread.like 1": 0, "unread.follower 1": 0, "unread.message 1": 0},
		},
		"adjust del": {"events.adjust", `{"counter":"post","id":42,"del":true}`, map[string]int64{"post.repost 42": 0, "post.comment 42": 0, "post.like 42": 0}},
		"del unmakes a row": {
			"events.pack", `{"type":"view","video":5}` + "\n" + `{"type":"adjust","counter":"video","id":5,"del":true}`,
			map[string]int64{"video.views 5": 0, "video.long 5": 0, "video.exists 5": 0},
		},
		"pack": {
			"events.pack", `{"type":"message","actor":1,"target":2}` + "\r\n\n" + `{"type":"message","actor":3,"target":2}` + "\n",
			map[string]int64{"unread.message 2": 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, letters := deriveOne(t, c.subject, c.body)
			if len(letters) > 0 {
				t.Fatalf("refused: %s: %s", letters[0].Reason, letters[0].Detail)
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// docs/contract.md: "`if`/`unless` name a field (true when present and non-zero)"
func TestNonZero(t *testing.T) {
	for text, want := range map[string]bool{
		`1`: true, `-1`: true, `0.5`: true, `1e5`: true, `1e-400`: true, `true`: true, `[]`: true, `{}`: true,
		`0`: false, `-0`: false, `0.0`: false, `0e5`: false, `-0.00E-3`: false, `0e99999999999999999999999`: false, `false`: false, `null`: false,
		`"0"`: false, `"00"`: false, `"-0.0"`: false, `".0"`: false, `""`: false, `"false"`: false,
		`"east"`: true, `"Error"`: true, `"e"`: true, `"-e5"`: true, `"-"`: true, `"--0"`: true, `"..."`: true, `"0.0.0"`: true, `"0east"`: true, `"0e"`: true, `" "`: true,
	} {
		cells, letters := deriveOne(t, "events.view", `{"video":5,"long":`+text+`}`)
		if got := cells["video.long 5"] == 1; got != want || len(letters) > 0 {
			t.Errorf("%s: taken for non-zero is %v, %+v", text, got, letters)
		}
	}
}

// A window says who posted or deleted a post, but where messages are lost: whoever counted those before
// knows who posted in them (I10).
func TestWindowsSayWhoPosted(t *testing.T) {
	post := func(sequence, actor uint64) pipeline.Message {
		return pipeline.Message{Sequence: sequence, Subject: "events.post", Data: fmt.Appendf(nil, `{"actor":%d,"post":%d}`, actor, 100+sequence)}
	}
	lane := program(t, 4, operators.Limits{Events: 2, Bytes: wide.Bytes}).NewLane()
	gone := func(sequence uint64) pipeline.Message {
		return pipeline.Message{Sequence: sequence, Subject: "events.post", Data: []byte(`{"actor":9,"post":101,"delete":true}`)}
	}
	out, err := lane.Derive(0, pipeline.EndOf(12), []pipeline.Message{
		post(1, 7), post(2, 7), post(3, 8), post(5, 9), post(6, 1<<63), gone(7), gone(8), gone(11), post(12, 5),
	})
	if err != nil {
		t.Fatal(err)
	}
	// Messages that were deleted one by one: nobody knows who counted them before.
	holes, err := lane.Derive(pipeline.EndOf(12), pipeline.EndOf(20), []pipeline.Message{post(13, 7), post(15, 8), post(16, 8), post(17, 8), post(20, 8)})
	if err != nil {
		t.Fatal(err)
	}
	end, err := lane.Derive(pipeline.EndOf(20), pipeline.EndOf(22), []pipeline.Message{post(21, 8)}) // 22 is not there
	if err != nil {
		t.Fatal(err)
	}
	out = append(append(out, holes...), end...)
	var got []string
	for _, d := range out {
		w, err := pipeline.DecodeWindow(d.Window)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, fmt.Sprint(w.Authors)); w.Authors == nil {
			got[len(got)-1] = "not known"
		}
	}
	if want := "[7 7], not known, [9223372036854775808 9], not known, [5], not known, [8 8], not known, not known"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat(`{"type":"message","actor":1,"target":2}`+"\n", pipeline.PackMax+1)
	for name, c := range map[string]struct {
		subject, body string
		want          pipeline.Reason
	}{
		"empty":              {"events.like", ``, pipeline.ReasonJSON},
		"not JSON":           {"events.like", `hello`, pipeline.ReasonJSON},
		"two values":         {"events.message", `{"actor":1,"target":2}{}`, pipeline.ReasonJSON},
		"two lines":          {"events.message", "{\"actor\":1,\"target\":2}\n{\"actor\":1,\"target\":2}", pipeline.ReasonJSON},
		"NaN":                {"events.message", `{"actor":1,"target":2,"x":NaN}`, pipeline.ReasonJSON},
		"twice the same":     {"events.message", `{"actor":1,"target":2,"target":3}`, pipeline.ReasonJSON},
		"bad UTF-8":          {"events.message", "{\"actor\":1,\"target\":2,\"x\":\"\xff\"}", pipeline.ReasonJSON},
		"half a name":        {"events.notice", `{"channel":"a\ud83d","notice":1}`, pipeline.ReasonField},
		"half a kind":        {"events.read", `{"actor":1,"what":["\ud83d"]}`, pipeline.ReasonField},
		"half a type":        {"events.pack", `{"type":"message\ud83d","actor":1,"target":2}`, pipeline.ReasonType},
		"deep":               {"events.message", strings.Repeat("[", 20000), pipeline.ReasonJSON},
		"unknown type":       {"events.poke", `{"actor":1}`, pipeline.ReasonType},
		"type not a string":  {"events.message", `{"type":5,"actor":1,"target":2}`, pipeline.ReasonContradict},
		"contradicts":        {"events.like", `{"type":"comment","actor":1,"post":2,"author":3}`, pipeline.ReasonContradict},
		"pack without type":  {"events.pack", `{"actor":1,"target":2}`, pipeline.ReasonType},
		"empty pack":         {"events.pack", " \n", pipeline.ReasonJSON},
		"long pack":          {"events.pack", long, pipeline.ReasonPack},
		"missing id":         {"events.message", `{"actor":1}`, pipeline.ReasonID},
		"fraction":           {"events.message", `{"actor":1,"target":2.5}`, pipeline.ReasonID},
		"65 bits":            {"events.message", `{"actor":1,"target":18446744073709551616}`, pipeline.ReasonID},
		"signed string":      {"events.message", `{"actor":1,"target":"+18446744073709551615"}`, pipeline.ReasonID},
		"list for id":        {"events.message", `{"actor":1,"target":[2]}`, pipeline.ReasonID},
		"repost, no author":  {"events.post", `{"actor":1,"post":2,"repost_of":3}`, pipeline.ReasonID},
		"self-follow":        {"events.follow", `{"actor":1,"target":"1"}`, pipeline.ReasonSelf},
		"notice 0":           {"events.notice", `{"channel":"news","notice":0}`, pipeline.ReasonID},
		"read nothing":       {"events.read", `{"actor":1,"what":[]}`, pipeline.ReasonField},
		"read a word":        {"events.read", `{"actor":1,"what":"all"}`, pipeline.ReasonField},
		"read the unknown":   {"events.read", `{"actor":1,"what":["comment","pokes"]}`, pipeline.ReasonUnknown},
		"seen below 0":       {"events.read", `{"actor":1,"what":["comment"],"seen":{"comment":-1}}`, pipeline.ReasonField},
		"seen the unknown":   {"events.read", `{"actor":1,"what":["comment"],"seen":{"pokes":1}}`, pipeline.ReasonUnknown},
		"as_of of numbers":   {"events.read", `{"actor":1,"what":["comment"],"as_of":"7"}`, pipeline.ReasonAsOf},
		"as_of a word":       {"events.read", `{"actor":1,"what":["comment"],"as_of":"now"}`, pipeline.ReasonField},
		"undo a read":        {"events.read", `{"actor":1,"what":["comment"],"delete":true}`, pipeline.ReasonField},
		"adjust nothing":     {"events.adjust", `{"counter":"post","id":1,"column":"like"}`, pipeline.ReasonField},
		"adjust by half":     {"events.adjust", `{"counter":"post","id":1,"column":"like","add":0.5}`, pipeline.ReasonField},
		"adjust over 63":     {"events.adjust", `{"counter":"post","id":1,"column":"like","set":9223372036854775808}`, pipeline.ReasonField},
		"adjust no counter":  {"events.adjust", `{"counter":"pots","id":1,"column":"like","add":1}`, pipeline.ReasonUnknown},
		"adjust no column":   {"events.adjust", `{"counter":"post","id":1,"column":"lick","add":1}`, pipeline.ReasonUnknown},
		"adjust the hidden":  {"events.adjust", `{"counter":"video","id":1,"column":"exists","add":1}`, pipeline.ReasonUnknown},
		"del with a column":  {"events.adjust", `{"counter":"post","id":1,"column":"like","del":true}`, pipeline.ReasonField},
		"custom without key": {"events.view", `{"by":3}`, pipeline.ReasonID},
		"custom by a word":   {"events.view", `{"video":1,"by":"many"}`, pipeline.ReasonField},
	} {
		t.Run(name, func(t *testing.T) {
			cells, letters := deriveOne(t, c.subject, c.body)
			if len(letters) != 1 || letters[0].Reason != c.want {
				t.Fatalf("want one letter of reason %s, got %+v", c.want, letters)
			}
			if len(cells) > 0 {
				t.Errorf("a refused event changed %v", cells)
			}
			if string(letters[0].Data) != c.body {
				t.Errorf("kept %q", letters[0].Data)
			}
		})
	}
}

// genEvent draws an event of any counted type, on few ids.
func genEvent(t *rapid.T) string {
	id := func(name string) int { return rapid.IntRange(1, 4).Draw(t, name) }
	undo := ""
	if rapid.IntRange(0, 4).Draw(t, "undo") == 0 {
		undo = `,"delete":true`
	}
	switch rapid.IntRange(0, 9).Draw(t, "type") {
	case 8:
		return fmt.Sprintf(`{"type":"follow","actor":%d,"target":%d%s}`, id("actor"), id("target"), undo)
	case 9:
		return fmt.Sprintf(`{"type":"notice","channel":"c%d","notice":%d%s}`, id("channel"), id("notice"), undo)
	case 0:
		return fmt.Sprintf(`{"type":"post","actor":%d,"post":%d%s}`, id("actor"), id("post"), undo)
	case 1:
		return fmt.Sprintf(`{"type":"post","actor":%d,"post":%d,"repost_of":%d,"author":%d%s}`, id("actor"), id("post"), id("of"), id("author"), undo)
	case 2:
		return fmt.Sprintf(`{"type":"like","actor":%d,"post":%d,"author":%d%s}`, id("actor"), id("post"), id("author"), undo)
	case 3:
		return fmt.Sprintf(`{"type":"read","actor":%d,"what":["like","repost","feed","channel:c1"],"as_of":%d,"seen":{"like":%d}}`, id("actor"), rapid.IntRange(0, 5000).Draw(t, "as_of"), rapid.IntRange(0, 3).Draw(t, "seen"))
	case 4:
		return fmt.Sprintf(`{"type":"adjust","counter":"post","id":%d,"column":"like","set":%d}`, id("post"), rapid.Int64().Draw(t, "set"))
	case 5:
		return fmt.Sprintf(`{"type":"adjust","counter":"post","id":%d,"column":"like","add":%d}`, id("post"), rapid.Int64().Draw(t, "add"))
	case 6:
		return fmt.Sprintf(`{"type":"view","video":%d,"by":%d%s}`, id("video"), rapid.IntRange(-2000, 2000).Draw(t, "by"), undo)
	}
	return "rubbish"
}

func genMessages(t *rapid.T) (messages []pipeline.Message) {
	sequence, now := uint64(0), int64(0)
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		sequence += uint64(rapid.IntRange(1, 2).Draw(t, "jump"))
		now += rapid.Int64Range(0, 90_000).Draw(t, "ms")
		var lines []string
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			lines = append(lines, genEvent(t))
		}
		messages = append(messages, pipeline.Message{
			Sequence: sequence, Time: now, Subject: "events.pack", Data: []byte(strings.Join(lines, "\n")),
		})
	}
	return messages
}

// "The same EVENTS through different window cuts give the same rows",
// and the same bytes through the same cuts (I5): whatever the lane did before, and
// however the messages came in runs.
func TestCutsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := genMessages(t)
		run := func(shards int, limits operators.Limits, restarts bool) (state, []pipeline.DeadLetter) {
			p, err := operators.Compile(schema(nil), defaultRules, shards, limits)
			if err != nil {
				t.Fatalf("%v", err)
			}
			lane := p.NewLane()
			s := state{cells: map[string]int64{}}
			var letters []pipeline.DeadLetter
			for rest := messages; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "run")
				first, to := max(s.at+1, pipeline.At(rest[0].Sequence, 0)), pipeline.EndOf(rest[n-1].Sequence)
				if restarts { // a cut is asked for somewhere, also inside a message
					to = pipeline.Position(rapid.Uint64Range(uint64(first), uint64(to)).Draw(t, "to"))
				}
				out, err := lane.Derive(s.at, to, rest[:n])
				if err != nil {
					t.Fatalf("%v", err)
				}
				again, _ := p.NewLane().Derive(s.at, to, rest[:n])
				for i := range out {
					if !bytes.Equal(out[i].Window, again[i].Window) {
						t.Fatalf("two lanes made different bytes of the same messages")
					}
					if int(out[i].Events)+len(out[i].Letters) > limits.Events {
						t.Fatalf("%d events in a window of %d", out[i].Events, limits.Events)
					}
				}
				if restarts && len(out) > 1 { // the rest is derived again, from inside a message
					out = out[:rapid.IntRange(1, len(out)).Draw(t, "stored")]
				}
				for _, d := range out {
					s.apply(t, shards, d)
					letters = append(letters, d.Letters...)
				}
				for len(rest) > 0 && pipeline.EndOf(rest[0].Sequence) <= s.at {
					rest = rest[1:]
				}
			}
			return s, letters
		}
		want, wantLetters := run(4, wide, false)
		limits := operators.Limits{Events: rapid.IntRange(1, 9).Draw(t, "events"), Bytes: wide.Bytes}
		got, letters := run(rapid.IntRange(1, 8).Draw(t, "shards"), limits, true)
		if !maps.Equal(got.cells, want.cells) {
			t.Fatalf("windows of %d: %v\nwide windows: %v", limits.Events, got.cells, want.cells)
		}
		slices.Sort(got.ops)
		slices.Sort(want.ops)
		if !slices.Equal(got.ops, want.ops) {
			t.Fatalf("windows of %d: %q\nwide windows: %q", limits.Events, got.ops, want.ops)
		}
		if len(letters) != len(wantLetters) {
			t.Fatalf("%d dead letters, %d in wide windows", len(letters), len(wantLetters))
		}
	})
}

// A window stays within its bytes however large the changes are.
func TestWindowBytes(t *testing.T) {
	for kind, body := range map[string]func(i int) string{
		"read": func(i int) string {
			return fmt.Sprintf(`{"actor":%d,"what":["all"],"seen":{"like":%d,"comment":9223372036854775806,"mention":4611686018427387905}}`, 1<<63+uint64(i), 1<<40+i)
		},
		"post": func(i int) string { // deletions merged with what they undo are no plain sums any more
			id := 1<<63 + uint64(i/2)
			return fmt.Sprintf(`{"actor":%d,"post":%d,"repost_of":%d,"author":%d,"delete":%t}`, id, 1<<62+i/2, id, id, i%2 == 1)
		},
	} {
		limits := operators.Limits{Events: 65536, Bytes: 32 << 10}
		lane := program(t, 64, limits).NewLane()
		var messages []pipeline.Message
		for i := range 4000 {
			messages = append(messages, pipeline.Message{Sequence: uint64(i + 1), Time: int64(i) * 60_000, Subject: "events." + kind, Data: []byte(body(i))})
		}
		out, err := lane.Derive(0, pipeline.EndOf(4000), messages)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out {
			if len(d.Window) > limits.Bytes || len(d.Letters) > 0 {
				t.Fatalf("%s: a window of %d bytes, %d allowed; letters: %+v", kind, len(d.Window), limits.Bytes, d.Letters)
			}
		}
	}
}

// "Nothing that the contract allows stops a shard for its size": a
// section never changes more than every node can hand over in one transaction, whatever
// the window's other bounds let in: follows of one user, which change three entries each;
// reads of many channels; notices; a second for each event.
func TestSectionChanges(t *testing.T) {
	const events = 10_000
	for name, event := range map[string]func(i int) (kind, body string){
		"follows":  func(i int) (string, string) { return "follow", fmt.Sprintf(`{"actor":1,"target":%d}`, i+2) },
		"followed": func(i int) (string, string) { return "follow", fmt.Sprintf(`{"actor":%d,"target":1}`, i+2) },
		"posts":    func(i int) (string, string) { return "post", fmt.Sprintf(`{"actor":1,"post":%d}`, i+1) },
		"comments": func(i int) (string, string) {
			return "comment", fmt.Sprintf(`{"actor":1,"post":%d,"author":%d}`, i+1, i+9)
		},
		"notices": func(i int) (string, string) {
			return "notice", fmt.Sprintf(`{"channel":"system","notice":%d}`, 1<<62+uint64(i))
		},
		"reads": func(i int) (string, string) {
			what := `"all"`
			for n := range 120 {
				what += fmt.Sprintf(`,"channel:%d"`, i*120+n)
			}
			return "read", fmt.Sprintf(`{"actor":1,"what":[%s]}`, what)
		},
	} {
		limits := operators.Limits{Events: 65536, Bytes: 32 << 20}
		lane := program(t, 1, limits).NewLane()
		var messages []pipeline.Message
		for i := range events {
			kind, body := event(i)
			messages = append(messages, pipeline.Message{Sequence: uint64(i + 1), Time: int64(i) * 1000, Subject: "events." + kind, Data: []byte(body)})
		}
		out, err := lane.Derive(0, pipeline.EndOf(events), messages)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, d := range out {
			total += int(d.Events)
			bounded(t, name, d, limits)
		}
		if total != events {
			t.Errorf("%s: %d of %d events", name, total, events)
		}
	}
}

// bounded fails unless a window has as many bytes, and its sections as many changes, as they may.
func bounded(t *testing.T, name string, d pipeline.Derived, limits operators.Limits) {
	t.Helper()
	w, err := pipeline.DecodeWindow(d.Window)
	if err != nil || len(d.Window) > limits.Bytes {
		t.Fatalf("%s: %d bytes, allowed are %d; %v", name, len(d.Window), limits.Bytes, err)
	}
	for number, section := range w.Sections {
		changes := 0
		if number == len(w.Sections)-1 {
			changes = 2 * len(w.Marks)
		}
		r := pipeline.ReadSection(section, w.From)
		for c, ok := r.Next(); ok; c, ok = r.Next() {
			if changes++; c.Op != pipeline.OpCell {
				changes += r.Operation.Changes() - 1
			}
		}
		if changes > pipeline.SectionChangesMax || r.Err() != nil {
			t.Fatalf("%s: section %d changes %d, at most %d; %v", name, number, changes, pipeline.SectionChangesMax, r.Err())
		}
	}
}

// docs/contract.md: "`channels_open: false` takes notices for configured channels only":
// others are dead letters, and the fingerprint of the rules distinguishes the two. What was
// opened before can be withdrawn.
func TestChannelsOpen(t *testing.T) {
	limits := wide
	limits.Channels = []string{"system", "games"}
	closed := program(t, 1, limits)
	if closed.Rules() == program(t, 1, wide).Rules() {
		t.Error("the fingerprint of the rules does not tell that channels are closed")
	}
	body := `{"type":"notice","channel":"games","notice":1}
{"type":"notice","channel":"squat","notice":1}
{"type":"notice","channel":"squat","notice":1,"delete":true}
{"type":"read","actor":1,"what":["channel:squat"]}`
	out, err := closed.NewLane().Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Time: 1, Subject: "events.pack", Data: []byte(body)}})
	if err != nil || len(out) != 1 || out[0].Events != 3 || len(out[0].Letters) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, letter := range out[0].Letters {
		if letter.Reason != pipeline.ReasonUnknown || !strings.Contains(letter.Detail, "channel squat is not configured") {
			t.Errorf("%+v", letter)
		}
	}
}

// Whatever comes on whatever subject: every line is an event or a dead letter,
// whole; a pack does what its lines do alone, and windows of three events do
// together what a wide one does; no window is larger than allowed.
func FuzzDerive(f *testing.F) {
	pack := []string{
		`{"type":"post","actor":1,"post":2,"repost_of":"3","author":4}`,
		`{"type":"post","actor":1,"post":2,"delete":true}`,
		`{"type":"comment","actor":18446744073709551615,"post":2,"author":"4"}`,
		`{"type":"like","actor":1,"post":2,"author":1,"at":1700000000000}`,
		`{"type":"mention","actor":1,"target":2,"by":1e3}`,
		`{"type":"follow","actor":1,"target":2}`, `{"type":"follow","actor":2,"target":2}`,
		`{"type":"message","actor":1,"target":2,"delete":null}`,
		`{"type":"notice","channel":"system","notice":5}`, `{"\u0074ype":"notice","channel":"a","notice":1e5}`,
		`{"type":"read","actor":1,"what":["all","channel:x"],"seen":{"like":3},"as_of":"7"}`,
		`{"type":"adjust","counter":"post","id":1,"column":"like","add":-1}`, `{"type":"adjust","counter":"user","id":1,"del":true}`,
		`{"type":"view","video":5,"by":-3,"long":"1"}`, ` `, `[]`, `{"type":"like","actor":NaN}`, "{\"type\":\"like\",\"x\":\"\xff\"}",
	}
	for _, line := range pack {
		f.Add("pack", []byte(line))
		f.Add("read", []byte(line))
	}
	for _, kind := range []string{"post", "comment", "like", "mention", "follow", "message", "notice", "read", "adjust", "view", "no.such"} {
		f.Add(kind, []byte(`{"actor":1,"post":2,"author":3,"target":4,"channel":"c","notice":5,"what":["feed"],"counter":"post","id":6,"column":"cntan","set":-7,"video":8}`))
	}
	f.Add("pack", []byte(strings.Join(pack, "\n")))
	f.Add("pack", bytes.Repeat([]byte("{}\r\n"), pipeline.PackMax+1))

	narrow := operators.Limits{Events: 3, Bytes: wide.Bytes}
	whole, cut := program(f, 4, wide).NewLane(), program(f, 4, narrow).NewLane()
	run := func(t *testing.T, lane *operators.Lane, limits operators.Limits, kind string, bodies ...[]byte) (s state, events int, letters []string) {
		var messages []pipeline.Message
		for i, body := range bodies {
			messages = append(messages, pipeline.Message{Sequence: uint64(i + 1), Time: 1000, Subject: "events." + kind, Data: body})
		}
		end := pipeline.EndOf(uint64(len(bodies)))
		out, err := lane.Derive(0, end, messages)
		if err != nil {
			t.Fatal(err)
		}
		s = state{cells: map[string]int64{}}
		for _, d := range out {
			s.apply(t, 4, d)
			if len(d.Window) > limits.Bytes || int(d.Events)+len(d.Letters) > limits.Events {
				t.Fatalf("a window of %d events and %d letters in %d bytes", d.Events, len(d.Letters), len(d.Window))
			}
			events += int(d.Events)
			for _, l := range d.Letters {
				letters = append(letters, string(l.Reason)+" "+string(l.Data))
			}
		}
		if s.at != end {
			t.Fatalf("covered up to %d", s.at)
		}
		return s, events, letters
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		s, events, letters := run(t, whole, wide, kind, body)
		lines := [][]byte{body}
		if kind == "pack" && !slices.ContainsFunc(letters, func(l string) bool { return l == "pack "+string(body) }) {
			lines = slices.DeleteFunc(bytes.Split(body, []byte("\n")), func(l []byte) bool { return len(bytes.Trim(l, " \t\r")) == 0 })
		}
		if want := max(len(lines), 1); events+len(letters) != want {
			t.Fatalf("%d events and %d letters of %d lines", events, len(letters), want)
		}
		for _, l := range letters {
			if _, data, _ := strings.Cut(l, " "); !slices.ContainsFunc(lines, func(l []byte) bool { return string(l) == data }) && len(lines) > 0 {
				t.Fatalf("the letter %q is no line", l)
			}
		}
		if events > 0 && events == len(lines) && slices.ContainsFunc(lines, func(l []byte) bool { return !json.Valid(l) }) {
			t.Fatalf("%q was counted and is not JSON", body)
		}
		if c, n, l := run(t, cut, narrow, kind, body); !maps.Equal(c.cells, s.cells) || n != events || !slices.Equal(l, letters) {
			t.Fatalf("%d events make %v and %q, cut into windows %v and %q", events, s.cells, letters, c.cells, l)
		}
		if kind == "pack" && len(lines) > 1 {
			if a, n, l := run(t, whole, wide, kind, lines...); !maps.Equal(a.cells, s.cells) || len(a.ops) != len(s.ops) || n != events || !slices.Equal(l, letters) {
				t.Fatalf("a pack of %d events makes %v, %q and %q; its lines alone %v, %q and %q", events, s.cells, s.ops, letters, a.cells, a.ops, l)
			}
		}
	})
}
