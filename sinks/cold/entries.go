package cold

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"

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
func (c *Checkpoint) PutMarks(shard pipeline.Shard, user uint64, marks []int64) error {
	value := make([]uint64, len(marks))
	for i, m := range marks {
		value[i] = uint64(m)
	}
	return c.put(entryKey(shard, kindMarks, user), value...)
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
	key   []byte // behind the kind
	value []uint64
}

// number is the i-th number of the key.
func (e *entry) number(i int) uint64 { return binary.BigEndian.Uint64(e.key[8*i:]) }

// entries calls visit for every entry of a kind, in key order.
func (s *Store) entries(shard pipeline.Shard, kind byte, numbers, values int, visit func(e *entry)) error {
	return s.entriesFrom(shardKey(shard, kind), nil, numbers, values, func(e *entry) bool {
		visit(e)
		return true
	})
}

// entriesFrom does so for those with a prefix, from a key on, until visit
// returns false.
func (s *Store) entriesFrom(prefix, from []byte, numbers, values int, visit func(e *entry) bool) error {
	err := s.db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.Prefix = prefix
		o.PrefetchValues = values > 0
		it := txn.NewIterator(o)
		defer it.Close()
		e := entry{value: make([]uint64, values)}
		for it.Seek(append(bytes.Clone(prefix), from...)); it.Valid(); it.Next() {
			item := it.Item()
			e.key = item.Key()[kindEnd:]
			if len(e.key) < 8*numbers {
				return fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(item.Key()))
			}
			if values > 0 {
				if err := item.Value(e.decode); err != nil {
					return err
				}
			}
			if !visit(&e) {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cold: read entries of kind %d: %w", prefix[kindEnd-1], err)
	}
	return nil
}

// kindEnd is where a key goes on behind its kind.
const kindEnd = 4

func (e *entry) decode(b []byte) error {
	for i := range e.value {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("%w: a value is cut short", ErrCorrupt)
		}
		e.value[i], b = v, b[n:]
	}
	return nil
}

// ScanFollowing calls visit for whom the users of a shard follow, by user and
// followee.
func (s *Store) ScanFollowing(shard pipeline.Shard, visit func(user, followee uint64, since pipeline.Position)) error {
	return s.entries(shard, kindFollowing, 2, 1, func(e *entry) { visit(e.number(0), e.number(1), pipeline.Position(e.value[0])) })
}

// ScanFollowers calls visit for who follows the users of a shard.
func (s *Store) ScanFollowers(shard pipeline.Shard, visit func(user, follower uint64)) error {
	return s.entries(shard, kindFollower, 2, 0, func(e *entry) { visit(e.number(0), e.number(1)) })
}

// Followers calls visit for a user's followers above an id, ascending, until
// it returns false. It costs the same at any depth.
func (s *Store) Followers(shard pipeline.Shard, user, after uint64, visit func(follower uint64) bool) error {
	if after+1 == 0 {
		return nil
	}
	return s.entriesFrom(entryKey(shard, kindFollower, user), binary.BigEndian.AppendUint64(nil, after+1), 2, 0,
		func(e *entry) bool { return visit(e.number(1)) })
}

// ScanPosts calls visit for the posts in a shard's outboxes, by author and position.
func (s *Store) ScanPosts(shard pipeline.Shard, visit func(author uint64, position pipeline.Position, post uint64)) error {
	return s.entries(shard, kindPost, 2, 1, func(e *entry) { visit(e.number(0), pipeline.Position(e.number(1)), e.value[0]) })
}

// ScanMarks calls visit for what the users of a shard have read.
func (s *Store) ScanMarks(shard pipeline.Shard, visit func(user uint64, marks [4]int64)) error {
	return s.entries(shard, kindMarks, 1, 4, func(e *entry) {
		visit(e.number(0), [4]int64{int64(e.value[0]), int64(e.value[1]), int64(e.value[2]), int64(e.value[3])})
	})
}

// ScanCursors calls visit for how far the users of a shard have read channels.
func (s *Store) ScanCursors(shard pipeline.Shard, visit func(user uint64, channel string, position pipeline.Position)) error {
	return s.entries(shard, kindCursor, 1, 1, func(e *entry) { visit(e.number(0), string(e.key[8:]), pipeline.Position(e.value[0])) })
}

// ScanNotices calls visit for the live notices.
func (s *Store) ScanNotices(shard pipeline.Shard, visit func(channel string, notice uint64, position pipeline.Position)) error {
	return s.entries(shard, kindNotice, 1, 1, func(e *entry) { visit(string(e.key[8:]), e.number(0), pipeline.Position(e.value[0])) })
}

// ScanSeconds calls visit for log time, ascending.
func (s *Store) ScanSeconds(shard pipeline.Shard, visit func(second int64, position pipeline.Position)) error {
	return s.entries(shard, kindSecond, 1, 1, func(e *entry) { visit(int64(e.number(0)), pipeline.Position(e.value[0])) })
}
