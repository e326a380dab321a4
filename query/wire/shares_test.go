package wire_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// sharesAsk is the body of a question about all that users' holders sent.
func sharesAsk(rests []wire.Rest) []byte {
	body := wire.BeginCounts(nil, len(rests))
	for i := range rests {
		r := &rests[i]
		body = wire.BeginCount(body, r.Mark, r.Base, len(r.Shares))
		for j := range r.Shares {
			body = r.Shares[j].Append(body)
		}
	}
	return body
}

// sharesOf are the followees of some shards, shard by shard: what a share is a
// shorter form of.
func sharesOf(list []query.Followee, shards int, want func(pipeline.Shard) bool) (some []query.Followee) {
	for shard := range pipeline.Shard(shards) {
		for _, f := range list {
			if want(shard) && pipeline.ShardOf(f.User, shards) == shard {
				some = append(some, f)
			}
		}
	}
	return some
}

func everyShard(pipeline.Shard) bool { return true }

// changed is when a followee changed: as a rule it is known.
func changed(t *rapid.T) pipeline.Position {
	if rapid.IntRange(0, 400).Draw(t, "not known") == 0 {
		return 0
	}
	return max(position(t, "changed"), 1)
}

// unshared: what is in shares is what was put in, each in its shard, and when they
// changed, where that is known of all, who are few.
func unshared(t interface {
	Fatalf(string, ...any)
}, got *wire.Rest, want *query.CountAsk, shards int,
) {
	var asks wire.CountAsks
	asks.Begin(got.Mark)
	for i := range got.Shares {
		share, before := &got.Shares[i], asks.Len()
		if err := asks.Add(share, got.Base); err != nil {
			t.Fatalf("share %d: %v", i, err)
		}
		if n := asks.Len() - before; n != share.Len() || len(share.Append(nil)) != share.Bytes() {
			t.Fatalf("share %d has %d followees, and says %d", i, n, share.Len())
		}
	}
	asks.End()
	all := sharesOf(want.Followees, shards, everyShard)
	var changed []pipeline.Position
	for i := range all {
		changed = append(changed, all[i].Changed)
		all[i].Changed = 0
	}
	if len(all) > wire.ChangedMax || slices.Contains(changed, 0) {
		changed = nil
	}
	if !slices.Equal(got.Changed, changed) {
		t.Fatalf("changed at %v\nnot %v", got.Changed, changed)
	}
	if len(all) > 0 && got.Mark != want.Mark || !slices.Equal(asks.Asks[0].Followees, all) {
		t.Fatalf("mark %d, %.1000v\nnot %d, %.1000v", got.Mark, asks.Asks[0].Followees, want.Mark, all)
	}
	for i := range got.Shares {
		var one wire.CountAsks
		one.Begin(0)
		_ = one.Add(&got.Shares[i], got.Base)
		one.End()
		for _, f := range one.Asks[0].Followees {
			if pipeline.ShardOf(f.User, shards) != got.Shares[i].Shard {
				t.Fatalf("%d is in a share of shard %d", f.User, got.Shares[i].Shard)
			}
		}
	}
}

// Whom a user's holder names is whom the holders of some of the shards are asked
// about: ids of all lengths, and marks and positions of all ages.
func TestSharesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SampledFrom([]int{1, 3, 64, 1000, pipeline.ShardsMax}).Draw(t, "shards")
		asks := drawCountAsks(t)
		if rapid.IntRange(0, 9).Draw(t, "a giant") == 0 { // several shares of a shard, several records
			giant, step := query.CountAsk{Mark: position(t, "mark")}, rapid.Uint64Range(1, 1<<50).Draw(t, "step")
			for i := range uint64(9000) {
				giant.Followees = append(giant.Followees, query.Followee{User: 1 + i*step, Since: pipeline.Position(i%5) * giant.Mark})
			}
			asks = append(asks, giant)
		}
		bits := rapid.Uint64().Draw(t, "wanted")
		want := func(s pipeline.Shard) bool { return bits>>(s%64)&1 == 1 }
		rests, wanted := make([]wire.Rest, len(asks)), make([]wire.Rest, len(asks))
		var sharing wire.Sharing // memory of one after the other
		for i := range asks {
			rests[i] = sharing.Rest(&asks[i], shards)
			wanted[i] = wire.Rest{Mark: rests[i].Mark, Base: rests[i].Base}
			for _, s := range rests[i].Shares {
				if want(s.Shard) {
					wanted[i].Shares = append(wanted[i].Shares, s)
				}
			}
		}
		var got wire.CountAsks
		for range 2 { // its memory is reused
			if err := got.Decode(sharesAsk(wanted), wire.Version); err != nil || len(got.Asks) != len(asks) {
				t.Fatalf("%d of %d asks: %v", len(got.Asks), len(asks), err)
			}
		}
		for i := range asks {
			unshared(t, &rests[i], &asks[i], shards)
			if some := sharesOf(asks[i].Followees, shards, want); got.Asks[i].Mark != asks[i].Mark || !slices.Equal(got.Asks[i].Followees, some) {
				t.Fatalf("%.1000v\nnot %.1000v", got.Asks[i], some)
			}
		}
	})
}
