package shard

import (
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// What a shard holds of a user: marks in four words, and two lists:
//
//	cursors    number of the channel's name → position, see names.go
//	followees  followee → position of the follow, 0 when the feed was read since
const (
	listCursors = iota
	listFollowees
)

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

// In markFirst: the followees are not in memory. A read needs the marks alone, and one of a
// user who follows a million must not cost a million.
const thinBit = 1 << 63

// thinLocked says that a user is in memory without the followees, who may be on disk.
func (s *Shard) thinLocked(user uint64) bool {
	first, _ := s.users.Word(user, markFirst)
	return first&thinBit != 0 && !s.residency.users.has(user)
}

// errNotLoaded: the owner applies a window only when all it wants is loaded.
var errNotLoaded = fmt.Errorf("a change of what is not in memory: this is a bug in Tidemark, please report it")

// Marks are what a user has read.
type Marks struct {
	Feed, All, First, Last pipeline.Position
}

func (s *Shard) marksLocked(user uint64) (m Marks, known bool) {
	words, known := s.markWords(user)
	return marksOf(words), known
}

func marksOf(words [marksCount]uint64) Marks {
	return Marks{
		Feed: pipeline.Position(words[markFeed]), All: pipeline.Position(words[markAll]),
		First: pipeline.Position(words[markFirst]), Last: pipeline.Position(words[markLast] &^ dirtyBit),
	}
}

func (s *Shard) markWords(user uint64) (words [marksCount]uint64, known bool) {
	for i := range words {
		if words[i], known = s.users.Word(user, i); !known {
			return words, s.residency.users.has(user)
		}
	}
	words[markFirst] &^= thinBit
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

// putUserLocked puts a user in memory as they were read from the disk, with their
// followees by now. They are not there.
func (s *Shard) putUserLocked(u *User, follows []hot.Pair) {
	s.users.Make(u.ID)
	for i, mark := range u.Marks {
		s.users.SetWord(u.ID, i, mark)
	}
	if u.Thin {
		s.users.SetWord(u.ID, markFirst, u.Marks[markFirst]|thinBit)
	}
	s.users.Fill(u.ID, listFollowees, u.unread(follows))
	for _, c := range u.Cursors {
		s.users.Set(u.ID, listCursors, hot.Pair{A: s.cursorNames.hold(c.Channel), B: uint64(c.Position)})
	}
}

// fattenLocked gives a user who is in memory without followees those of now.
func (s *Shard) fattenLocked(u *User, follows []hot.Pair) {
	first, _ := s.users.Word(u.ID, markFirst)
	s.users.SetWord(u.ID, markFirst, first&^thinBit)
	s.users.Fill(u.ID, listFollowees, u.unread(follows))
}

// unread forgets since when the user has followed those whose posts up to then
// are all read. It changes the list.
func (u *User) unread(follows []hot.Pair) []hot.Pair {
	read := max(u.Marks[markFeed], u.Marks[markAll])
	for i := range follows {
		if follows[i].B <= read {
			follows[i].B = 0
		}
	}
	return follows
}

// userLocked makes sure that a user is in memory; false when they may be on disk.
func (s *Shard) userLocked(user uint64) bool {
	if s.users.Has(user) {
		return true
	}
	if !s.residency.users.has(user) {
		return false
	}
	s.users.Make(user)
	return true
}

// forgetCursorsLocked lets the names go that a user's cursors hold, before the
// user leaves memory.
func (s *Shard) forgetCursorsLocked(user uint64) {
	s.users.Ascend(user, listCursors, 0, func(p hot.Pair) bool {
		s.cursorNames.release(p.A)
		return true
	})
}

// cursorLocked is a user's cursor in a channel, 0 when there is none.
func (s *Shard) cursorLocked(user uint64, channel string) pipeline.Position {
	number, ok := s.cursorNames.find(channel)
	if !ok {
		return 0
	}
	position, _ := s.users.Find(user, listCursors, number)
	return pipeline.Position(position)
}

// CursorsMax bounds the channels that one user has cursors in: far more than
// there are channels by default, so only names that nobody publishes to are
// passed over.
const CursorsMax = 65_536

// setCursorLocked moves a user's cursor in a channel, and says whether it is
// later than the one there was. A user has so many at most.
func (s *Shard) setCursorLocked(user uint64, channel string, position pipeline.Position, most int) bool {
	number, known := s.cursorNames.find(channel)
	was, listed := uint64(0), false
	if known {
		was, listed = s.users.Find(user, listCursors, number)
	}
	if uint64(position) <= was || !listed && s.users.Len(user, listCursors) >= most {
		return false
	}
	if !listed {
		number = s.cursorNames.hold(channel)
	}
	s.users.Set(user, listCursors, hot.Pair{A: number, B: uint64(position)})
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
		s.changed.add(change{kind: kindMarks, a: user})
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
	if s.thinLocked(user) {
		words[markFirst] |= thinBit
	}
	for i, word := range words {
		s.users.SetWord(user, i, word)
	}
	for _, name := range o.Channels {
		if mark <= max(words[markAll], words[markFirst]&^thinBit) {
			continue // these say as much, and more
		}
		if s.setCursorLocked(user, name, o.Mark, CursorsMax) {
			s.changed.addCursor(user, name, uint64(o.Mark))
		}
	}
	return nil
}

// followsLocked says whether a user follows another, if memory knows.
func (s *Shard) followsLocked(user, followee uint64) (follows, known bool) {
	if s.users.Has(user) && !s.thinLocked(user) {
		_, follows = s.users.Find(user, listFollowees, followee)
		return follows, true
	}
	if s.residency.users.has(user) {
		return false, true
	}
	_, follows, known = s.following.Get(user, pipeline.Member{A: followee})
	return follows, known
}

// followeesLocked appends a user's followees, ascending.
func (s *Shard) followeesLocked(user uint64, dst []hot.Pair) (list []hot.Pair, known bool) {
	if !s.users.Has(user) || s.thinLocked(user) {
		return dst, s.residency.users.has(user)
	}
	return s.users.Pairs(user, listFollowees, dst), true
}
