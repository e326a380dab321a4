package shard

import (
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Page is a piece of whom a user follows, or who follows them, ascending. What
// of it is on disk is added with Add, ascending, until that says no.
type Page struct {
	Users []uint64
	State State // that the answer reflects
	Cold  bool  // something must be added from the disk

	after     uint64
	limit     int
	over      overlay // what has changed since what is on disk, above after
	user      [1]uint64
	published uint64
}

// More says whether there are more than the page's. To be asked once.
func (p *Page) More() bool {
	more := len(p.Users) > p.limit
	p.Users = p.Users[:min(p.limit, len(p.Users))]
	return more
}

// full says that the page, and the one that tells whether there are more, are
// there.
func (p *Page) full() bool { return len(p.Users) > p.limit }

// Add adds the next one that is on disk, if they still are in the list, and
// before them those who came since. It says whether more are wanted.
func (p *Page) Add(user uint64) (more bool) {
	if user <= p.after {
		return true
	}
	p.before(user)
	switch {
	case p.full():
	case len(p.over) > 0 && p.over[0].b == user:
		if !p.over[0].gone {
			p.Users = append(p.Users, user)
		}
		p.over = p.over[1:]
	default:
		p.Users = append(p.Users, user)
	}
	return !p.full()
}

// End says that nobody else is on disk.
func (p *Page) End() {
	for len(p.over) > 0 && !p.full() {
		p.next()
	}
}

// before adds those who came since, up to a user.
func (p *Page) before(user uint64) {
	for len(p.over) > 0 && p.over[0].b < user && !p.full() {
		p.next()
	}
}

func (p *Page) next() {
	if c := p.over[0]; !c.gone {
		p.Users = append(p.Users, c.b)
	}
	p.over = p.over[1:]
}

// above keeps the changes above an id.
func (o overlay) above(after uint64) overlay {
	for len(o) > 0 && o[0].b <= after {
		o = o[1:]
	}
	return o
}

// Following lists whom a user follows, ascending, above an id, at most limit,
// in the memory of users. If the list is only on disk, pin is called at the same
// moment; nil: it is left.
func (s *Shard) Following(user, after uint64, limit int, users []uint64, pin func()) (*Page, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, s.failed
	}
	p := &Page{Users: users[:0], State: s.state, after: after, limit: limit, user: [1]uint64{user}, published: s.residency.published}
	switch {
	case s.users.Has(user):
		s.users.Ascend(user, listFollowees, after, func(f hot.Pair) bool { return p.Add(f.A) })
	case !s.residency.users.has(user):
		p.Cold = true
		if pin != nil {
			p.over = s.overLocked(kindFollowing, user).above(after)
			pin()
		}
	}
	return p, nil
}

// Followers lists who follows a user, in the same way. A page costs the same at
// any depth and however many there are: the order is the disk's, so it is
// always asked, with the changes since over it.
func (s *Shard) Followers(user, after uint64, limit int, users []uint64, pin func()) (*Page, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, s.failed
	}
	p := &Page{Users: users[:0], State: s.state, after: after, limit: limit, Cold: true}
	if pin != nil {
		p.over = s.overLocked(kindFollower, user).above(after)
		pin()
	}
	return p, nil
}

// FollowersOf lists who follows users, a page of each, at one moment; of the first
// one those above an id.
func (s *Shard) FollowersOf(users []uint64, after uint64, limit int, pin func()) ([]Page, State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return nil, State{}, s.failed
	}
	pages := make([]Page, len(users))
	for i, user := range users {
		pages[i] = Page{State: s.state, after: after, limit: limit, Cold: true}
		if pin != nil {
			pages[i].over = s.overLocked(kindFollower, user).above(after)
		}
		after = 0
	}
	if pin != nil {
		pin()
	}
	return pages, s.state, nil
}

// Want is the user, for Install.
func (p *Page) Want() *Want { return &Want{Users: p.user[:], Published: p.published} }
