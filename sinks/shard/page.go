package shard

import (
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Page is a piece of a set, ascending: a user's followees, their followers, or the
// members of a column's row. What of it is on disk is added with Add, ascending, until
// that says no.
type Page struct {
	Members []pipeline.Member
	Seconds []int64 // in which they came, where the set forgets
	State   State   // that the answer reflects
	Cold    bool    // something must be added from the disk

	set       *set // nil: followees
	now       int64
	after     pipeline.Member
	limit     int
	over      overlay // what has changed since what is on disk, above after
	emptied   bool    // and what is on disk does not count
	user      [1]uint64
	published uint64
}

// More says whether there are more than the page's. To be asked once.
func (p *Page) More() bool {
	more := p.full()
	p.Members, p.Seconds = p.Members[:min(p.limit, len(p.Members))], p.Seconds[:min(p.limit, len(p.Seconds))]
	return more
}

// full says that the page is there, and the one more that shows whether there are more.
func (p *Page) full() bool { return len(p.Members) > p.limit }

// Add adds the next one that is on disk, if it still is in the set, and before it
// those that came since. second is when it came, of a set that forgets. It says
// whether more are wanted.
func (p *Page) Add(m pipeline.Member, second int64) (more bool) {
	if p.emptied || m.Compare(p.after) <= 0 {
		return !p.emptied
	}
	p.before(m)
	switch {
	case p.full():
	case len(p.over) > 0 && p.over[0].member().member == m:
		p.next()
	default:
		p.put(m, second)
	}
	return !p.full()
}

// End says that nobody else is on disk.
func (p *Page) End() {
	for len(p.over) > 0 && !p.full() {
		p.next()
	}
}

// before adds those that came since, up to a member.
func (p *Page) before(m pipeline.Member) {
	for len(p.over) > 0 && p.over[0].member().member.Compare(m) < 0 && !p.full() {
		p.next()
	}
}

func (p *Page) next() {
	if c := &p.over[0]; !c.gone {
		p.put(c.member().member, int64(c.v))
	}
	p.over = p.over[1:]
}

func (p *Page) put(m pipeline.Member, second int64) {
	if p.set == nil || !p.set.forgot(second, p.now) {
		p.Members, p.Seconds = append(p.Members, m), append(p.Seconds, second)
	}
}

// above keeps the changes above a member.
func (o overlay) above(after pipeline.Member) overlay {
	for len(o) > 0 && o[0].member().member.Compare(after) <= 0 {
		o = o[1:]
	}
	return o
}

// Following lists a user's followees, ascending, above an id, at most limit. If the
// list is only on disk, pin is called at the same moment; nil: it is left.
func (s *Shard) Following(user, after uint64, limit int, pin func()) (*Page, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, s.failed
	}
	p := &Page{State: s.state, after: pipeline.Member{A: after}, limit: limit, user: [1]uint64{user}, published: s.residency.published}
	switch {
	case s.users.Has(user) && !s.thinLocked(user):
		s.users.Ascend(user, listFollowees, after, func(f hot.Pair) bool { return p.Add(pipeline.Member{A: f.A}, 0) })
	case !s.residency.users.has(user):
		p.Cold = true
		if pin != nil {
			p.over = s.overLocked(kindFollowing, user).above(p.after)
			pin()
		}
	}
	return p, nil
}

// Members lists the members of the set of a column's row, above a member, at most limit;
// of NoColumn, a user's followers. A page costs the same at any depth and however many
// there are: the order is the disk's, so it is always asked, with the changes since
// over it.
func (s *Shard) Members(column pipeline.Column, id uint64, after pipeline.Member, limit int, pin func()) (*Page, error) {
	pages, _, err := s.MembersOf(column, []uint64{id}, after, limit, pin)
	if err != nil {
		return nil, err
	}
	return &pages[0], nil
}

// MembersOf lists the members of the sets of some rows of a column, a page of each, at
// one moment; of the first one those above a member.
func (s *Shard) MembersOf(column pipeline.Column, ids []uint64, after pipeline.Member, limit int, pin func()) ([]Page, State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, State{}, s.failed
	}
	t := s.setOf(column)
	pages := make([]Page, len(ids))
	for i, id := range ids {
		p := Page{State: s.state, set: t, now: s.state.Time / 1000, after: after, limit: limit, Cold: true}
		if pin != nil {
			p.over, p.emptied = s.setOverLocked(listKey{kindMember, t.number, id})
			p.over = p.over.above(after)
		}
		pages[i], after = p, pipeline.Member{}
	}
	if pin != nil {
		pin()
	}
	return pages, s.state, nil
}

// Want is the user, for Install.
func (p *Page) Want() *Want { return &Want{Users: p.user[:], Published: p.published} }
