package sinks

import (
	"context"
	"iter"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
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
func (n *Node) Facts(ctx context.Context, ask *tier.FactsAsk, yield func(tier.Fact)) (at pipeline.Position, more bool, err error) {
	if ask.Part == tier.PartNotices {
		at, err = n.commons.Facts(ask, yield)
		return at, false, err
	}
	s, err := n.answering(ask.Shard)
	if err != nil {
		return 0, false, err
	}
	return s.Facts(ctx, ask, yield)
}

// answering is a shard that answers here.
func (n *Node) answering(number pipeline.Shard) (*tier.Shard, error) {
	answers := n.held.Load().answers
	if int(number) >= len(answers) || answers[number] == nil {
		return nil, query.ErrElsewhere
	}
	return answers[number], nil
}

// Stored are the ids that a shard has something of on disk (tier.Shard.Stored).
func (n *Node) Stored(number pipeline.Shard) iter.Seq2[tier.Stored, error] {
	s, err := n.answering(number)
	if err != nil {
		return func(yield func(tier.Stored, error) bool) { yield(tier.Stored{}, err) }
	}
	return s.Stored()
}

// ChannelNames are the channels that are open here.
func (n *Node) ChannelNames() []string { return n.commons.ChannelNames() }
