package cold

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Newest is the version that sees everything committed.
const Newest = math.MaxUint64

// versions hands out versions of commits and knows which are not settled.
type versions struct {
	mu   sync.Mutex
	last uint64
	open []uint64 // ascending; a handful
}

func (v *versions) begin() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last++
	v.open = append(v.open, v.last)
	return v.last
}

// settle closes a version and returns the newest that nobody reads before.
func (v *versions) settle(version uint64) (keep uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, open := range v.open {
		if open == version {
			v.open = append(v.open[:i], v.open[i+1:]...)
			break
		}
	}
	if len(v.open) > 0 {
		return v.open[0] - 1
	}
	return v.last
}

// View is the store as of a version: what was committed up to it. It belongs
// to one goroutine.
type View struct {
	store  *Store
	reader Reader
}

// View reads as of a version: [Newest], or the one before a checkpoint that is
// not settled. An error of stored bytes wraps [ErrCorrupt].
func (s *Store) View(as uint64, read func(*View) error) error {
	return s.engine.View(as, func(r Reader) error { return read(&View{s, r}) })
}

// get calls value with what a key holds; found says whether it is there.
func (v *View) get(key []byte, value func([]byte) error) (found bool, err error) {
	item, err := v.reader.Get(key)
	if item == nil || err != nil {
		return false, err
	}
	return true, item.Value(value)
}

// Row fills in the cells of an id; not found, it leaves zeros.
func (v *View) Row(shard pipeline.Shard, counter int, id uint64, cells []int64) (found bool, err error) {
	clear(cells)
	codec := &v.store.counters[counter]
	found, err = v.get(rowKey(shard, codec.number, id), func(b []byte) error { return decodeCells(b, codec.places, cells) })
	if err != nil {
		return false, fmt.Errorf("cold: row %d of counter %s: %w", id, v.store.schema.Counters[counter].Name, err)
	}
	return found, nil
}

// Marks are what a user has read; zeros when there is nothing.
func (v *View) Marks(shard pipeline.Shard, user uint64) (marks [4]uint64, err error) {
	e := entry{kind: kindMarks, value: marks[:]}
	if _, err = v.get(entryKey(shard, kindMarks, user), e.decode); err != nil {
		return marks, fmt.Errorf("cold: marks of user %d: %w", user, err)
	}
	return marks, nil
}

// Follows says whether a user follows another, Followed whether they are followed.
func (v *View) Follows(shard pipeline.Shard, user, followee uint64) (bool, error) {
	return v.has(entryKey(shard, kindFollowing, user, followee))
}

// Followed says whether a user is followed by another.
func (v *View) Followed(shard pipeline.Shard, user, follower uint64) (bool, error) {
	return v.has(entryKey(shard, kindFollower, user, follower))
}

func (v *View) has(key []byte) (bool, error) {
	found, err := v.get(key, func([]byte) error { return nil })
	if err != nil {
		return false, fmt.Errorf("cold: read an edge: %w", err)
	}
	return found, nil
}

// Following calls visit for whom a user follows, ascending.
func (v *View) Following(shard pipeline.Shard, user uint64, visit func(followee uint64, since pipeline.Position)) error {
	return v.entries(entryKey(shard, kindFollowing, user), nil, 2, 1, func(e *entry) bool {
		visit(e.number(1), pipeline.Position(e.value[0]))
		return true
	})
}

// Followers calls visit for a user's followers above an id, ascending, until
// it returns false. It costs the same at any depth.
func (v *View) Followers(shard pipeline.Shard, user, after uint64, visit func(follower uint64) bool) error {
	if after+1 == 0 {
		return nil
	}
	return v.entries(entryKey(shard, kindFollower, user), binary.BigEndian.AppendUint64(nil, after+1), 2, 0,
		func(e *entry) bool { return visit(e.number(1)) })
}

// Posts calls visit for the posts in an author's outbox at or after a
// position, ascending.
func (v *View) Posts(shard pipeline.Shard, author uint64, from pipeline.Position, visit func(position pipeline.Position, post uint64)) error {
	return v.entries(entryKey(shard, kindPost, author), binary.BigEndian.AppendUint64(nil, uint64(from)), 2, 1, func(e *entry) bool {
		visit(pipeline.Position(e.number(1)), e.value[0])
		return true
	})
}

// From is an author, and the position from which on their posts are asked for.
type From struct {
	Author   uint64
	Position pipeline.Position
}

// leap is how many entries that nobody asked for are passed over before a scan
// begins again where the next asked ones are: about what that costs.
const leap = 32

// PostsOf calls visit for the posts of many authors, ascending, each from a
// position on; i says whose. Authors who have none cost next to nothing beside
// others, so it is the way to ask for many.
func (v *View) PostsOf(shard pipeline.Shard, authors []From, visit func(i int, position pipeline.Position, post uint64)) error {
	i := 0
	for i < len(authors) {
		passed, leapt := 0, false
		from := binary.BigEndian.AppendUint64(nil, authors[i].Author)
		from = binary.BigEndian.AppendUint64(from, uint64(authors[i].Position))
		err := v.keys(shardKey(shard, kindPost), from, 2, 1, func(e *entry) (more bool, err error) {
			author, position := e.number(0), pipeline.Position(e.number(1))
			for i < len(authors) && authors[i].Author < author {
				i++
			}
			if i == len(authors) {
				return false, nil
			}
			if author == authors[i].Author && position >= authors[i].Position {
				passed = 0
				if err := e.read(); err != nil {
					return false, err
				}
				visit(i, position, e.value[0])
				return true, nil
			}
			passed++
			leapt = passed > leap
			return !leapt, nil
		})
		if err != nil {
			return err
		}
		if !leapt {
			return nil
		}
	}
	return nil
}

// Cursors calls visit for how far a user has read channels.
func (v *View) Cursors(shard pipeline.Shard, user uint64, visit func(channel string, position pipeline.Position)) error {
	return v.entries(entryKey(shard, kindCursor, user), nil, 1, 1, func(e *entry) bool {
		visit(string(e.key[8:]), pipeline.Position(e.value[0]))
		return true
	})
}

// Part is a stretch of one kind of a shard's entries, for who loads it all
// piece by piece.
type Part struct {
	From  []byte // where to go on; nil: from the beginning
	Since uint64 // only what was written as of this version or later
	Most  int    // so many entries, at least
	Done  bool   // there is no more
}

// Rows calls visit for a part of a shard's rows, by counter and id, and moves
// it on. cells are valid during the call.
func (v *View) Rows(shard pipeline.Shard, part *Part, visit func(counter int, id uint64, cells []int64) error) error {
	s := v.store
	cells := make([]int64, len(s.schema.Columns))
	taken := 0
	var row []int64
	var places []int
	decode := func(b []byte) error { return decodeCells(b, places, row) } // once, not for each row
	return v.scan(shardKey(shard, kindRow), part, func(item Item) (bool, error) {
		if taken++; taken > part.Most {
			return false, nil
		}
		number, id, err := parseRowKey(item.Key())
		if err != nil {
			return false, err
		}
		if id == 0 {
			return false, errNobody
		}
		if int(number) >= len(s.byNumber) {
			return false, fmt.Errorf("%w: counter %d of %d", ErrCorrupt, number, len(s.byNumber))
		}
		counter := s.byNumber[number]
		row, places = cells[:s.schema.Counters[counter].Count], s.counters[counter].places
		clear(row)
		if err = item.Value(decode); err != nil {
			return false, fmt.Errorf("row %d of counter %s: %w", id, s.schema.Counters[counter].Name, err)
		}
		return true, visit(counter, id, row)
	})
}

// Users calls visit for the users of a part of a shard's marks.
func (v *View) Users(shard pipeline.Shard, part *Part, visit func(user uint64)) error {
	return v.owners(shard, kindMarks, part, visit)
}

// Authors calls visit for the authors of a part of a shard's posts.
func (v *View) Authors(shard pipeline.Shard, part *Part, visit func(author uint64)) error {
	return v.owners(shard, kindPost, part, visit)
}

// owners calls visit for the first number of each key, once for neighbours.
func (v *View) owners(shard pipeline.Shard, kind byte, part *Part, visit func(id uint64)) error {
	last, taken := uint64(0), 0
	return v.scan(shardKey(shard, kind), part, func(item Item) (bool, error) {
		key := item.Key()
		if len(key) < kindEnd+8 {
			return false, fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(key))
		}
		id := binary.BigEndian.Uint64(key[kindEnd:])
		if id == 0 {
			return false, errNobody
		}
		if taken++; taken > part.Most && id != last {
			return false, nil
		}
		if id != last {
			visit(id)
		}
		last = id
		return true, nil
	})
}

// Edges calls visit for a part of who follows the users of a shard.
func (v *View) Edges(shard pipeline.Shard, part *Part, visit func(user, follower uint64)) error {
	taken := 0
	return v.scan(shardKey(shard, kindFollower), part, func(item Item) (bool, error) {
		if taken++; taken > part.Most {
			return false, nil
		}
		key := item.Key()
		if len(key) != kindEnd+16 {
			return false, fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(key))
		}
		user := binary.BigEndian.Uint64(key[kindEnd:])
		if user == 0 {
			return false, errNobody
		}
		visit(user, binary.BigEndian.Uint64(key[kindEnd+8:]))
		return true, nil
	})
}

// scan visits a part's items from part.From on until visit says no, and notes
// where to go on.
func (v *View) scan(prefix []byte, part *Part, visit func(Item) (more bool, err error)) error {
	from := part.From
	if from == nil {
		from = prefix
	}
	done := true
	err := v.reader.Scan(prefix, from, part.Since, func(item Item) (more bool, err error) {
		if more, err = visit(item); err == nil && !more {
			part.From, done = bytes.Clone(item.Key()), false
		}
		return more, err
	})
	if err != nil {
		return fmt.Errorf("cold: read entries of kind %d: %w", prefix[kindEnd-1], err)
	}
	part.Done = done
	return nil
}

// Written calls visit with the version of every key of a shard: how long ago
// each was written, counted in checkpoints. It ends when visit says no.
func (v *View) Written(shard pipeline.Shard, visit func(version uint64) (more bool)) error {
	prefix := binary.BigEndian.AppendUint16([]byte{prefixShard}, uint16(shard))
	return v.reader.Scan(prefix, prefix, 0, func(item Item) (bool, error) { return visit(item.Version()), nil })
}

// entries calls visit for every entry with a prefix, from a key on, in key
// order, until visit returns false.
func (v *View) entries(prefix, from []byte, numbers, values int, visit func(e *entry) bool) error {
	return v.keys(prefix, from, numbers, values, func(e *entry) (bool, error) {
		if err := e.read(); err != nil {
			return false, err
		}
		return visit(e), nil
	})
}

// keys is entries whose values are not read yet.
func (v *View) keys(prefix, from []byte, numbers, values int, visit func(e *entry) (more bool, err error)) error {
	e := entry{kind: prefix[kindEnd-1], value: make([]uint64, values)}
	err := v.reader.Scan(prefix, append(bytes.Clone(prefix), from...), 0, func(item Item) (bool, error) {
		if e.key = item.Key()[kindEnd:]; len(e.key) < 8*numbers {
			return false, fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(item.Key()))
		}
		if e.kind != kindSecond && e.number(0) == 0 {
			return false, errNobody
		}
		e.item = item
		return visit(&e)
	})
	if err != nil {
		return fmt.Errorf("cold: read entries of kind %d: %w", prefix[kindEnd-1], err)
	}
	return nil
}

// Range is whose entries a scan by owner goes over: ids in [From, To). To is
// set by the scan: it ends with a whole owner.
type Range struct {
	From, To uint64
	Most     int // entries of one kind, at least
}

// UserRange visits all that is stored of the users of a range: first whom they
// follow, then their marks, then their cursors, each by user. Where it ends is
// told before the visits begin.
func (v *View) UserRange(shard pipeline.Shard, r *Range,
	following func(user, followee uint64, since pipeline.Position),
	marks func(user uint64, marks [4]uint64),
	cursor func(user uint64, channel string, position pipeline.Position),
) error {
	r.To = math.MaxUint64
	for _, kind := range []byte{kindFollowing, kindMarks, kindCursor} {
		if err := v.bound(shard, kind, r); err != nil {
			return err
		}
	}
	err := v.ranged(shard, kindFollowing, r, 2, 1, func(e *entry) { following(e.number(0), e.number(1), pipeline.Position(e.value[0])) })
	if err != nil {
		return err
	}
	err = v.ranged(shard, kindMarks, r, 1, 4, func(e *entry) { marks(e.number(0), [4]uint64(e.value)) })
	if err != nil {
		return err
	}
	return v.ranged(shard, kindCursor, r, 1, 1, func(e *entry) { cursor(e.number(0), string(e.key[8:]), pipeline.Position(e.value[0])) })
}

// PostRange visits the posts of the authors of a range, by author and position.
func (v *View) PostRange(shard pipeline.Shard, r *Range, visit func(author uint64, position pipeline.Position, post uint64)) error {
	r.To = math.MaxUint64
	if err := v.bound(shard, kindPost, r); err != nil {
		return err
	}
	return v.ranged(shard, kindPost, r, 2, 1, func(e *entry) { visit(e.number(0), pipeline.Position(e.number(1)), e.value[0]) })
}

// bound lowers r.To to the first owner behind r.Most entries of a kind.
func (v *View) bound(shard pipeline.Shard, kind byte, r *Range) error {
	part := Part{From: entryKey(shard, kind, r.From), Most: r.Most}
	if err := v.owners(shard, kind, &part, func(uint64) {}); err != nil {
		return err
	}
	if !part.Done {
		r.To = min(r.To, binary.BigEndian.Uint64(part.From[kindEnd:]))
	}
	return nil
}

func (v *View) ranged(shard pipeline.Shard, kind byte, r *Range, numbers, values int, visit func(e *entry)) error {
	return v.entries(shardKey(shard, kind), binary.BigEndian.AppendUint64(nil, r.From), numbers, values, func(e *entry) bool {
		if r.To != math.MaxUint64 && e.number(0) >= r.To {
			return false
		}
		visit(e)
		return true
	})
}
