package tier

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Facts gives what is known of ids, memory over disk as any reader sees it, exactly as of
// the position `at` at which the shard stood. More says that there are members beyond the
// page. What is read from the disk is not put into memory.
//
// Ages are not looked at: posts that are too old are among the facts as long as they are
// stored.
func (t *Shard) Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (at pipeline.Position, more bool, err error) {
	var state shard.State
	d := Disk{May: true, Passing: true, Context: ctx}
	switch ask.Part {
	case pipeline.PartRows:
		state, err = t.rowFacts(ask, &d, yield)
	case pipeline.PartUser:
		state, err = t.userFacts(ask, &d, yield)
	case pipeline.PartMembers:
		forgets := ask.Column != pipeline.NoColumn && t.schema.Columns[ask.Column].Set.Keep > 0
		more, state, err = t.MembersOf(ask.Column, ask.IDs, ask.After, ask.Limit, &d, func(id uint64, m pipeline.Member, second int64) {
			f := pipeline.Fact{Kind: pipeline.FactMember, Column: ask.Column, ID: id, Member: m, Value: 1}
			if forgets {
				f.Value = second
			}
			yield(f)
		})
	case pipeline.PartPosts:
		state, err = t.postFacts(ask, &d, yield)
	default:
		err = fmt.Errorf("tier: a shard has no part %d of facts", ask.Part)
	}
	return state.Applied, more, err
}

func (t *Shard) rowFacts(ask *pipeline.FactsAsk, d *Disk, yield func(pipeline.Fact)) (shard.State, error) {
	first := t.schema.Counters[ask.Counter].First
	var b Batch
	return t.Read(ask.Counter, ask.IDs, &b, d, func(i int, cells []int64) {
		for j, v := range cells {
			if v != 0 {
				yield(pipeline.Fact{Kind: pipeline.FactCell, Column: first + pipeline.Column(j), ID: ask.IDs[i], Value: v})
			}
		}
	})
}

func (t *Shard) userFacts(ask *pipeline.FactsAsk, d *Disk, yield func(pipeline.Fact)) (shard.State, error) {
	user := ask.IDs[0]
	var p shard.Profile
	state, err := t.Profile(user, -1, ask.Channels, &p, d)
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

func (t *Shard) postFacts(ask *pipeline.FactsAsk, d *Disk, yield func(pipeline.Fact)) (shard.State, error) {
	authors := make([]hot.Pair, len(ask.IDs))
	for i, id := range ask.IDs {
		authors[i].A = id
	}
	if len(authors) > shard.GroupMax {
		return shard.State{}, fmt.Errorf("tier: posts of %d authors are asked, and %d at most are read as of one position", len(authors), shard.GroupMax)
	}
	var g shard.Gathering
	return t.Posts(authors, 0, math.MaxUint64, &g, d, func(author uint64, p hot.Pair) bool {
		yield(pipeline.Fact{Kind: pipeline.FactPost, ID: author, Other: p.B, Value: int64(p.A)})
		return true
	})
}

// CursorNames are the channels in which a user has cursors on disk.
func (t *Shard) CursorNames(user uint64) (names []string, err error) {
	view := t.stack.View()
	defer view.Close()
	err = view.Cursors(user, func(name string, _ pipeline.Position) { names = append(names, name) })
	return names, err
}

// Facts gives the notices of the channel that is asked for.
func (c *Commons) Facts(ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (at pipeline.Position, err error) {
	list, state, err := c.List(ask.Channels[0])
	for _, p := range list {
		yield(pipeline.Fact{Kind: pipeline.FactNotice, Name: ask.Channels[0], Other: p.B, Value: int64(p.A)})
	}
	return state.Applied, err
}

// ChannelNames are the channels that are open.
func (c *Commons) ChannelNames() []string {
	notices, dots, _ := c.Names()
	return slices.Concat(notices, dots)
}
