package shard

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/tidemark-io/tidemark/sinks/hot"
)

// change is an entry that changed since the last checkpoint: what it is now.
type change struct {
	kind kind
	gone bool
	a, b uint64
	v    uint64
}

type kind uint8

const (
	kindFollowing kind = iota // user, followee: position of the follow
	kindFollower              // user, follower
	kindPost                  // author, position: post
	kindCursor                // user, place of the channel's name in names: position
	kindMarks                 // user; what they are is with the user
)

// changes are entries that changed, in the order of the log. The owner adds to
// them under the shard's lock. Who captures those of one user or author does so
// under the read lock, by an index that is made as far as it is needed: where
// nothing is read from disk, it costs nothing.
type changes struct {
	list    []change
	names   []string // of the channels of cursors in list
	letters int      // bytes of the names

	mu      sync.Mutex // of the indexes, among those who hold the read lock
	lists   map[listKey]int32
	listed  int     // so many of list are in lists
	earlier []int32 // by place in list: the last one before with the same key, or -1
	edges   map[edgeKey]int32
	edged   int // so many of list are in edges
}

// listKey is whose changes, of which kind; lists has the place of the last one.
type listKey struct {
	kind kind
	id   uint64
}

// edgeKey is a pair of the graph, from one side; edges has its last change.
type edgeKey struct {
	kind kind
	a, b uint64
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
		k, at := listKey{e.kind, e.a}, int32(-1)
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

// edge is whether the last change of an edge, if there is one, left it there.
func (c *changes) edge(key edgeKey) (there, changed bool) {
	if c == nil || len(c.list) == 0 {
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edges == nil {
		c.edges = make(map[edgeKey]int32)
	}
	for ; c.edged < len(c.list); c.edged++ {
		if e := &c.list[c.edged]; e.kind == kindFollowing || e.kind == kindFollower {
			c.edges[edgeKey{e.kind, e.a, e.b}] = int32(c.edged)
		}
	}
	at, changed := c.edges[key]
	return changed && !c.list[at].gone, changed
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
	return cap(c.list)*int(unsafe.Sizeof(change{})) + (c.listed+c.edged)*indexBytes +
		cap(c.names)*int(unsafe.Sizeof("")) + c.letters
}

// overLocked are the changes of one kind of a user or author that are not on
// disk: of each entry the last one, in the order of the disk.
func (s *Shard) overLocked(kind kind, id uint64) overlay {
	key := listKey{kind, id}
	list := s.flight.changed.of(key, s.changed.of(key, nil))
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.b, b.b) })
	return slices.CompactFunc(list, func(a, b change) bool { return a.b == b.b }) // the first is the last change
}

// edgeOverLocked says whether an edge is there, which on disk is or is not.
func (s *Shard) edgeOverLocked(kind kind, a, b uint64, onDisk bool) bool {
	key := edgeKey{kind, a, b}
	for _, c := range []*changes{s.changed, s.flight.changed} {
		if there, changed := c.edge(key); changed {
			return there
		}
	}
	return onDisk
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
