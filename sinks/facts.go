package sinks

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Answering are the shards that answer here and have not stopped, by number.
func (n *Node) Answering() (numbers []pipeline.Shard) {
	for _, s := range n.held.Load().answers {
		if s != nil && s.Err() == nil {
			numbers = append(numbers, s.Number)
		}
	}
	return numbers
}

// Facts gives what is served of ids of one shard, memory over disk as any
// reader sees it, exactly as of the position `at` at which the shard stood. More
// says that there are members beyond the page. What is read from the disk is
// not put into memory. It is an error when the shard does not answer here.
//
// Ages are not looked at: posts that are too old are among the facts as long as
// they are stored.
func (n *Node) Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (at pipeline.Position, more bool, err error) {
	if ask.Part == pipeline.PartNotices {
		list, state, err := n.commons.List(ask.Channels[0])
		for _, p := range list {
			yield(pipeline.Fact{Kind: pipeline.FactNotice, Name: ask.Channels[0], Other: p.B, Value: int64(p.A)})
		}
		return state.Applied, false, err
	}
	answers := n.held.Load().answers
	if int(ask.Shard) >= len(answers) || answers[ask.Shard] == nil {
		return 0, false, query.ErrElsewhere
	}
	s, d := answers[ask.Shard], tier.Disk{May: true, Passing: true, Context: ctx}
	var state shard.State
	switch ask.Part {
	case pipeline.PartRows:
		state, err = n.rowFacts(s, ask, &d, yield)
	case pipeline.PartUser:
		state, err = userFacts(s, ask, &d, yield)
	case pipeline.PartMembers:
		forgets := ask.Column != pipeline.NoColumn && n.schema.Columns[ask.Column].Set.Keep > 0
		more, state, err = s.MembersOf(ask.Column, ask.IDs, ask.After, ask.Limit, &d, func(id uint64, m pipeline.Member, second int64) {
			f := pipeline.Fact{Kind: pipeline.FactMember, Column: ask.Column, ID: id, Member: m, Value: 1}
			if forgets {
				f.Value = second
			}
			yield(f)
		})
	case pipeline.PartPosts:
		state, err = postFacts(s, ask, &d, yield)
	default:
		err = fmt.Errorf("sinks: there is no part %d of facts", ask.Part)
	}
	return state.Applied, more, err
}

// Stored are the ids that a shard has something of on disk (tier.Shard.Stored).
func (n *Node) Stored(number pipeline.Shard) iter.Seq2[uint64, error] {
	answers := n.held.Load().answers
	if int(number) >= len(answers) || answers[number] == nil {
		return func(yield func(uint64, error) bool) { yield(0, query.ErrElsewhere) }
	}
	return answers[number].Stored()
}

// ChannelNames are the channels that are open here.
func (n *Node) ChannelNames() []string {
	notices, dots, _ := n.commons.Names()
	return append(append([]string{}, notices...), dots...)
}

func (n *Node) rowFacts(s *tier.Shard, ask *pipeline.FactsAsk, d *tier.Disk, yield func(pipeline.Fact)) (shard.State, error) {
	first := n.schema.Counters[ask.Counter].First
	var b tier.Batch
	return s.Read(ask.Counter, ask.IDs, &b, d, func(i int, cells []int64) {
		for j, v := range cells {
			if v != 0 {
				yield(pipeline.Fact{Kind: pipeline.FactCell, Column: first + pipeline.Column(j), ID: ask.IDs[i], Value: v})
			}
		}
	})
}

func userFacts(s *tier.Shard, ask *pipeline.FactsAsk, d *tier.Disk, yield func(pipeline.Fact)) (shard.State, error) {
	user := ask.IDs[0]
	var p shard.Profile
	state, err := s.Profile(user, -1, ask.Channels, &p, d)
	if err != nil {
		return state, err
	}
	marks := [pipeline.MarksCount]pipeline.Position{
		pipeline.MarkFeed: p.Marks.Feed, pipeline.MarkAll: p.Marks.All, pipeline.MarkFirst: p.Marks.First, pipeline.MarkLast: p.Marks.Last,
	}
	for which, at := range marks {
		if at != 0 {
			yield(pipeline.Fact{Kind: pipeline.FactMark, ID: user, Other: uint64(which), Value: int64(at)})
		}
	}
	for _, f := range p.Following {
		yield(pipeline.Fact{Kind: pipeline.FactFollows, ID: user, Other: f.A, Value: int64(f.B)})
	}
	for i, name := range ask.Channels {
		if at := p.Cursors[i]; at != 0 {
			yield(pipeline.Fact{Kind: pipeline.FactCursor, ID: user, Name: name, Value: int64(at)})
		}
	}
	return state, nil
}

func postFacts(s *tier.Shard, ask *pipeline.FactsAsk, d *tier.Disk, yield func(pipeline.Fact)) (shard.State, error) {
	authors := make([]hot.Pair, len(ask.IDs))
	for i, id := range ask.IDs {
		authors[i].A = id
	}
	if len(authors) > shard.GroupMax {
		return shard.State{}, fmt.Errorf("sinks: posts of %d authors are asked, and %d at most are read as of one position", len(authors), shard.GroupMax)
	}
	var g shard.Gathering
	return s.Posts(authors, 0, math.MaxUint64, &g, d, func(author uint64, p hot.Pair) bool {
		yield(pipeline.Fact{Kind: pipeline.FactPost, ID: author, Other: p.B, Value: int64(p.A)})
		return true
	})
}
