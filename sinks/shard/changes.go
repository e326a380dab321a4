package shard

import (
	"cmp"
	"runtime"
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
	set     uint16    // of a member: in Shard.sets
	print   hot.Print // of a followee or a member
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
	kindItem                  // user, position: place in items; without a position: the list was emptied
)

// changes are entries that changed, in the order of the log. The owner adds to them
// under the shard's lock. Those of one user, author or member are found by indexes that
// are made as far as they are needed: where nobody asks, they cost nothing.
type changes struct {
	list    hot.Blocks[change]
	names   []string // of the channels of cursors in list
	letters int      // bytes of the names
	items   hot.Blocks[itemRest]

	mu      sync.Mutex // of the indexes, among holders of the read lock
	lists   map[listKey]int32
	listed  int     // so many of list are in lists
	earlier []int32 // by place in list: the last one before with the same key, or -1
	members places
	placed  int  // so many of list are in members
	empties bool // one of those empties a set
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

// places finds the last change of each member. A place is
//
//	the member's print │ one more than its place in the list        0: free
//
// It stands where the print falls, or in the next free place, and half of them or more
// are free.
type places struct {
	at    []uint64
	taken int
}

// find is where a member's place is, or the free one where it belongs.
func (p *places) find(list *hot.Blocks[change], key memberKey, print hot.Print) (at int, found bool) {
	for at = print.Home(len(p.at)); p.at[at] != 0; at = (at + 1) % len(p.at) {
		if hot.Print(p.at[at]>>32) == print && list.At(int(uint32(p.at[at]))-1).member() == key {
			return at, true
		}
	}
	return at, false
}

// put has the place of a member be one in the list.
func (p *places) put(list *hot.Blocks[change], place int) {
	if 2*p.taken >= len(p.at) {
		p.grow()
	}
	c := list.At(place)
	at, found := p.find(list, c.member(), c.print)
	if !found {
		p.taken++
	}
	p.at[at] = uint64(c.print)<<32 | uint64(place+1)
}

func (p *places) grow() {
	old := p.at
	p.at = make([]uint64, max(placesMin, 2*len(old)))
	for _, place := range old {
		if place == 0 {
			continue
		}
		at := hot.Print(place >> 32).Home(len(p.at))
		for p.at[at] != 0 {
			at = (at + 1) % len(p.at)
		}
		p.at[at] = place
	}
}

// placesMin is the smallest number of places.
const placesMin = 64

func (c *changes) add(e change) { c.list.Add(e) }

// addCursor adds that of a cursor in a channel.
func (c *changes) addCursor(user uint64, channel string, position uint64) {
	c.add(change{kind: kindCursor, a: user, b: uint64(len(c.names)), v: position})
	c.names = append(c.names, channel)
	c.letters += len(channel)
}

// of appends the changes of a key, the last one first.
func (c *changes) of(key listKey, dst []change) []change {
	if c == nil || c.list.Len() == 0 {
		return dst
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		c.lists = make(map[listKey]int32)
	}
	for ; c.listed < c.list.Len(); c.listed++ {
		e := c.list.At(c.listed)
		k, at := listKey{e.kind, e.set, e.a}, int32(-1)
		if was, ok := c.lists[k]; ok {
			at = was
		}
		c.earlier = append(c.earlier, at)
		c.lists[k] = int32(c.listed)
	}
	if at, ok := c.lists[key]; ok {
		for ; at >= 0; at = c.earlier[at] {
			dst = append(dst, *c.list.At(int(at)))
		}
	}
	return dst
}

// member is what the last change of a followee or a member, if there is one, left of it.
func (c *changes) member(key memberKey) (is Membership, changed bool) {
	if c == nil || c.list.Len() == 0 {
		return Membership{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placeAll()
	at, changed := c.place(key)
	if c.empties {
		key.member = pipeline.Member{}
		if emptied, ok := c.place(key); ok && (!changed || emptied > at) {
			return Membership{}, true
		}
	}
	if !changed {
		return Membership{}, false
	}
	e := c.list.At(at)
	return Membership{int64(e.v), !e.gone}, true
}

// placeAll puts what is in list into members, some at a time, so that cache misses overlap.
func (c *changes) placeAll() {
	for c.placed < c.list.Len() {
		from, to := c.placed, min(c.placed+cellsMax, c.list.Len())
		touched := uint64(0)
		for i := from; i < to && len(c.members.at) > 0; i++ {
			touched += c.members.at[c.list.At(i).print.Home(len(c.members.at))]
		}
		runtime.KeepAlive(touched)
		for c.placed = from; c.placed < to; c.placed++ {
			if e := c.list.At(c.placed); e.kind == kindFollowing || e.kind == kindMember {
				c.members.put(&c.list, c.placed)
				c.empties = c.empties || e.b == 0
			}
		}
	}
}

// place is that of a member's last change.
func (c *changes) place(key memberKey) (place int, found bool) {
	if c.members.taken == 0 {
		return 0, false
	}
	at, found := c.members.find(&c.list, key, hot.PrintOf(key.id, key.member))
	return int(uint32(c.members.at[at])) - 1, found
}

// before puts older changes before these.
func (c *changes) before(older *changes) *changes {
	items := uint64(older.items.Len())
	for _, at := range c.list.All {
		e := *at
		switch {
		case e.kind == kindCursor:
			e.b += uint64(len(older.names))
		case e.kind == kindItem && !e.gone:
			e.v += items
		}
		older.add(e)
	}
	for _, i := range c.items.All {
		older.items.Add(*i)
	}
	older.names = append(older.names, c.names...)
	older.letters += c.letters
	return older
}

// indexBytes is what an entry takes in lists and earlier, about.
const indexBytes = 48

// bytes is the memory taken.
func (c *changes) bytes() int {
	if c == nil {
		return 0
	}
	return c.list.Bytes() + c.listed*indexBytes + 8*len(c.members.at) +
		cap(c.names)*int(unsafe.Sizeof("")) + c.letters + c.items.Bytes()
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

// emptied is the place of the last change that empties a set or a list, of each that one does.
func (c *changes) emptied() (places map[listKey]int) {
	for i, e := range c.list.All {
		if (e.kind == kindMember || e.kind == kindItem) && e.b == 0 {
			if places == nil {
				places = make(map[listKey]int)
			}
			places[listKey{e.kind, e.set, e.a}] = i
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
