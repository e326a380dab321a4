package sinks

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// membersDigested is how many members of a set are in a digest: the first ones.
const membersDigested = 1000

// DigestAsk asks for digests of some ids of a shard.
type DigestAsk struct {
	Shard    pipeline.Shard
	IDs      []uint64          // ascending, each once
	Horizon  pipeline.Position // posts before it are left out
	Channels []string          // whose cursors are in the digests
}

// Digests has a digest of all that is served of each id. From and To are the positions
// of the first and the last reading: an id that no event changed between them has the
// digest of both positions.
type Digests struct {
	Sums     []uint64
	From, To pipeline.Position
}

// ListedFrom is the first position whose posts are listed, at a position: older ones are too old.
func (n *Node) ListedFrom(at pipeline.Position) pipeline.Position {
	return n.clock.Horizon(at, n.o.Users.Retention)
}

// Sample draws up to most ids of a shard (tier.Shard.Sample).
func (n *Node) Sample(number pipeline.Shard, most int) ([]uint64, error) {
	answers := n.held.Load().answers
	if int(number) >= len(answers) || answers[number] == nil {
		return nil, query.ErrElsewhere
	}
	return answers[number].Sample(most, n.o.Shards)
}

// Digests computes a digest for each id: of what is served, however it is cut into runs
// and whatever of it is in memory. What no answer shows does not count: hidden columns,
// posts before the horizon, follows and cursors that a later mark covers. It reads the
// disk where it must and holds up no owner. No ids: it only says where the shard stands.
func (n *Node) Digests(ctx context.Context, ask *DigestAsk) (*Digests, error) {
	d := &digesting{node: n, ask: ask, out: &Digests{Sums: make([]uint64, len(ask.IDs)), From: pipeline.PositionMax}}
	for _, id := range ask.IDs {
		if pipeline.ShardOf(id, n.o.Shards) != ask.Shard {
			return nil, fmt.Errorf("sinks: digest: id %d is not of shard %d", id, ask.Shard)
		}
	}
	if !slices.IsSorted(ask.IDs) {
		return nil, fmt.Errorf("sinks: digest: the ids of shard %d do not ascend", ask.Shard)
	}
	for counter := range n.schema.Counters {
		if err := d.read(ctx, &pipeline.FactsAsk{Part: pipeline.PartRows, Counter: counter, IDs: ask.IDs}); err != nil {
			return nil, err
		}
	}
	for group := range slices.Chunk(ask.IDs, shard.GroupMax) {
		if err := d.read(ctx, &pipeline.FactsAsk{Part: pipeline.PartPosts, IDs: group}); err != nil {
			return nil, err
		}
	}
	for i := range ask.IDs {
		user := ask.IDs[i : i+1]
		err := d.read(ctx, &pipeline.FactsAsk{Part: pipeline.PartUser, IDs: user, Channels: ask.Channels})
		for _, column := range append([]pipeline.Column{pipeline.NoColumn}, n.schema.Sets()...) {
			if err == nil {
				err = d.read(ctx, &pipeline.FactsAsk{Part: pipeline.PartMembers, Column: column, IDs: user, Limit: membersDigested})
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return d.out, nil
}

// digesting adds facts to the sums of their ids.
type digesting struct {
	node  *Node
	ask   *DigestAsk
	out   *Digests
	marks [pipeline.MarksCount]int64 // of the user that is read
}

func (d *digesting) read(ctx context.Context, ask *pipeline.FactsAsk) error {
	ask.Shard = d.ask.Shard
	clear(d.marks[:])
	at, _, err := d.node.Facts(ctx, ask, d.add)
	d.out.From, d.out.To = min(d.out.From, at), max(d.out.To, at)
	return err
}

// add adds a fact, in any order: sums of hashes do not depend on it. Marks come before
// what they cover.
func (d *digesting) add(f pipeline.Fact) {
	matter := uint64(f.Other)
	switch f.Kind {
	case pipeline.FactCell:
		column := &d.node.schema.Columns[f.Column]
		if column.Hidden {
			return
		}
		matter = nameHash(d.node.schema.Counters[column.Counter].Name + "." + column.Name)
	case pipeline.FactMark:
		d.marks[f.Other] = f.Value
	case pipeline.FactFollows:
		if f.Value <= max(d.marks[pipeline.MarkFeed], d.marks[pipeline.MarkAll]) {
			f.Value = 0
		}
	case pipeline.FactCursor:
		if f.Value <= max(d.marks[pipeline.MarkAll], d.marks[pipeline.MarkFirst]) {
			return
		}
		matter = nameHash(f.Name)
	case pipeline.FactMember:
		matter = pipeline.Mix(f.Member.A) ^ f.Member.B
		if f.Column != pipeline.NoColumn {
			matter ^= nameHash(d.node.schema.FullName(f.Column))
		}
	case pipeline.FactPost:
		if pipeline.Position(f.Value) < d.ask.Horizon {
			return
		}
	}
	i, asked := slices.BinarySearch(d.ask.IDs, f.ID)
	if asked {
		d.out.Sums[i] += pipeline.Mix(pipeline.Mix(pipeline.Mix(uint64(f.Kind)+1)^matter) ^ uint64(f.Value))
	}
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}
