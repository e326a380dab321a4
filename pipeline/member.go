package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
)

// Member is a member of a set: an id (B is 0), a pair of ids, or a token (TokenMember).
// A is never 0. Members are in order by A, then B.
type Member struct{ A, B uint64 }

// Compare is -1, 0 or 1 as m comes before, is, or comes after n.
func (m Member) Compare(n Member) int {
	return cmp.Or(cmp.Compare(m.A, n.A), cmp.Compare(m.B, n.B))
}

// MemberOf is a member that is looked for in the sets of a column's rows.
type MemberOf struct {
	Column Column
	Member Member
}

// TokenBytesMax is the longest token that an event may have.
const TokenBytesMax = 128

// TokenMember is the member that a token is. A token that spells an id, as ids are
// written in answers, is that id: so it is the same as a number and as a string, and a
// list of members can show it. Of any other the first 16 bytes of its SHA-256 are kept;
// neither A nor B is 0 then, so no token is taken for an id.
func TokenMember(token []byte) Member {
	if id, ok := spelledID(token); ok {
		return Member{A: id}
	}
	sum := sha256.Sum256(token)
	return Member{max(binary.BigEndian.Uint64(sum[:]), 1), max(binary.BigEndian.Uint64(sum[8:]), 1)}
}

// spelledID reads decimal digits without leading zeros.
func spelledID(token []byte) (id uint64, ok bool) {
	if len(token) == 0 || len(token) > len("18446744073709551615") || token[0] < '1' || token[0] > '9' {
		return 0, false
	}
	id, err := strconv.ParseUint(string(token), 10, 64)
	return id, err == nil
}

// Members is the shape of a set's members, one for all of a column.
type Members uint8

// The shapes.
const (
	NoMembers     Members = iota // the column is a number and has no set
	MembersIDs                   // an id
	MembersPairs                 // two ids
	MembersTokens                // a token
)

// shapes are the names of the shapes, as a schema says them.
var shapes = [...]string{"", "ids", "pairs", "tokens"}

// String is the shape's name; "": no set.
func (m Members) String() string { return shapes[m] }

// MembersNamed is the shape with a name; false: none has it.
func MembersNamed(name string) (Members, bool) {
	i := slices.Index(shapes[:], name)
	return Members(max(i, 0)), i >= 0
}

// SetSpec is what a column's set remembers: what rules with `once` have counted in a row.
// A column that keeps items has a list instead.
type SetSpec struct {
	Members Members // of a list: the identities of its items
	Keep    int64   // seconds of log time for which a member is remembered; 0: for ever
	Items   int     // the column keeps so many items of a row at most, the newest; 0: it has a set
	Actor   Word    // which word of a member, or of an item's identity, is the actor,
	Post    Word    // and which one the post
}

// Word is a word of a Member.
type Word uint8

// The words.
const (
	NoWord Word = iota
	WordA
	WordB
)

// Of is the word of a member; 0: NoWord.
func (w Word) Of(m Member) uint64 {
	switch w {
	case WordA:
		return m.A
	case WordB:
		return m.B
	}
	return 0
}

// Wide says that members have two words.
func (s SetSpec) Wide() bool { return s.Members == MembersPairs || s.Members == MembersTokens }

// SetsMax is the most columns with a set or a list that a schema has.
const SetsMax = 200
