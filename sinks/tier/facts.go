package tier

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/run"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// FactKind is a kind of what is known of an id.
type FactKind uint8

// The kinds, and what a Fact of each says.
const (
	FactCell    FactKind = iota // Column of ID's row is Value
	FactMark                    // user ID's mark number Other is position Value
	FactCursor                  // user ID's cursor in channel Name is position Value
	FactFollows                 // user ID follows Other, since position Value; 0: the feed was read since
	FactMember                  // Column's set of row ID has Member; Value is 1, or of a set that forgets, the log second in which it was put in. NoColumn: user ID is followed by Member. Of a list, Member is run.Newest of an item's position, and Value says all else of the item
	FactPost                    // author ID's post Other is listed, at position Value
	FactNotice                  // channel Name has notice Other, at position Value
)

// The marks of a user, by their number in a FactMark.
const (
	MarkFeed  = iota // the feed is read up to here
	MarkAll          // everything is
	MarkFirst        // the mark of the first read of anything
	MarkLast         // the newest read itself
	MarksCount
)

// Fact is one thing that is known of an id; its kind says which fields count.
// What is 0 of a cell, a mark or a cursor is no fact.
type Fact struct {
	Kind   FactKind
	Column pipeline.Column
	ID     uint64
	Other  uint64
	Member pipeline.Member
	Name   string
	Value  int64
}

// FactPart is a part of what is known of ids: what is read together, as of one
// position.
type FactPart uint8

// The parts.
const (
	PartRows    FactPart = iota // IDs' rows of a counter
	PartUser                    // one user's marks, followees, and cursors in Channels
	PartMembers                 // the sets of a column of some ids, a page of them
	PartPosts                   // the newest posts of authors
	PartNotices                 // one channel's notices
)

// FactsAsk asks for facts. Which fields count depends on Part.
type FactsAsk struct {
	Part     FactPart
	Shard    pipeline.Shard  // all IDs are its
	Counter  int             // of PartRows
	Column   pipeline.Column // of PartMembers; NoColumn: followers
	IDs      []uint64        // one, of PartUser; they ascend, of PartMembers
	Channels []string        // of PartUser; one, of PartNotices
	After    pipeline.Member // of PartMembers: of the first id those above this one,
	Limit    int             // and so many of each at most, and of all about
}

// markNames are those of a user's marks.
var markNames = [MarksCount]string{MarkFeed: "feed", MarkAll: "all", MarkFirst: "first", MarkLast: "last"}

// Names are what a fact is about, in words: the counter, or what else it is; of the counter
// its column, of a list the other id, of a mark or cursor its name; and the id.
func (f *Fact) Names(schema *pipeline.Schema) (counter, column string, id uint64) {
	other := strconv.FormatUint(f.Other, 10)
	switch f.Kind {
	case FactCell:
		spec := &schema.Columns[f.Column]
		return schema.Counters[spec.Counter].Name, spec.Name, f.ID
	case FactMark:
		return "mark", markNames[f.Other], f.ID
	case FactCursor:
		return "cursor", f.Name, f.ID
	case FactFollows:
		return "following", other, f.ID
	case FactPost:
		return "listed post", other, f.ID
	case FactNotice:
		return "notice", f.Name, f.Other
	}
	counter, column = "follower", strconv.FormatUint(f.Member.A, 10)
	if f.Column != pipeline.NoColumn {
		counter = "member of " + schema.FullName(f.Column)
		if schema.Columns[f.Column].Set.Items > 0 {
			return "item of " + schema.FullName(f.Column), strconv.FormatUint(run.Newest(f.Member.A), 10), f.ID
		}
	}
	if f.Member.B != 0 {
		column += "," + strconv.FormatUint(f.Member.B, 10)
	}
	return counter, column, f.ID
}

// Facts gives what is known of ids, memory over disk as any reader sees it, exactly as of
// the position `at` at which the shard stood. More says that there are members beyond the
// page. What is read from the disk is not put into memory.
//
// Ages are not looked at: posts that are too old are among the facts as long as they are
// stored.
func (t *Shard) Facts(ctx context.Context, ask *FactsAsk, yield func(Fact)) (at pipeline.Position, more bool, err error) {
	var state shard.State
	d := Disk{May: true, Passing: true, Context: ctx}
	switch ask.Part {
	case PartRows:
		state, err = t.rowFacts(ask, &d, yield)
	case PartUser:
		state, err = t.userFacts(ask, &d, yield)
	case PartMembers:
		if ask.Column != pipeline.NoColumn && t.schema.Columns[ask.Column].Set.Items > 0 {
			more, state, err = t.itemFacts(ask, &d, yield)
			break
		}
		forgets := ask.Column != pipeline.NoColumn && t.schema.Columns[ask.Column].Set.Keep > 0
		more, state, err = t.MembersOf(ask.Column, ask.IDs, ask.After, ask.Limit, &d, func(id uint64, m pipeline.Member, second int64) {
			f := Fact{Kind: FactMember, Column: ask.Column, ID: id, Member: m, Value: 1}
			if forgets {
				f.Value = second
			}
			yield(f)
		})
	case PartPosts:
		state, err = t.postFacts(ask, &d, yield)
	default:
		err = fmt.Errorf("tier: a shard has no part %d of facts", ask.Part)
	}
	return state.Applied, more, err
}

func (t *Shard) rowFacts(ask *FactsAsk, d *Disk, yield func(Fact)) (shard.State, error) {
	first := t.schema.Counters[ask.Counter].First
	var b Batch
	return t.Read(ask.Counter, ask.IDs, &b, d, func(i int, cells []int64) {
		for j, v := range cells {
			if v != 0 {
				yield(Fact{Kind: FactCell, Column: first + pipeline.Column(j), ID: ask.IDs[i], Value: v})
			}
		}
	})
}

func (t *Shard) userFacts(ask *FactsAsk, d *Disk, yield func(Fact)) (shard.State, error) {
	user := ask.IDs[0]
	var p shard.Profile
	state, err := t.Profile(user, -1, ask.Channels, &p, d)
	if err != nil {
		return state, err
	}
	marks := [MarksCount]pipeline.Position{
		MarkFeed: p.Marks.Feed, MarkAll: p.Marks.All, MarkFirst: p.Marks.First, MarkLast: p.Marks.Last,
	}
	for which, at := range marks {
		if at != 0 {
			yield(Fact{Kind: FactMark, ID: user, Other: uint64(which), Value: int64(at)})
		}
	}
	for _, f := range p.Following {
		yield(Fact{Kind: FactFollows, ID: user, Other: f.A, Value: int64(f.B)})
	}
	for i, name := range ask.Channels {
		if at := p.Cursors[i]; at != 0 {
			yield(Fact{Kind: FactCursor, ID: user, Name: name, Value: int64(at)})
		}
	}
	return state, nil
}

func (t *Shard) postFacts(ask *FactsAsk, d *Disk, yield func(Fact)) (shard.State, error) {
	authors := make([]hot.Pair, len(ask.IDs))
	for i, id := range ask.IDs {
		authors[i].A = id
	}
	if len(authors) > shard.GroupMax {
		return shard.State{}, fmt.Errorf("tier: posts of %d authors are asked, and %d at most are read as of one position", len(authors), shard.GroupMax)
	}
	var g shard.Gathering
	return t.Posts(authors, 0, math.MaxUint64, &g, d, func(author uint64, p hot.Pair) bool {
		yield(Fact{Kind: FactPost, ID: author, Other: p.B, Value: int64(p.A)})
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
func (c *Commons) Facts(ask *FactsAsk, yield func(Fact)) (at pipeline.Position, err error) {
	list, state, err := c.List(ask.Channels[0])
	for _, p := range list {
		yield(Fact{Kind: FactNotice, Name: ask.Channels[0], Other: p.B, Value: int64(p.A)})
	}
	return state.Applied, err
}

// ChannelNames are the channels that are open.
func (c *Commons) ChannelNames() []string {
	notices, dots, _ := c.Names()
	return slices.Concat(notices, dots)
}
