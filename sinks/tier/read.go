package tier

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// Batch is the memory that reads of rows work in; it is reused.
type Batch struct {
	shard.Batch
	base []int64
}

// Read calls row for each id with its cells, looks for b.Sets (b.Has says in which rows
// they are), and returns the state that the answer reflects: all of it is as of one
// window's end. An id without a row has zeros. cells are valid during the call. With
// ErrCold the ids that are in memory are answered, and b.Left lists the others.
func (t *Shard) Read(counter int, ids []uint64, b *Batch, d *Disk, row func(i int, cells []int64)) (shard.State, error) {
	defer d.unpin()
	state, err := t.Shard.Read(counter, ids, &b.Batch, d.pin(t), row)
	switch {
	case err != nil || b.Whole():
		return state, err
	case !d.May:
		return state, ErrCold
	}
	if err := t.readCold(counter, b, d, row); err != nil {
		return state, err
	}
	return state, t.readWanted(b, d)
}

// readCold reads the rows that memory does not have.
func (t *Shard) readCold(counter int, b *Batch, d *Disk, row func(i int, cells []int64)) error {
	if b.Cold() == 0 {
		return nil
	}
	missing := b.Missing()
	if err := d.use(len(missing), func() error { return t.readRows(d, counter, missing, &b.base) }); err != nil {
		return err
	}
	b.Lay(b.base, row)
	if !d.Passing {
		t.InstallRows(&b.Batch, b.base)
	}
	return nil
}

// readWanted looks up the members that memory does not know.
func (t *Shard) readWanted(b *Batch, d *Disk) error {
	want := b.Wanted()
	if want.Empty() {
		return nil
	}
	found, err := t.lookUp(want.Members, d)
	if err != nil {
		return err
	}
	b.LayMembers(found)
	if !d.Passing {
		t.Install(want, &shard.Loaded{Members: found})
	}
	return nil
}

// lookUp reads of members whether they are there.
func (t *Shard) lookUp(members []shard.Asked, d *Disk) (found []shard.Membership, err error) {
	found = make([]shard.Membership, len(members))
	err = d.use(len(found), func() error { return t.unreadable(readMembers(d.views[0], members, found)) })
	return found, err
}

// readRows reads rows of a counter; ids ascend.
func (t *Shard) readRows(d *Disk, counter int, ids []uint64, cells *[]int64) error {
	n := t.schema.Counters[counter].Count
	*cells = grown(*cells, n*len(ids))
	rest := *cells
	for some := range slices.Chunk(ids, readsAtATime) {
		if err := d.ended(); err != nil {
			return err
		}
		err := d.views[0].Rows(counter, some, rest[:n*len(some)])
		t.CountReads(counter, len(some), err)
		if err != nil {
			return t.unreadable(err)
		}
		rest = rest[n*len(some):]
	}
	return nil
}

// Profile reads what the shard knows of a user towards their unread numbers,
// as of one window's end. counter may be -1 for none; channels are the channels
// whose cursors are wanted.
func (t *Shard) Profile(user uint64, counter int, channels []string, p *shard.Profile, d *Disk) (shard.State, error) {
	defer d.unpin()
	state, err := t.Shard.Profile(user, counter, channels, p, d.pin(t))
	if err != nil || !p.Cold() {
		return state, err
	}
	missing, row := p.Missing()
	var u *shard.User
	var base []int64
	err = d.use(1, func() (err error) {
		if missing {
			if u, err = readUser(d.views[0], user); err != nil {
				return t.unreadable(err)
			}
		}
		if row == nil {
			return nil
		}
		return t.readRows(d, counter, row.Missing(), &base)
	})
	if err != nil {
		return state, err
	}
	p.Lay(u, base)
	if d.Passing {
		return state, nil
	}
	if u != nil {
		t.Install(p.Want(), &shard.Loaded{Users: []shard.User{*u}})
	}
	if row != nil {
		t.InstallRows(row, base)
	}
	return state, nil
}

// Following lists a user's followees, ascending, above an id, at most limit,
// in the memory of users. A page of a list that is only on disk costs what it
// has, at any depth: the user is put into memory where it has all of the list.
func (t *Shard) Following(user, after uint64, limit int, users []uint64, d *Disk) (out []uint64, more bool, state shard.State, err error) {
	return t.following(user, after, limit, users, d, false)
}

// Followees lists the same for a caller that wants all of it, page by page: the user is
// put into memory with the first.
func (t *Shard) Followees(user, after uint64, limit int, users []uint64, d *Disk) (out []uint64, more bool, state shard.State, err error) {
	return t.following(user, after, limit, users, d, after == 0 && !d.Passing)
}

func (t *Shard) following(user, after uint64, limit int, users []uint64, d *Disk, all bool) (out []uint64, more bool, state shard.State, err error) {
	defer d.unpin()
	page, err := t.Shard.Following(user, after, limit, d.pin(t))
	if err != nil {
		return nil, false, state, err
	}
	if page.Cold {
		u := &shard.User{ID: user}
		whole := after == 0 && !d.Passing // u is what there is of the user
		err = d.use(1, func() error {
			err := d.views[0].Following(user, after, func(followee uint64, since pipeline.Position) bool {
				if whole {
					u.Follow(followee, since)
				}
				more := page.Add(pipeline.Member{A: followee}, 0) || all
				whole = whole && more
				return more
			})
			if err == nil && whole {
				err = readMarks(d.views[0], u)
			}
			return t.unreadable(err)
		})
		if err != nil {
			return nil, false, page.State, err
		}
		page.End()
		if whole {
			t.Install(page.Want(), &shard.Loaded{Users: []shard.User{*u}})
		}
	}
	more = page.More()
	return firsts(users, page.Members), more, page.State, nil
}

// firsts are the first words of members, in the memory of users.
func firsts(users []uint64, members []pipeline.Member) []uint64 {
	users = users[:0]
	for _, m := range members {
		users = append(users, m.A)
	}
	return users
}

// Followers lists a user's followers, in the same way.
func (t *Shard) Followers(user, after uint64, limit int, users []uint64, d *Disk) (out []uint64, more bool, state shard.State, err error) {
	members, more, state, err := t.Members(shard.NoColumn, user, pipeline.Member{A: after}, limit, d)
	return firsts(users, members), more, state, err
}

// Members lists the members of the set of a column's row, ascending, above one, at most
// limit; of shard.NoColumn, a user's followers.
func (t *Shard) Members(column pipeline.Column, id uint64, after pipeline.Member, limit int, d *Disk) (members []pipeline.Member, more bool, state shard.State, err error) {
	defer d.unpin()
	page, err := t.Shard.Members(column, id, after, limit, d.pin(t))
	if err != nil {
		return nil, false, state, err
	}
	if err := d.use(1, func() error { return t.unreadable(addMembers(d.views[0], column, id, after, page)) }); err != nil {
		return nil, false, page.State, err
	}
	page.End()
	more = page.More()
	return page.Members, more, page.State, nil
}

// addMembers adds what the disk has to a page.
func addMembers(view *cold.View, column pipeline.Column, id uint64, after pipeline.Member, page *shard.Page) error {
	if column == shard.NoColumn {
		return view.Followers(id, after.A, func(follower uint64) bool { return page.Add(pipeline.Member{A: follower}, 0) })
	}
	return view.Members(column, id, after, page.Add)
}

// MembersOf visits the members of the sets of some rows of a column, of ids that ascend,
// at one moment; of shard.NoColumn, followers. Of the first one it visits those
// above a member, and so many of each at most. It ends when it has visited so many in
// all, or has not visited all of one: more says that there may be others.
func (t *Shard) MembersOf(column pipeline.Column, ids []uint64, after pipeline.Member, limit int, d *Disk, visit func(id uint64, m pipeline.Member, second int64)) (more bool, state shard.State, err error) {
	defer d.unpin()
	pages, state, err := t.Shard.MembersOf(column, ids, after, limit, d.pin(t))
	if err != nil {
		return false, state, err
	}
	left := limit
	done := func(i int) bool {
		p := &pages[i]
		p.End()
		more = p.More()
		for j, m := range p.Members {
			visit(ids[i], m, p.Seconds[j])
		}
		left -= len(p.Members)
		p.Members, p.Seconds = nil, nil
		more = more || left <= 0 && i+1 < len(ids)
		return !more
	}
	err = d.use(1, func() error { return t.unreadable(membersOf(d.views[0], column, ids, after, pages, done)) })
	return more, state, err
}

// membersOf fills pages, one after the other, until done says that they are enough.
func membersOf(view *cold.View, column pipeline.Column, ids []uint64, after pipeline.Member, pages []shard.Page, done func(i int) bool) error {
	if column == shard.NoColumn {
		add := func(i int, follower uint64) bool { return pages[i].Add(pipeline.Member{A: follower}, 0) }
		return view.FollowersOf(ids, after.A, add, done)
	}
	for i, id := range ids {
		if err := view.Members(column, id, after, pages[i].Add); err != nil || !done(i) {
			return err
		}
		after = pipeline.Member{}
	}
	return nil
}
