package shard

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// change is an entry that changed since the last checkpoint: what it is now.
type change struct {
	kind    kind
	gone    bool
	set     uint16 // of a member: in Shard.sets
	a, b, c uint64
	v       uint64
}

// member is what a change of a member is about. One without a member empties the set.
func (c *change) member() memberKey {
	return memberKey{c.kind, c.set, c.a, pipeline.Member{A: c.b, B: c.c}}
}

type kind uint8

const (
	kindFollowing kind = iota // user, followee: position of the follow
	kindMember                // id, member: the log second in which it came; without a member: the set was emptied
	kindPost                  // author, position: post
	kindCursor                // user, place of the channel's name in names: position
	kindMarks                 // user; what they are is with the user
)

// changes are entries that changed, in the order of the log. The owner adds to them
// under the shard's lock. Those of one user or author are captured under the read lock,
// by an index that is made as far as it is needed: where nothing is read from disk, it
// costs nothing.
type changes struct {
	list    []change
	names   []string // of the channels of cursors in list
	letters int      // bytes of the names

	mu      sync.Mutex // of the indexes, among holders of the read lock
	lists   map[listKey]int32
	listed  int     // so many of list are in lists
	earlier []int32 // by place in list: the last one before with the same key, or -1
	members map[memberKey]int32
	placed  int // so many of list are in members
}

// listKey is whose changes, of which kind; lists has the place of the last one.
type listKey struct {
	kind kind
	set  uint16
	id   uint64
}

// memberKey is a followee or a member; members has the place of its last change. One
// without a member is of the set: of when it was last emptied.
type memberKey struct {
	kind   kind
	set    uint16
	id     uint64
	member pipeline.Member
}

func (c *changes) add(e change) { c.list = append(c.list, e) }

// addCursor adds that of a cursor in a channel.
func (c *changes) addCursor(user uint64, channel string, position uint64) {
	c.add(change{kind: kindCursor, a: user, b: uint64(len(c.names)), v: position})
	c.names = append(c.names, channel)
	c.letters += len(channel)
}

// of appends the changes of a key, the last one first.
func (c *changes) of(key listKey, dst []change) []change {
	if c == nil || len(c.list) == 0 {
		return dst
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		c.lists = make(map[listKey]int32)
	}
	for ; c.listed < len(c.list); c.listed++ {
		e := &c.list[c.listed]
		k, at := listKey{e.kind, e.set, e.a}, int32(-1)
		if was, ok := c.lists[k]; ok {
			at = was
		}
		c.earlier = append(c.earlier, at)
		c.lists[k] = int32(c.listed)
	}
	if at, ok := c.lists[key]; ok {
		for ; at >= 0; at = c.earlier[at] {
			dst = append(dst, c.list[at])
		}
	}
	return dst
}

// member is what the last change of a followee or a member, if there is one, left of it.
func (c *changes) member(key memberKey) (is Membership, changed bool) {
	if c == nil || len(c.list) == 0 {
		return Membership{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = make(map[memberKey]int32)
	}
	for ; c.placed < len(c.list); c.placed++ {
		if e := &c.list[c.placed]; e.kind == kindFollowing || e.kind == kindMember {
			c.members[e.member()] = int32(c.placed)
		}
	}
	at, changed := c.members[key]
	key.member = pipeline.Member{}
	if emptied, ok := c.members[key]; ok && (!changed || emptied > at) {
		return Membership{}, true
	}
	if !changed {
		return Membership{}, false
	}
	return Membership{int64(c.list[at].v), !c.list[at].gone}, true
}

// before puts older changes before these.
func (c *changes) before(older *changes) *changes {
	for _, e := range c.list {
		if e.kind == kindCursor {
			e.b += uint64(len(older.names))
		}
		older.list = append(older.list, e)
	}
	older.names = append(older.names, c.names...)
	older.letters += c.letters
	return older
}

// indexBytes is what an entry takes in an index, about.
const indexBytes = 48

// bytes is the memory taken.
func (c *changes) bytes() int {
	if c == nil {
		return 0
	}
	return cap(c.list)*int(unsafe.Sizeof(change{})) + (c.listed+c.placed)*indexBytes +
		cap(c.names)*int(unsafe.Sizeof("")) + c.letters
}

// overLocked are the changes of one kind of a user or author that are not on
// disk: of each entry the last one, in the order of the disk.
func (s *Shard) overLocked(kind kind, id uint64) overlay {
	over, _ := s.setOverLocked(listKey{kind: kind, id: id})
	return over
}

// setOverLocked is overLocked of one column's set; emptied says that what is on disk
// does not count.
func (s *Shard) setOverLocked(key listKey) (over overlay, emptied bool) {
	list := s.flight.changed.of(key, s.changed.of(key, nil))
	if key.kind == kindMember {
		at := slices.IndexFunc(list, func(c change) bool { return c.b == 0 })
		if emptied = at >= 0; emptied {
			list = list[:at]
		}
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Or(cmp.Compare(a.b, b.b), cmp.Compare(a.c, b.c)) })
	return slices.CompactFunc(list, func(a, b change) bool { return a.b == b.b && a.c == b.c }), emptied // the first is the last change
}

// overDiskLocked is what a followee or a member is, that on disk is what is given.
func (s *Shard) overDiskLocked(key memberKey, onDisk Membership) (is Membership, changed bool) {
	for _, c := range []*changes{s.changed, s.flight.changed} {
		if is, changed := c.member(key); changed {
			return is, true
		}
	}
	return onDisk, false
}

// emptied is the place of the last change that empties a set, of each set that one does.
func (c *changes) emptied() (places map[listKey]int) {
	for i := range c.list {
		if e := &c.list[i]; e.kind == kindMember && e.b == 0 {
			if places == nil {
				places = make(map[listKey]int)
			}
			places[listKey{kindMember, e.set, e.a}] = i
		}
	}
	return places
}

// overlay is what has changed in one list since what is on disk, ascending.
type overlay []change

// pairs lays the changes over a list as it is on disk.
func (o overlay) pairs(list []hot.Pair) []hot.Pair {
	if len(o) == 0 {
		return list
	}
	out := make([]hot.Pair, 0, len(list)+len(o))
	for _, c := range o {
		n := sort.Search(len(list), func(i int) bool { return list[i].A >= c.b })
		out, list = append(out, list[:n]...), list[n:]
		if len(list) > 0 && list[0].A == c.b {
			list = list[1:]
		}
		if !c.gone {
			out = append(out, hot.Pair{A: c.b, B: c.v})
		}
	}
	return append(out, list...)
}
