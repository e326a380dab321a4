package wire_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// What is asked and answered of a standpoint is what arrives, however many followees,
// channels and notices there are.
func TestStandpointRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := query.StandpointAsk{User: 1 + uint64(position(t, "user"))/2, Before: position(t, "before"), Limit: rapid.IntRange(1, wire.LimitMax).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "named") {
			ask.Channels = append([]string{}, rapid.SliceOfN(name, 0, 5).Draw(t, "channels")...)
		}
		if got, err := wire.DecodeStandpointAsk(wire.AppendStandpointAsk(nil, &ask), wire.Version); err != nil || !reflect.DeepEqual(got, ask) {
			t.Fatalf("%+v, want %+v: %v", got, ask, err)
		}
		s := query.Standpoint{
			Dropped: rapid.Bool().Draw(t, "dropped"), More: rapid.Bool().Draw(t, "more"), Read: position(t, "read"),
			PostsMax: 1000, NoticesMax: rapid.IntRange(0, 1<<30).Draw(t, "most"),
			Channels: []query.StandpointChannel{}, Notices: []query.Notice{},
		}
		s.Feed.Mark, s.Feed.Followees = position(t, "mark"), []query.Followee{}
		for _, user := range slices.Compact(slices.Sorted(slices.Values(ids(t, 5000, "followees")))) {
			s.Feed.Followees = append(s.Feed.Followees, query.Followee{User: user, Since: s.Read / 2})
		}
		s.Follows = len(s.Feed.Followees)
		for range rapid.IntRange(0, 300).Draw(t, "channels") {
			s.Channels = append(s.Channels, query.StandpointChannel{Name: name.Draw(t, "channel"), Dot: len(s.Channels)%2 == 0, Cursor: s.Read, Unread: 7, Held: 1 << 40})
		}
		for range rapid.IntRange(0, 2000*min(1, len(s.Channels))).Draw(t, "notices") {
			s.Notices = append(s.Notices, query.Notice{Position: s.Read, Notice: 1<<64 - 1, Channel: len(s.Notices) % len(s.Channels)})
		}
		var got query.Standpoint
		err := wire.DecodeStandpoint(pieces(t, wire.MessageMin, func(p *wire.Pieces) {
			p.Standpoint(&s)
			p.End(tail)
		}), len(s.Notices), &got)
		s.AsOf, s.Cost = tail.AsOf, tail.Cost
		if got.Channels == nil {
			got.Channels = []query.StandpointChannel{}
		}
		if got.Notices == nil {
			got.Notices = []query.Notice{}
		}
		if got.Feed.Followees == nil {
			got.Feed.Followees = []query.Followee{}
		}
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%+v, want %+v: %v", got, s, err)
		}
	})
}
