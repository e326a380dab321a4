package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// Kind is a method of [query.Holder].
type Kind byte

const (
	Rows Kind = 1 + iota
	Profiles
	CountPosts // of followees as a holder sent them: see shares.go
	Followees
	Posts
	Following
	Followers
	Applied // asks nothing but Min
	Standpoint
	RowsHas // Rows, with members to look for
	Members // see sets.go
	Inbox   // see inbox.go
	// Kinds is past the last: what this version knows is below.
	Kinds
)

var kindNames = [...]string{"", "rows", "profiles", "count_posts", "followees", "posts", "following", "followers", "applied", "standpoint", "rows_has", "members", "inbox"}

// String is the kind's name in logs and metrics.
func (k Kind) String() string {
	if k > 0 && k < Kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// What one part may ask: more is asked in several.
const (
	IDsMax       = 1 << 14 // ids of Rows, users of Profiles, asks of CountPosts
	FolloweesMax = 1 << 16 // of CountPosts, all asks together; of Posts
	LimitMax     = 1 << 14 // of a page
	CellsMax     = 1 << 20 // ids × columns of Rows, and ids × members
	channelsMax  = 1 << 10
	// channelsKnown is how many channels of a kind an answer may name: as many as
	// there may be.
	channelsKnown = 1 << 16
	columnsMax    = 1 << 11
	nameMax       = 1 << 10
)

// Names are a counter's and those of some of its columns, as they go over the
// wire: nodes may number them differently.
type Names struct {
	Counter string
	Columns []string
}

// AppendNames appends names.
func AppendNames(b []byte, n Names) []byte {
	b = packed.AppendText(b, n.Counter)
	b = binary.AppendUvarint(b, uint64(len(n.Columns)))
	for _, name := range n.Columns {
		b = packed.AppendText(b, name)
	}
	return b
}

// ParseNames reads names.
func ParseNames(b []byte) (Names, error) {
	c := over(b)
	n := Names{Counter: c.name()}
	for range c.Count("columns", columnsMax) {
		n.Columns = append(n.Columns, c.name())
		if c.Err != nil {
			break
		}
	}
	return n, c.end(Version, "names")
}

func (c *cursor) name() string {
	name := c.Sized()
	if len(name) > nameMax {
		c.Fail("a name of %d bytes", len(name))
	}
	return string(name)
}

// RowsAsk is the question of [query.Holder.Rows].
type RowsAsk struct {
	Names []byte // a counter's, see AppendNames
	IDs   []uint64
	Sets  []pipeline.MemberOf // Column is a place among Names
}

// SetAskMax is the most bytes that one of Sets takes.
const SetAskMax = 3 * varint

// Kind is Rows, or RowsHas with members to look for.
func (a *RowsAsk) Kind() Kind {
	if len(a.Sets) > 0 {
		return RowsHas
	}
	return Rows
}

// Append appends the question.
func (a *RowsAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Names)))
	b = append(b, a.Names...)
	b = packed.AppendIDs(b, a.IDs)
	if a.Kind() == RowsHas {
		b = appendSets(b, a.Sets)
	}
	return b
}

func appendSets(b []byte, sets []pipeline.MemberOf) []byte {
	b = binary.AppendUvarint(b, uint64(len(sets)))
	for _, of := range sets {
		b = appendMember(binary.AppendUvarint(b, uint64(of.Column)), of.Member)
	}
	return b
}

// Decode reads one of a kind from the body of a part; Names shares its memory.
func (a *RowsAsk) Decode(kind Kind, body []byte, version byte) error {
	c := over(body)
	a.Names = c.Sized()
	a.IDs = c.IDs(a.IDs[:0], "ids", IDsMax)
	if a.Sets = a.Sets[:0]; kind == RowsHas {
		a.Sets = c.sets(a.Sets)
	}
	return c.end(version, kind.String())
}

// sets reads members to look for: one at least.
func (c *cursor) sets(to []pipeline.MemberOf) []pipeline.MemberOf {
	for range c.Count("members", columnsMax) {
		if to = append(to, c.memberOf()); c.Err != nil {
			return to
		}
	}
	if len(to) == 0 {
		c.Fail("no member")
	}
	return to
}

func (c *cursor) memberOf() pipeline.MemberOf {
	of := pipeline.MemberOf{Column: pipeline.Column(c.Within("column", columnsMax)), Member: c.member()}
	if of.Member.A == 0 {
		c.Fail("no member")
	}
	return of
}

// ProfilesAsk is the question of [query.Holder.Profiles].
type ProfilesAsk struct {
	Names    []byte // of the 1:1 counters that are wanted
	Channels []string
	All      bool // all channels that there are; Channels is empty
	Users    []uint64
}

// Append appends the question.
func (a *ProfilesAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Names)))
	b = append(b, a.Names...)
	b = packed.AppendBool(b, a.All)
	b = binary.AppendUvarint(b, uint64(len(a.Channels)))
	for _, name := range a.Channels {
		b = packed.AppendText(b, name)
	}
	return packed.AppendIDs(b, a.Users)
}

// Decode reads it from the body of a part; Names shares its memory.
func (a *ProfilesAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.Names = c.Sized()
	a.All = c.Bool()
	a.Channels = a.Channels[:0]
	for range c.Count("channels", channelsMax) {
		if a.Channels = append(a.Channels, c.name()); c.Err != nil {
			break
		}
	}
	a.Users = c.IDs(a.Users[:0], "users", IDsMax)
	if a.All && len(a.Channels) > 0 {
		c.Fail("all channels, and %d besides", len(a.Channels))
	}
	return c.end(version, Profiles.String())
}

// countAskMax is the most bytes that an ask of so many followees takes.
func countAskMax(followees int) int {
	return 4*binary.MaxVarintLen64 + 1 + followees*(8+binary.MaxVarintLen64)
}

func appendCountAsk(b []byte, a *query.CountAsk) []byte {
	b = binary.AppendUvarint(b, uint64(a.Mark))
	ids := make([]uint64, 0, len(a.Followees))
	for _, f := range a.Followees {
		ids = append(ids, f.User)
	}
	b = packed.AppendIDs(b, ids)
	for _, f := range a.Followees {
		b = binary.AppendUvarint(b, uint64(f.Since))
	}
	return b
}

// countAsk reads one ask; ids is memory to work in.
func (c *cursor) countAsk(ids []uint64, most int) (query.CountAsk, []uint64) {
	a := query.CountAsk{Mark: pipeline.Position(c.Uvarint())}
	ids = c.IDs(ids[:0], "followees", most)
	if c.Err != nil || len(ids) == 0 {
		return a, ids
	}
	a.Followees = make([]query.Followee, len(ids))
	for i, id := range ids {
		a.Followees[i] = query.Followee{User: id, Since: pipeline.Position(c.Uvarint())}
	}
	return a, ids
}

// PageAsk is the question of [query.Holder.Followees], Following and Followers.
type PageAsk struct {
	User, After uint64
	Limit       int
}

// Append appends the question.
func (a *PageAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, a.User)
	b = binary.AppendUvarint(b, a.After)
	return binary.AppendUvarint(b, uint64(a.Limit))
}

// Decode reads it from the body of a part.
func (a *PageAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.User, a.After, a.Limit = c.Uvarint(), c.Uvarint(), c.Count("limit", LimitMax)
	if c.Err == nil && (a.User == 0 || a.Limit == 0) {
		c.Fail("user %d, limit %d", a.User, a.Limit)
	}
	return c.end(version, "page")
}

// PostsAsk is the question of [query.Holder.Posts].
type PostsAsk struct {
	From, Before pipeline.Position
	Limit        int
	Followees    []uint64
}

// Append appends the question.
func (a *PostsAsk) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(a.From))
	b = binary.AppendUvarint(b, uint64(a.Before))
	b = binary.AppendUvarint(b, uint64(a.Limit))
	return packed.AppendIDs(b, a.Followees)
}

// Decode reads it from the body of a part.
func (a *PostsAsk) Decode(body []byte, version byte) error {
	c := over(body)
	a.From, a.Before = pipeline.Position(c.Uvarint()), pipeline.Position(c.Uvarint())
	a.Limit = c.Count("limit", LimitMax)
	a.Followees = c.IDs(a.Followees[:0], "followees", FolloweesMax)
	if c.Err == nil && a.Limit == 0 {
		c.Fail("limit 0")
	}
	return c.end(version, Posts.String())
}
