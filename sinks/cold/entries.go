package cold

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Entries besides counter rows, each a key of its own so that a set of 10^8
// members costs no more to change than one of ten:
//
//	following  01 │ shard │ 02 │ user 8 B   │ followee 8 B   position of the follow
//	follower   01 │ shard │ 03 │ user 8 B   │ follower 8 B   nothing
//	post       01 │ shard │ 04 │ author 8 B │ position 8 B   post
//	marks      01 │ shard │ 05 │ user 8 B                    feed, all, first, last
//	cursor     01 │ shard │ 06 │ user 8 B   │ channel        position
//	notice     01 │ shard │ 07 │ notice 8 B │ channel        position
//	second     01 │ shard │ 08 │ Unix second 8 B             its first position
//
// Values are LEB128. Notices and seconds are in the shard one past the last.
const (
	kindFollowing = 0x02
	kindFollower  = 0x03
	kindPost      = 0x04
	kindMarks     = 0x05
	kindCursor    = 0x06
	kindNotice    = 0x07
	kindSecond    = 0x08
)

func entryKey(shard pipeline.Shard, kind byte, numbers ...uint64) []byte {
	key := shardKey(shard, kind)
	for _, n := range numbers {
		key = binary.BigEndian.AppendUint64(key, n)
	}
	return key
}

func (c *Checkpoint) put(key []byte, numbers ...uint64) error {
	var value []byte
	for _, n := range numbers {
		value = binary.AppendUvarint(value, n)
	}
	return c.set(key, value)
}

// PutFollowing adds that a user follows another since a position.
func (c *Checkpoint) PutFollowing(shard pipeline.Shard, user, followee uint64, since pipeline.Position) error {
	return c.put(entryKey(shard, kindFollowing, user, followee), uint64(since))
}

// DeleteFollowing adds that a user does not follow another.
func (c *Checkpoint) DeleteFollowing(shard pipeline.Shard, user, followee uint64) error {
	return c.delete(entryKey(shard, kindFollowing, user, followee))
}

// PutFollower adds that a user is followed by another.
func (c *Checkpoint) PutFollower(shard pipeline.Shard, user, follower uint64) error {
	return c.put(entryKey(shard, kindFollower, user, follower))
}

// DeleteFollower adds that a user is not followed by another.
func (c *Checkpoint) DeleteFollower(shard pipeline.Shard, user, follower uint64) error {
	return c.delete(entryKey(shard, kindFollower, user, follower))
}

// PutPost adds a post to an outbox.
func (c *Checkpoint) PutPost(shard pipeline.Shard, author uint64, position pipeline.Position, post uint64) error {
	return c.put(entryKey(shard, kindPost, author, uint64(position)), post)
}

// DeletePost takes a post out of an outbox.
func (c *Checkpoint) DeletePost(shard pipeline.Shard, author uint64, position pipeline.Position) error {
	return c.delete(entryKey(shard, kindPost, author, uint64(position)))
}

// PutMarks adds what a user has read.
func (c *Checkpoint) PutMarks(shard pipeline.Shard, user uint64, marks ...uint64) error {
	return c.put(entryKey(shard, kindMarks, user), marks...)
}

// PutCursor adds how far a user has read a channel.
func (c *Checkpoint) PutCursor(shard pipeline.Shard, user uint64, channel string, position pipeline.Position) error {
	return c.put(append(entryKey(shard, kindCursor, user), channel...), uint64(position))
}

// PutNotice adds a live notice.
func (c *Checkpoint) PutNotice(shard pipeline.Shard, channel string, notice uint64, position pipeline.Position) error {
	return c.put(append(entryKey(shard, kindNotice, notice), channel...), uint64(position))
}

// DeleteNotice takes a notice back.
func (c *Checkpoint) DeleteNotice(shard pipeline.Shard, channel string, notice uint64) error {
	return c.delete(append(entryKey(shard, kindNotice, notice), channel...))
}

// PutSecond adds a moment of log time.
func (c *Checkpoint) PutSecond(shard pipeline.Shard, second int64, position pipeline.Position) error {
	return c.put(entryKey(shard, kindSecond, uint64(second)), uint64(position))
}

// DeleteSecond forgets a moment of log time.
func (c *Checkpoint) DeleteSecond(shard pipeline.Shard, second int64) error {
	return c.delete(entryKey(shard, kindSecond, uint64(second)))
}

// entry is a stored entry taken apart.
type entry struct {
	kind  byte
	key   []byte // behind the kind
	value []uint64
	item  Item
}

// read reads the value, where the kind has one.
func (e *entry) read() error {
	if len(e.value) == 0 {
		return nil
	}
	return e.item.Value(e.decode)
}

// number is the i-th number of the key.
func (e *entry) number(i int) uint64 { return binary.BigEndian.Uint64(e.key[8*i:]) }

// kindEnd is where a key goes on behind its kind.
const kindEnd = 4

func (e *entry) decode(b []byte) error {
	for i := range e.value {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("%w: a value is cut short", ErrCorrupt)
		}
		if e.kind != kindPost && v > uint64(pipeline.PositionMax) {
			return fmt.Errorf("%w: position %d", ErrCorrupt, v)
		}
		e.value[i], b = v, b[n:]
	}
	return nil
}

// errNobody: no table in memory can hold an id of 0.
var errNobody = fmt.Errorf("%w: an entry of id 0", ErrCorrupt)

// entries calls visit for every entry of a kind, in key order.
func (s *Store) entries(shard pipeline.Shard, kind byte, numbers, values int, visit func(e *entry)) error {
	return s.View(Newest, func(v *View) error {
		return v.entries(shardKey(shard, kind), nil, numbers, values, func(e *entry) bool {
			visit(e)
			return true
		})
	})
}

// ScanNotices calls visit for the live notices.
func (s *Store) ScanNotices(shard pipeline.Shard, visit func(channel string, notice uint64, position pipeline.Position)) error {
	return s.entries(shard, kindNotice, 1, 1, func(e *entry) { visit(string(e.key[8:]), e.number(0), pipeline.Position(e.value[0])) })
}

// ScanSeconds calls visit for log time, ascending.
func (s *Store) ScanSeconds(shard pipeline.Shard, visit func(second int64, position pipeline.Position)) error {
	return s.entries(shard, kindSecond, 1, 1, func(e *entry) { visit(int64(e.number(0)), pipeline.Position(e.value[0])) })
}
