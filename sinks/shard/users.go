package shard

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// What a shard holds of a user: marks in four words, and behind them
//
//	cursors │ (length, channel │ position) … │ followees, see hot.AppendFollowees
//
// with all numbers LEB128. Channels stand there by name, and not by a number
// of the shard's: what is kept of a user is then a function of the log alone,
// and does not depend on whose channels this node happens to have met.
//
// A followee's position is 0 when the feed has been read since the follow.

// The words of a user's marks, positions all of them. 0: never.
const (
	markFeed  = iota // the feed is read up to here
	markAll          // everything is
	markFirst        // the mark of the user's first read of anything
	markLast         // the newest read itself, for inactive_after
	marksCount
)

// In markLast: these marks are not on disk yet. Positions stay far below.
const dirtyBit = 1 << 63

// errNotLoaded: the owner applies a window only when all it wants is loaded.
var errNotLoaded = fmt.Errorf("a change of what is not in memory: this is a bug in Tidemark, please report it")

// Marks are what a user has read.
type Marks struct {
	Feed, All, First, Last pipeline.Position
}

func (s *Shard) marksLocked(user uint64) (m Marks, known bool) {
	words, known := s.markWords(user)
	return Marks{
		Feed: pipeline.Position(words[markFeed]), All: pipeline.Position(words[markAll]),
		First: pipeline.Position(words[markFirst]), Last: pipeline.Position(words[markLast] &^ dirtyBit),
	}, known
}

func (s *Shard) markWords(user uint64) (words [marksCount]uint64, known bool) {
	for i := range words {
		if words[i], known = s.users.Word(user, i); !known {
			return words, s.residency.absent(user)
		}
	}
	return words, true
}

// marksDirty says whether a user's marks are not on disk yet.
func (s *Shard) marksDirty(user uint64) bool {
	last, _ := s.users.Word(user, markLast)
	return last&dirtyBit != 0
}

// markDirty marks them so, once more.
func (s *Shard) markDirty(user uint64) {
	if last, ok := s.users.Word(user, markLast); ok {
		s.users.SetWord(user, markLast, last|dirtyBit)
	}
}

// handOverMarks is a user's marks, clean from now on.
func (s *Shard) handOverMarks(user uint64) (words [marksCount]uint64) {
	words, _ = s.markWords(user)
	words[markLast] &^= dirtyBit
	s.users.SetWord(user, markLast, words[markLast])
	return words
}

// putUserLocked puts a user in memory as they were read from the disk.
func (s *Shard) putUserLocked(u *loadedUser) {
	read := max(u.marks[markFeed], u.marks[markAll])
	for i := range u.follows {
		if u.follows[i].B <= read {
			u.follows[i].B = 0
		}
	}
	b := binary.AppendUvarint(s.coded[:0], uint64(len(u.cursors)))
	for _, c := range u.cursors {
		b = appendCursor(b, c.channel, c.position)
	}
	b = hot.AppendFollowees(b, u.follows)
	s.coded = b
	s.users.Put(u.id, b)
	for i, mark := range u.marks {
		s.users.SetWord(u.id, i, mark)
	}
}

// userLocked makes sure that a user is in memory; false when they may be on disk.
func (s *Shard) userLocked(user uint64) bool {
	if s.users.Has(user) {
		return true
	}
	if !s.residency.absent(user) {
		return false
	}
	s.users.Put(user, []byte{0})
	return true
}

func appendCursor(b []byte, channel string, position pipeline.Position) []byte {
	b = binary.AppendUvarint(b, uint64(len(channel)))
	b = append(b, channel...)
	return binary.AppendUvarint(b, uint64(position))
}

// nextCursor is the cursor that b begins with, and where it ends.
func nextCursor(b []byte) (channel []byte, position pipeline.Position, end int) {
	n, m := binary.Uvarint(b)
	end = m + int(n)
	p, k := binary.Uvarint(b[end:])
	return b[m:end], pipeline.Position(p), end + k
}

// cursorsEnd is where the followees begin.
func cursorsEnd(b []byte) int {
	n, at := binary.Uvarint(b)
	for range n {
		_, _, end := nextCursor(b[at:])
		at += end
	}
	return at
}

// cursorOf is a user's cursor in a channel: where it stands in the user's
// bytes, and where it ends.
func cursorOf(b []byte, channel string) (position pipeline.Position, from, to int) {
	n, at := binary.Uvarint(b)
	for range n {
		name, p, end := nextCursor(b[at:])
		from, at = at, at+end
		if string(name) == channel {
			return p, from, at
		}
	}
	return 0, at, at
}

// cursorsMax bounds the channels that one user has cursors in: far more than
// there may be channels (ChannelsMax), so only names that nobody publishes to
// are passed over.
const cursorsMax = 16 * ChannelsMax

// setCursorLocked writes a cursor into a user's bytes, and says whether it is
// later than the one there was.
func (s *Shard) setCursorLocked(user uint64, channel string, position pipeline.Position) bool {
	b, _ := s.users.Get(user)
	was, from, to := cursorOf(b, channel)
	count, m := binary.Uvarint(b)
	if position <= was || from == to && count >= cursorsMax {
		return false
	}
	if from == to {
		count++
	}
	out := binary.AppendUvarint(s.coded[:0], count)
	out = append(out, b[m:from]...)
	out = appendCursor(out, channel, position)
	out = append(out, b[to:]...)
	s.coded = out
	s.users.Put(user, out)
	return true
}

// readLocked moves a user's marks. They never go back: a read that comes late
// or twice does no harm.
func (s *Shard) readLocked(o *pipeline.Operation) error {
	mark, user := uint64(o.Mark), o.ID
	if !s.userLocked(user) {
		return errNotLoaded
	}
	words, _ := s.markWords(user)
	if words[markLast]&dirtyBit == 0 {
		s.changed = append(s.changed, change{kind: kindMarks, a: user})
	}
	words[markLast] &^= dirtyBit
	if o.Looked&pipeline.LookedFeed != 0 {
		words[markFeed] = max(words[markFeed], mark)
	}
	if o.Looked&pipeline.LookedAll != 0 {
		words[markAll] = max(words[markAll], mark)
	}
	if words[markFirst] == 0 {
		words[markFirst] = max(mark, 1) // 1 is before every event, and not never
	}
	words[markLast] = max(words[markLast], uint64(o.Position)) | dirtyBit
	for i, word := range words {
		s.users.SetWord(user, i, word)
	}
	for _, name := range o.Channels {
		if mark <= max(words[markAll], words[markFirst]) {
			continue // these say as much, and more
		}
		if s.setCursorLocked(user, name, o.Mark) {
			s.changed = append(s.changed, change{kind: kindCursor, a: user, b: uint64(len(s.names)), v: uint64(o.Mark)})
			s.names = append(s.names, name)
		}
	}
	return nil
}

// followeesOf are a user's followees as they are coded.
func followeesOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[cursorsEnd(b):]
}

// findFollowee looks for a followee in a coded list. at is where its entry
// begins, or would; before is the followee in front of it.
func findFollowee(b []byte, followee uint64) (at int, before uint64, ok bool) {
	for at < len(b) {
		distance, n := binary.Uvarint(b[at:])
		if before+distance >= followee {
			return at, before, before+distance == followee
		}
		before += distance
		_, m := binary.Uvarint(b[at+n:])
		at += n + m
	}
	return at, before, false
}

// setFolloweeLocked adds a followee to the list of a user in memory, or takes
// one away. It is not, or is, in the list. Only the entry and the distance of
// the next one are written anew.
func (s *Shard) setFolloweeLocked(user, followee, since uint64, follows bool) {
	b, _ := s.users.Get(user)
	list := followeesOf(b)
	at, before, _ := findFollowee(list, followee)
	out, rest := append(s.coded[:0], b[:len(b)-len(list)+at]...), list[at:]
	if follows {
		out = binary.AppendUvarint(out, followee-before)
		out = binary.AppendUvarint(out, since)
	} else {
		_, n := binary.Uvarint(rest)
		_, m := binary.Uvarint(rest[n:])
		rest = rest[n+m:]
	}
	if len(rest) > 0 {
		distance, n := binary.Uvarint(rest)
		if follows {
			distance -= followee - before
		} else {
			distance += followee - before
		}
		out = append(binary.AppendUvarint(out, distance), rest[n:]...)
	}
	s.coded = out
	s.users.Put(user, out)
}

// followsLocked says whether a user follows another, if memory knows.
func (s *Shard) followsLocked(user, followee uint64) (follows, known bool) {
	if b, ok := s.users.Get(user); ok {
		_, _, follows = findFollowee(followeesOf(b), followee)
		return follows, true
	}
	if s.residency.absent(user) {
		return false, true
	}
	return s.following.Get(user, followee)
}

// followedByLocked says whether a user is followed by another, if memory knows.
func (s *Shard) followedByLocked(user, follower uint64) (followed, known bool) {
	followed, known = s.followers.Get(user, follower)
	if !known && s.residency.edges {
		return false, true
	}
	return followed, known
}

// decodeFollowees appends a user's followees.
func (s *Shard) decodeFolloweesLocked(user uint64, dst []hot.Pair) (list []hot.Pair, known bool) {
	b, ok := s.users.Get(user)
	if !ok {
		return dst, s.residency.absent(user)
	}
	return hot.DecodeFollowees(slices.Grow(dst, len(followeesOf(b))/4), followeesOf(b)), true
}
