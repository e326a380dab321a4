package shard

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// Profile is what a user's own shard knows towards their unread numbers. It
// is reused from user to user.
type Profile struct {
	Marks     Marks
	Cells     []int64             // the user's row of the asked counter, zeros when there is none
	Following []hot.Pair          // (followee, position of the follow, or 0 when the feed was read since)
	Cursors   []pipeline.Position // of the asked channels

	batch    Batch
	user     [1]uint64
	channels []string

	// What was captured of a user who is not in memory.
	missing   bool
	thin      bool    // but the marks and cursors are
	over      overlay // of Following
	published uint64
}

// Profile reads a user's, as of one window's end. counter may be -1 for none;
// channels are the channels whose cursors are wanted. If a part is only on
// disk (p.Cold), pin is called at the same moment; p.Missing and p.Lay
// complete it. nil: it is left.
func (s *Shard) Profile(user uint64, counter int, channels []string, p *Profile, pin func()) (State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failed != nil {
		return State{}, s.failed
	}
	p.user[0], p.channels = user, channels
	p.Cells, p.batch.cold = p.Cells[:0], p.batch.cold[:0]
	if counter >= 0 {
		s.rowsLocked(counter, p.user[:], &p.batch, func(_ int, cells []int64) { p.Cells = append(p.Cells, cells...) })
	}
	known := false
	p.Following, known = s.followeesLocked(user, p.Following[:0])
	p.Marks, _ = s.marksLocked(user)
	p.Cursors = p.Cursors[:0]
	some := s.users.Len(user, listCursors) > 0
	for _, name := range channels {
		position := pipeline.Position(0)
		if some {
			position = s.cursorLocked(user, name)
		}
		p.Cursors = append(p.Cursors, position)
	}
	p.missing, p.thin = !known, !known && s.users.Has(user)
	if p.Cold() && pin != nil {
		if p.batch.Cold() > 0 { // else its counter is one of an earlier request
			s.captureRowsLocked(&p.batch)
		}
		p.over, p.published = nil, s.residency.published
		if p.missing { // marks and cursors that are not on disk yet keep a user in memory
			p.over = s.overLocked(kindFollowing, user)
		}
		pin()
	}
	return s.state, nil
}

// Cold says that a part of the profile must be read from the disk.
func (p *Profile) Cold() bool { return p.missing || p.batch.Cold() > 0 }

// Missing is that part: the user, or their row of the asked counter, which is
// b's, nil if it is not missing.
func (p *Profile) Missing() (user bool, row *Batch) {
	if p.batch.Cold() > 0 {
		row = &p.batch
	}
	return p.missing, row
}

// Want is the user, for Install, if they are missing.
func (p *Profile) Want() *Want { return &Want{Users: p.user[:], Published: p.published} }

// Lay completes the profile, as of when it was asked for, with the user as they
// are on the disk, and with the row; nil for what was not missing.
func (p *Profile) Lay(u *User, row []int64) {
	if row != nil {
		p.batch.Lay(row, func(_ int, cells []int64) { p.Cells = append(p.Cells[:0], cells...) })
	}
	if u == nil {
		return
	}
	p.Following = u.unread(append(p.Following[:0], p.over.pairs(u.Follows)...))
	if p.thin { // memory knows more of the rest
		return
	}
	p.Marks = marksOf(u.Marks)
	for i, name := range p.channels {
		at := slices.IndexFunc(u.Cursors, func(c Cursor) bool { return c.Channel == name })
		if p.Cursors[i] = 0; at >= 0 {
			p.Cursors[i] = u.Cursors[at].Position
		}
	}
}
