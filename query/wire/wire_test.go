package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// ids draws lists of all kinds: dense and sparse, sorted and not, with repeats.
func ids(t *rapid.T, most int, what string) []uint64 {
	top := uint64(1) << rapid.IntRange(1, 63).Draw(t, what+" bits")
	list := rapid.SliceOfN(rapid.Uint64Range(1, top), 0, most).Draw(t, what)
	if rapid.Bool().Draw(t, what+" sorted") {
		slices.Sort(list)
	}
	if rapid.IntRange(0, 9).Draw(t, what+" largest") == 0 {
		list = append(list, 1<<64-1)
	}
	return list
}

func position(t *rapid.T, what string) pipeline.Position {
	return pipeline.Position(rapid.Uint64().Draw(t, what))
}

var name = rapid.StringMatching(`[a-z0-9_-]{1,64}`)

// What is asked is what arrives, of every kind.
func TestAsksRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := wire.Names{Counter: name.Draw(t, "counter"), Columns: rapid.SliceOfN(name, 1, 5).Draw(t, "columns")}
		packed := wire.AppendNames(nil, names)
		if got, err := wire.ParseNames(packed); err != nil || !reflect.DeepEqual(got, names) {
			t.Fatalf("%v %v", got, err)
		}
		rows := wire.RowsAsk{Names: packed, IDs: ids(t, 300, "ids"), Sets: drawSets(t, len(names.Columns))}
		profiles := wire.ProfilesAsk{Names: packed, All: rapid.Bool().Draw(t, "all"), Users: ids(t, 30, "users")}
		if !profiles.All {
			profiles.Channels = rapid.SliceOfN(name, 0, 5).Draw(t, "channels")
		}
		posts := wire.PostsAsk{From: position(t, "from"), Before: position(t, "before"), Limit: 1 + rapid.IntRange(0, 1000).Draw(t, "limit"), Followees: ids(t, 300, "followees")}
		page := wire.PageAsk{User: 1 + uint64(position(t, "user"))/2, After: uint64(position(t, "after")), Limit: posts.Limit}

		bodies := [][]byte{rows.Append(nil), profiles.Append(nil), posts.Append(nil), page.Append(nil), sharesAsk(nil), nil}
		kinds := []wire.Kind{rows.Kind(), wire.Profiles, wire.Posts, wire.Following, wire.CountPosts, wire.Applied}
		message := wire.BeginBatch(nil, 77, wire.Oldest)
		var sent []wire.Ask
		for i, body := range bodies {
			a := wire.Ask{ID: uint64(i + 1), Kind: kinds[i], Min: position(t, "min"), Wait: time.Duration(rapid.IntRange(0, 60_000).Draw(t, "wait")) * time.Millisecond, Within: time.Duration(rapid.IntRange(0, 60_000).Draw(t, "within")) * time.Millisecond, Body: body}
			before := len(message)
			message = wire.AppendAsk(message, &a)
			if len(message)-before > wire.AskOverhead+len(body) {
				t.Fatalf("a part of %d bytes takes %d", len(body), len(message)-before)
			}
			sent = append(sent, a)
		}
		message = wire.End(message)
		batch, got, err := wire.DecodeBatch(message, nil)
		if err != nil || batch.Schema != 77 || batch.Version != wire.Version || len(got) != len(sent) {
			t.Fatalf("%+v %d %v", batch, len(got), err)
		}
		for i := range got {
			if got[i].ID != sent[i].ID || got[i].Kind != sent[i].Kind || got[i].Min != sent[i].Min || got[i].Wait != sent[i].Wait || got[i].Within != sent[i].Within || !bytes.Equal(got[i].Body, sent[i].Body) {
				t.Fatalf("%+v\n%+v", got[i], sent[i])
			}
		}
		var rows2 wire.RowsAsk
		same(t, rows2.Decode(got[0].Kind, got[0].Body, batch.Version), fmt.Sprint(rows), fmt.Sprint(rows2))
		var profiles2 wire.ProfilesAsk
		same(t, profiles2.Decode(got[1].Body, batch.Version), fmt.Sprint(profiles), fmt.Sprint(profiles2))
		var posts2 wire.PostsAsk
		same(t, posts2.Decode(got[2].Body, batch.Version), fmt.Sprint(posts), fmt.Sprint(posts2))
		var page2 wire.PageAsk
		same(t, page2.Decode(got[3].Body, batch.Version), fmt.Sprint(page), fmt.Sprint(page2))
	})
}

func same(t *rapid.T, err error, is, should string) {
	t.Helper()
	if err != nil || is != should {
		t.Fatalf("%v\n%.1000s\n%.1000s", err, is, should)
	}
}

func drawCountAsks(t *rapid.T) []query.CountAsk {
	asks := make([]query.CountAsk, rapid.IntRange(0, 5).Draw(t, "asks"))
	for i := range asks {
		asks[i].Mark = position(t, "mark")
		for _, id := range ids(t, 50, "followees") {
			f := query.Followee{User: id}
			if rapid.Bool().Draw(t, "later") {
				f.Since = position(t, "since")
			}
			asks[i].Followees = append(asks[i].Followees, f)
		}
	}
	return asks
}

// pieces takes an answer apart as a holder does, and puts it through messages
// of limit bytes.
func pieces(t interface{ Fatalf(string, ...any) }, limit int, appendAnswer func(*wire.Pieces)) [][]byte {
	var messages [][]byte
	piece, at := 0, 0
	begin := func(p *wire.Pieces) {
		p.Buf, at = wire.BeginReply(wire.BeginReplies(nil, wire.Oldest), &wire.Reply{ID: 9, Piece: piece, Applied: 5})
	}
	finish := func(p *wire.Pieces, last bool) {
		wire.EndReply(p.Buf, at, last)
		messages = append(messages, wire.End(p.Buf))
	}
	p := &wire.Pieces{Limit: limit - 4, Cut: func(p *wire.Pieces) {
		finish(p, false)
		piece++
		begin(p)
	}}
	begin(p)
	appendAnswer(p)
	finish(p, true)
	var bodies [][]byte
	for i, m := range messages {
		if len(m) > limit {
			t.Fatalf("a message of %d bytes, %d are the limit", len(m), limit)
		}
		head, replies, err := wire.DecodeReplies(m, nil)
		if err != nil || len(replies) != 1 || head.Taken {
			t.Fatalf("%v %v", replies, err)
		}
		r := replies[0]
		if r.ID != 9 || r.Piece != i || r.Last != (i == len(messages)-1) || r.Status != wire.Answered || r.Applied != 5 {
			t.Fatalf("%+v", r)
		}
		bodies = append(bodies, r.Body)
	}
	return bodies
}

var tail = wire.Tail{AsOf: 12345, Cost: query.Cost{Cold: 3, Disk: 17 * time.Microsecond}}

func value(t *rapid.T) int64 {
	v := rapid.Int64().Draw(t, "value")
	return v >> rapid.IntRange(0, 63).Draw(t, "shift")
}

// "A list that is too long for `max_payload` goes in pieces."
func TestAnswersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{wire.MessageMin, 64 << 10, 1 << 20}).Draw(t, "limit")
		n, columns := rapid.IntRange(0, 3000).Draw(t, "ids"), rapid.IntRange(1, 4).Draw(t, "columns")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var rows, got query.Rows
		rows.Sets = drawSets(t, columns)
		got.Sets = rows.Sets
		rows.Reset(n, columns)
		got.Reset(n, columns)
		items := make([]int32, n)
		for i := range items {
			items[i] = int32(n - 1 - i)
			if rows.Exist[i] = r.IntN(2) == 0; rows.Exist[i] {
				for j := range columns {
					rows.Values[i*columns+j] = int64(r.Uint64()) >> r.IntN(64)
				}
			}
			for j := range rows.Sets {
				rows.Has[i*len(rows.Sets)+j] = r.IntN(3) == 0
				got.Has[i*len(rows.Sets)+j] = r.IntN(2) == 0 // of another answer
			}
			if r.IntN(50) == 0 {
				rows.Missing = append(rows.Missing, i)
			}
		}
		end, missing, err := wire.DecodeRows(pieces(t, limit, func(p *wire.Pieces) {
			p.Rows(&rows, columns)
			p.End(tail)
		}), items, columns, &got)
		if err != nil || end != tail || !slices.Equal(missing, rows.Missing) {
			t.Fatalf("%v %v %v", end, missing, err)
		}
		for i, place := range items {
			if rows.Exist[i] != got.Exist[place] || !slices.Equal(rows.Values[i*columns:(i+1)*columns], got.Values[int(place)*columns:(int(place)+1)*columns]) {
				t.Fatalf("row %d", i)
			}
			if s := len(rows.Sets); !slices.Equal(rows.Has[i*s:(i+1)*s], got.Has[int(place)*s:(int(place)+1)*s]) {
				t.Fatalf("members of row %d", i)
			}
		}
	})
}

func TestProfilesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{wire.MessageMin, 1 << 20}).Draw(t, "limit")
		users, columns := rapid.IntRange(0, 20).Draw(t, "users"), rapid.IntRange(0, 4).Draw(t, "columns")
		notices := rapid.SliceOfNDistinct(name, 0, 40, rapid.ID).Draw(t, "notices")
		dots := rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "dots")
		var out query.Profiles
		var got wire.ProfilesAnswer
		out.Reset(users, columns, notices, dots)
		out.AsOf, out.Cost = tail.AsOf, tail.Cost
		out.Rest = make([]query.CountAsk, users)
		place := func(n int) (p []int) {
			for i := range n {
				p = append(p, i)
			}
			return p
		}
		for i := range users {
			u := &out.Users[i]
			u.Feed = uint64(value(t))
			for j := range u.Counts {
				u.Counts[j] = value(t)
			}
			for j := range u.Notices {
				u.Notices[j] = uint64(rapid.IntRange(0, 2).Draw(t, "notices"))
			}
			for j := range u.Dots {
				u.Dots[j] = rapid.Bool().Draw(t, "dot")
			}
			if n := rapid.SampledFrom([]int{0, 0, 3, 5000}).Draw(t, "rest"); n > 0 {
				out.Rest[i].Mark = position(t, "mark")
				for f := range n {
					out.Rest[i].Followees = append(out.Rest[i].Followees, query.Followee{User: uint64(f*7 + 1), Since: pipeline.Position(f % 3), Changed: changed(t)})
				}
			}
		}
		shards := rapid.SampledFrom([]int{1, 7, 64, pipeline.ShardsMax}).Draw(t, "shards")
		var sharing wire.Sharing
		got.Reset(3, 1, []string{"left", "over"}, nil) // memory of another answer
		err := wire.DecodeProfiles(pieces(t, limit, func(p *wire.Pieces) {
			p.ChannelNames(false, notices)
			p.ChannelNames(true, dots)
			for i := range users {
				p.User(i, &out.Users[i], out.Users[i].Counts, place(len(notices)), place(len(dots)))
				p.Rest(i, &out.Rest[i], shards, &sharing)
			}
			p.End(tail)
		}), users, columns, shards, &got)
		if err != nil {
			t.Fatalf("%v", err)
		}
		view := func(p *query.Unreads) string {
			return fmt.Sprint(p.Notices, p.Dots, p.Users, p.Missing, p.AsOf, p.Cost)
		}
		if a, b := view(&out.Unreads), view(&got.Unreads); a != b {
			t.Fatalf("%.2000s\n%.2000s", a, b)
		}
		for i := range out.Rest {
			unshared(t, &got.Rest[i], &out.Rest[i], shards)
		}
	})
}

func TestPagesAndCountsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := query.Counts{Posts: rapid.SliceOfN(rapid.Uint64(), 0, 3000).Draw(t, "counts")}
		for i := range counts.Posts {
			if i%7 == 3 {
				counts.Missing = append(counts.Missing, i)
			}
		}
		var counts2 query.Counts
		err := wire.DecodeCounts(pieces(t, wire.MessageMin, func(p *wire.Pieces) {
			p.Counts(&counts)
			p.End(tail)
		}), len(counts.Posts), &counts2)
		if err != nil || !slices.Equal(counts.Posts, counts2.Posts) || !slices.Equal(counts.Missing, counts2.Missing) || counts2.AsOf != tail.AsOf {
			t.Fatalf("%v", err)
		}

		list := ids(t, 5000, "users")
		slices.Sort(list)
		users, users2 := query.UserPage{Users: slices.Compact(list), More: rapid.Bool().Draw(t, "more")}, query.UserPage{}
		from, err := wire.DecodeUserPage(pieces(t, wire.MessageMin, func(p *wire.Pieces) {
			p.UserPage(&users, 99)
			p.End(tail)
		}), wire.Followees, len(users.Users), &users2)
		if err != nil || from != 99 || users2.More != users.More || !slices.Equal(users.Users, users2.Users) || users2.Cost != tail.Cost {
			t.Fatalf("%v %v", from, err)
		}

		feed, feed2 := query.FeedPage{Missing: rapid.Bool().Draw(t, "missing")}, query.FeedPage{}
		for range rapid.IntRange(0, 3000).Draw(t, "posts") {
			feed.Posts = append(feed.Posts, query.FeedPost{Post: uint64(len(feed.Posts)) << 40, Author: 1 << 63, Position: position(t, "position")})
		}
		err = wire.DecodeFeedPage(pieces(t, wire.MessageMin, func(p *wire.Pieces) {
			p.FeedPage(&feed)
			p.End(tail)
		}), len(feed.Posts), &feed2)
		if err != nil || feed2.Missing != feed.Missing || !slices.Equal(feed.Posts, feed2.Posts) {
			t.Fatalf("%v", err)
		}
	})
}

// "A changed byte in what nodes send each other is noticed."
func TestEveryByteIsChecked(t *testing.T) {
	page := wire.PageAsk{User: 7, After: 3, Limit: 20}
	batch := wire.End(wire.AppendAsk(wire.BeginBatch(nil, 1, wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Following, Body: page.Append(nil)}))
	replies := wire.End(wire.AppendReply(wire.BeginReplies(nil, wire.Oldest), &wire.Reply{ID: 1, Body: []byte("abc")}))
	for name, message := range map[string][]byte{"batch": batch, "replies": replies} {
		for i := range message {
			for bit := range 8 {
				message[i] ^= 1 << bit
				_, _, err := wire.DecodeBatch(message, nil)
				if name == "replies" {
					_, _, err = wire.DecodeReplies(message, nil)
				}
				if !errors.Is(err, wire.ErrDamaged) {
					t.Fatalf("%s: bit %d of byte %d turned over: %v", name, bit, i, err)
				}
				message[i] ^= 1 << bit
			}
		}
	}
	wire.SetTaken(replies)
	if _, _, err := wire.DecodeReplies(wire.End(replies[:len(replies)-4]), nil); err != nil {
		t.Fatal(err)
	}
}

// "A node that is one version older or newer is understood, or is
// refused with words."
func TestVersions(t *testing.T) {
	page := wire.PageAsk{User: 7, After: 3, Limit: 20}
	of := func(needs, own byte, body []byte) []byte {
		m := wire.AppendAsk(wire.BeginBatch(nil, 1, wire.Oldest), &wire.Ask{ID: 1, Kind: wire.Following, Body: body})
		m[3], m[4] = needs, own
		return wire.End(m)
	}
	// A newer node that only adds is understood: what it adds stands at the end.
	batch, asks, err := wire.DecodeBatch(of(1, wire.Version+1, append(page.Append(nil), 1, 2, 3)), nil)
	if err != nil || batch.Version != wire.Version+1 {
		t.Fatal(batch, err)
	}
	var got wire.PageAsk
	if err := got.Decode(asks[0].Body, batch.Version); err != nil || got != page {
		t.Error(got, err)
	}
	// One of the same version has nothing to add.
	if err := got.Decode(asks[0].Body, wire.Version); !errors.Is(err, wire.ErrDamaged) || !strings.Contains(err.Error(), "3 bytes are left over") {
		t.Error(err)
	}
	for _, v := range [][2]byte{{6, 6}, {9, 9}, {0, 0}} {
		_, _, err := wire.DecodeBatch(of(v[0], v[1], nil), nil)
		if !errors.Is(err, wire.ErrVersion) || !strings.Contains(err.Error(), fmt.Sprintf("of version %d and needs %d", v[1], v[0])) {
			t.Error(v, err)
		}
	}
}

// The columns that nodes show are what they must agree on, not their order.
func TestFingerprint(t *testing.T) {
	schema := func(columns ...pipeline.ColumnSpec) *pipeline.Schema {
		s, err := pipeline.NewSchema([]string{"post"}, columns)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	like, view, old := pipeline.ColumnSpec{Name: "like", Max: 63}, pipeline.ColumnSpec{Name: "view", Max: 63}, pipeline.ColumnSpec{Name: "old", Hidden: true}
	other := view
	other.Default = 1
	is := wire.Fingerprint(schema(like, view), 64)
	if wire.Fingerprint(schema(old, view, like), 64) != is {
		t.Error("order and hidden columns do not matter")
	}
	if wire.Fingerprint(schema(like, other), 64) == is || wire.Fingerprint(schema(like, view), 32) == is || wire.Fingerprint(schema(like), 64) == is {
		t.Error("defaults, shards and columns do")
	}
}

func FuzzDecodeBatch(f *testing.F) {
	rows := wire.RowsAsk{Names: wire.AppendNames(nil, wire.Names{Counter: "post", Columns: []string{"like"}}), IDs: []uint64{1, 2, 1 << 40}}
	profiles := wire.ProfilesAsk{Names: rows.Names, Channels: []string{"system"}, Users: []uint64{7}}
	posts := wire.PostsAsk{From: 1, Before: 1 << 40, Limit: 21, Followees: []uint64{5, 6}}
	page := wire.PageAsk{User: 7, Limit: 100}
	for kind, body := range map[wire.Kind][]byte{
		wire.Rows: rows.Append(nil), wire.Profiles: profiles.Append(nil), wire.Posts: posts.Append(nil), wire.Followers: page.Append(nil),
		wire.Standpoint: wire.AppendStandpointAsk(nil, &query.StandpointAsk{User: 7, Channels: []string{"system"}, Before: 9, Limit: 21}),
		wire.CountPosts: sharesAsk([]wire.Rest{
			new(wire.Sharing).Rest(&query.CountAsk{Mark: 5, Followees: []query.Followee{{User: 9}, {User: 10, Since: 6}, {User: 1 << 63, Since: 1 << 60}}}, 2), {Mark: 3},
		}),
	} {
		f.Add(byte(kind), body)
		f.Add(byte(0), wire.AppendAsk(wire.BeginBatch(nil, 3, wire.Oldest), &wire.Ask{ID: 1, Kind: kind, Body: body}))
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		for version := range byte(3) {
			var rows wire.RowsAsk
			var profiles wire.ProfilesAsk
			var posts wire.PostsAsk
			var page wire.PageAsk
			switch wire.Kind(kind) {
			case 0: // a whole message, with a checksum that is right
				_, asks, err := wire.DecodeBatch(wire.End(slices.Clone(body)), nil)
				if err == nil && len(asks)*3 > len(body) {
					t.Fatalf("%d parts in %d bytes", len(asks), len(body))
				}
			case wire.Rows:
				if rows.Decode(wire.Kind(kind), body, version) == nil {
					_, _ = wire.ParseNames(rows.Names)
					again(t, rows.IDs, body)
				}
			case wire.Profiles:
				if profiles.Decode(body, version) == nil {
					again(t, profiles.Users, body)
				}
			case wire.Posts:
				if posts.Decode(body, version) == nil {
					again(t, posts.Followees, body)
				}
			case wire.CountPosts:
				var asks wire.CountAsks
				if err := asks.Decode(body, version); err == nil && (len(asks.Asks) > len(body) || asks.Len() > len(body)) {
					t.Fatalf("%d asks of %d in %d bytes", len(asks.Asks), asks.Len(), len(body))
				}
			case wire.Standpoint:
				ask, err := wire.DecodeStandpointAsk(body, version)
				if err == nil && (len(ask.Channels) > len(body) || ask.User == 0 || ask.Limit < 1 || ask.Limit > wire.LimitMax) {
					t.Fatalf("%+v in %d bytes", ask, len(body))
				}
			default:
				_ = page.Decode(body, version)
			}
		}
	})
}

// again: what was read is bounded by the bytes, and has no id that is none.
func again(t *testing.T, ids []uint64, body []byte) {
	t.Helper()
	if len(ids) > len(body) || slices.Contains(ids, 0) {
		t.Fatalf("%d ids in %d bytes", len(ids), len(body))
	}
}

func FuzzDecodeReplies(f *testing.F) {
	var rows query.Rows
	rows.Reset(3, 2)
	rows.Exist[1], rows.Values[2] = true, 300
	var profiles query.Profiles
	profiles.Reset(2, 1, []string{"system"}, []string{"games"})
	profiles.Users[0].Notices[0], profiles.Users[1].Dots[0] = 3, true
	for kind, answer := range map[wire.Kind]func(*wire.Pieces){
		wire.Rows: func(p *wire.Pieces) { p.Rows(&rows, 2) },
		wire.Profiles: func(p *wire.Pieces) {
			p.ChannelNames(false, profiles.Notices)
			p.ChannelNames(true, profiles.Dots)
			for i := range 2 {
				p.User(i, &profiles.Users[i], profiles.Users[i].Counts, []int{0}, []int{0})
				p.Rest(i, &query.CountAsk{Mark: 4, Followees: []query.Followee{{User: 5}, {User: 8, Since: 300}}}, 3, new(wire.Sharing))
			}
		},
		wire.CountPosts: func(p *wire.Pieces) { p.Counts(&query.Counts{Posts: []uint64{4, 0}, Missing: []int{1}}) },
		wire.Following:  func(p *wire.Pieces) { p.UserPage(&query.UserPage{Users: []uint64{4, 9}}, 3) },
		wire.Posts: func(p *wire.Pieces) {
			p.FeedPage(&query.FeedPage{Posts: []query.FeedPost{{Post: 1, Author: 2, Position: 3}}})
		},
		wire.Standpoint: func(p *wire.Pieces) {
			p.Standpoint(&query.Standpoint{
				Read: 4, Feed: query.CountAsk{Mark: 5, Followees: []query.Followee{{User: 5, Since: 9}}}, Follows: 1,
				Channels: []query.StandpointChannel{{Name: "system", Cursor: 3, Unread: 1, Held: 2}}, Notices: []query.Notice{{Position: 8, Notice: 7}},
			})
		},
		wire.Applied: func(*wire.Pieces) {},
	} {
		p := &wire.Pieces{Limit: 1 << 20}
		answer(p)
		p.End(tail)
		f.Add(byte(kind), p.Buf)
		f.Add(byte(0), wire.AppendReply(wire.BeginReplies(nil, wire.Oldest), &wire.Reply{ID: 1, Last: true, Body: p.Buf}))
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		in := [][]byte{body}
		switch wire.Kind(kind) {
		case 0:
			_, _, _ = wire.DecodeReplies(wire.End(slices.Clone(body)), nil)
		case wire.Rows:
			var rows query.Rows
			rows.Reset(3, 2)
			_, missing, err := wire.DecodeRows(in, []int32{2, 0, 1}, 2, &rows)
			if err == nil && len(missing) > 0 && slices.Max(missing) > 2 {
				t.Fatal(missing)
			}
		case wire.Profiles:
			var p wire.ProfilesAnswer
			if wire.DecodeProfiles(in, 2, 1, 3, &p) != nil {
				return
			}
			if len(p.Users) != 2 || len(p.Rest) != 2 {
				t.Fatal(len(p.Users))
			}
			for i := range p.Rest {
				var asks wire.CountAsks
				asks.Begin(p.Rest[i].Mark)
				for j := range p.Rest[i].Shares {
					share := &p.Rest[i].Shares[j]
					if err := asks.Add(share, p.Rest[i].Base); share.Shard >= 3 || err == nil && share.Len() > share.Bytes() {
						t.Fatal(share.Shard, share.Len(), share.Bytes(), err)
					}
				}
				if asks.Len() > len(body) {
					t.Fatalf("%d followees in %d bytes", asks.Len(), len(body))
				}
			}
		case wire.CountPosts:
			var c query.Counts
			if wire.DecodeCounts(in, 2, &c) == nil && len(c.Posts) != 2 {
				t.Fatal(c)
			}
		case wire.Posts:
			var p query.FeedPage
			if wire.DecodeFeedPage(in, 3, &p) == nil && len(p.Posts) > 3 {
				t.Fatal(p)
			}
		case wire.Standpoint:
			var s query.Standpoint
			if wire.DecodeStandpoint(in, 3, &s) == nil && (len(s.Notices) > 3 || len(s.Notices) > 0 && s.Notices[0].Channel >= len(s.Channels)) {
				t.Fatal(s)
			}
		case wire.Applied:
			_, _ = wire.DecodeNothing(in)
		default:
			var p query.UserPage
			if _, err := wire.DecodeUserPage(in, wire.Following, 3, &p); err == nil && len(p.Users) > 3 {
				t.Fatal(p)
			}
		}
	})
}

// "What a decoder allocates is bounded": each channel that an answer
// names takes room for every user.
func TestTooManyChannels(t *testing.T) {
	names := make([]string, 80_000)
	for i := range names {
		names[i] = "c"
	}
	p := &wire.Pieces{Limit: 1 << 30}
	p.ChannelNames(false, names)
	p.Missing(0, []int{0})
	p.End(tail)
	var out wire.ProfilesAnswer
	if err := wire.DecodeProfiles([][]byte{p.Buf}, 1, 1, 1, &out); !errors.Is(err, wire.ErrDamaged) {
		t.Error(err, len(out.Notices))
	}
}
