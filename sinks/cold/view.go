package cold

import (
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// View is a shard's visible runs as of when it was made, whatever is committed or
// merged since. It belongs to one goroutine. An error of stored bytes wraps
// [ErrCorrupt] and names shard, file, run and block; of a shard that cannot be used
// every read returns why.
type View struct {
	stack  *Stack
	layers *layers
	err    error
	lookup *run.Scratch // of get: keys that ascend read each block once
}

// Close lets the runs go; nothing may use the view after it.
func (v *View) Close() {
	v.layers.release()
	v.layers = nil
	if v.lookup != nil {
		putBack(&scratches, v.lookup)
		v.lookup = nil
	}
}

// Rows fills in the cells of ids, which ascend: columns × ids; zeros where
// there is nothing. A run's filter is asked first, and ids that lie in one block
// read it once. Newer runs are asked first: below a whole row nothing is.
func (v *View) Rows(counter int, ids []uint64, cells []int64) error {
	clear(cells)
	if v.err != nil {
		return v.err
	}
	r := rowReaders.Get().(*rowReader)
	defer func() {
		r.scratch.Forget()
		rowReaders.Put(r)
	}()
	r.begin(len(ids))
	codec := &v.stack.store.counters[counter]
	for _, l := range v.layers.all {
		if r.left == 0 {
			break
		}
		if err := r.read(l, codec, ids); err != nil {
			return v.stack.wrap(l, err)
		}
	}
	v.stack.store.Stats.noteLookups(r.looked, len(r.found))
	columns := len(codec.numbers)
	for i := range ids {
		if layer, err := r.apply(i, codec.places, cells[i*columns:(i+1)*columns]); err != nil {
			return v.stack.wrap(v.layers.all[layer], err)
		}
	}
	return nil
}

// rowReader gathers what runs say of rows, newest first.
type rowReader struct {
	scratch run.Scratch
	left    int       // ids of which no whole row was found yet
	whole   []bool    // by id: one was
	oldest  []int     // by id: the oldest found; -1: none
	found   []rowPart // in the order in which they were
	values  []byte
	layer   int
	looked  int // that filters let through
}

// rowPart is what one run says of one row.
type rowPart struct {
	from, to int // of values
	newer    int // the next newer of the row; -1: none
	layer    int
}

var rowReaders = sync.Pool{New: func() any { return new(rowReader) }}

func (r *rowReader) begin(ids int) {
	r.left, r.layer, r.looked = ids, -1, 0
	r.whole = slices.Grow(r.whole[:0], ids)[:ids]
	r.oldest = slices.Grow(r.oldest[:0], ids)[:ids]
	clear(r.whole)
	for i := range r.oldest {
		r.oldest[i] = -1
	}
	r.found, r.values = r.found[:0], r.values[:0]
}

// read asks the next older run for the rows of which no whole one was found.
func (r *rowReader) read(l *layer, codec *counterCodec, ids []uint64) error {
	r.layer++
	r.scratch.Looked = 0
	key := run.Key{Kind: run.Row, Counter: codec.number}
	for i, id := range ids {
		if r.whole[i] {
			continue
		}
		key.A = id
		value, _, found, err := l.run.Get(&key, &r.scratch)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		from := len(r.values)
		r.values = append(r.values, value...)
		r.found = append(r.found, rowPart{from, len(r.values), r.oldest[i], r.layer})
		r.oldest[i] = len(r.found) - 1
		if run.IsWhole(value) {
			r.whole[i] = true
			r.left--
		}
	}
	r.looked += r.scratch.Looked
	return nil
}

// apply lays what was found of a row one upon the other, the oldest first.
func (r *rowReader) apply(i int, places []int, cells []int64) (layer int, err error) {
	for at := r.oldest[i]; at >= 0; at = r.found[at].newer {
		part := &r.found[at]
		if err := run.ApplyRow(r.values[part.from:part.to], places, cells); err != nil {
			return part.layer, err
		}
	}
	return 0, nil
}

// get calls value with what the newest run that has an entry says of it, unless
// that it is gone; value may be nil. Of a set, no run is asked that is older than
// one which says that the set was emptied.
func (v *View) get(key run.Key, value func([]byte) error) (found bool, err error) {
	if v.err != nil {
		return false, v.err
	}
	if v.lookup == nil {
		v.lookup = scratches.Get().(*run.Scratch)
	}
	scratch := v.lookup
	scratch.Looked = 0
	hits := 0
	mark := key.Emptied()
	set := mark.IsMark()
	defer func() { v.stack.store.Stats.noteLookups(scratch.Looked, hits) }()
	for _, l := range v.layers.all {
		b, gone, found, err := l.run.Get(&key, scratch)
		if err == nil && found && !gone && value != nil {
			if err = value(b); err != nil {
				err = scratch.Damage(err)
			}
		}
		if err != nil {
			return false, v.stack.wrap(l, err)
		}
		if found {
			hits++
			return !gone, nil
		}
		if !set {
			continue
		}
		if _, _, found, err = l.run.Get(&mark, scratch); err != nil {
			return false, v.stack.wrap(l, err)
		}
		if found {
			hits++
			return false, nil
		}
	}
	return false, nil
}

// Marks are how far a user has read (feed, all, first, last); zeros when there
// is nothing.
func (v *View) Marks(user uint64) (marks [4]uint64, err error) {
	_, err = v.get(run.Key{Kind: run.Marks, A: user}, func(b []byte) (err error) {
		marks, err = run.ReadNumbers(run.Marks, b)
		return err
	})
	return marks, err
}

// Follows says whether a user follows another.
func (v *View) Follows(user, followee uint64) (bool, error) {
	return v.get(run.Key{Kind: run.Following, A: user, B: followee}, nil)
}

// Followed says whether a user is followed by another.
func (v *View) Followed(user, follower uint64) (bool, error) {
	return v.get(run.Key{Kind: run.Follower, A: user, B: follower}, nil)
}

// Following visits a user's followees above an id, ascending, and since when,
// until visit returns false. It costs the same at any depth.
func (v *View) Following(user, after uint64, visit func(followee uint64, since pipeline.Position) bool) error {
	if after+1 == 0 {
		return nil
	}
	s := v.of(run.Key{Kind: run.Following, A: user, B: after + 1})
	for s.next() && s.key().A == user {
		if !visit(s.key().B, pipeline.Position(s.numbers()[0])) {
			break
		}
	}
	return s.end()
}

// Followers visits a user's followers in the same way.
func (v *View) Followers(user, after uint64, visit func(follower uint64) bool) error {
	if after+1 == 0 {
		return nil
	}
	s := v.of(run.Key{Kind: run.Follower, A: user, B: after + 1})
	s.followers(user, visit)
	return s.end()
}

// FollowersOf visits those of users, who ascend, until visit of one returns false:
// then those of the next one. Those in one block read it once. A user is
// done before the next one's are visited; more says whether to go on.
func (v *View) FollowersOf(users []uint64, after uint64, visit func(i int, follower uint64) bool, done func(i int) (more bool)) error {
	s := v.scan(run.Key{Kind: run.Follower}, v.layers.all, &scratches, nil)
	for i, user := range users {
		if after+1 != 0 {
			from := run.Key{Kind: run.Follower, A: user, B: after + 1}
			s.seek(&from, func(r *run.Run) bool { return r.MayOwn(&from) })
			s.followers(user, func(follower uint64) bool { return visit(i, follower) })
		}
		if after = 0; s.err != nil || !done(i) {
			break
		}
	}
	return s.end()
}

func (s *scan) followers(user uint64, visit func(follower uint64) bool) {
	for s.next() && s.key().A == user {
		if !visit(s.key().B) {
			break
		}
	}
}

// From is an author, and the position from which on their posts are wanted.
type From struct {
	Author   uint64
	Position pipeline.Position
}

// Posts visits the posts of authors, who ascend, each from a position on, ascending; i
// says whose. Authors that no filter lets through cost no block, and those in one block
// read it once.
func (v *View) Posts(authors []From, visit func(i int, position pipeline.Position, post uint64)) error {
	s := v.scan(run.Key{Kind: run.Post}, v.layers.all, &scratches, nil)
	for i, from := range authors {
		key := run.Key{Kind: run.Post, A: from.Author, B: uint64(from.Position)}
		s.seek(&key, func(r *run.Run) bool { return r.MayOwn(&key) })
		for s.next() && s.key().A == from.Author {
			visit(i, pipeline.Position(s.key().B), s.numbers()[0])
		}
		if s.err != nil {
			break
		}
	}
	return s.end()
}

// Cursors visits how far a user has read channels, by name.
func (v *View) Cursors(user uint64, visit func(channel string, position pipeline.Position)) error {
	s := v.of(run.Key{Kind: run.Cursor, A: user})
	for s.next() && s.key().A == user {
		visit(s.key().Name, pipeline.Position(s.numbers()[0]))
	}
	return s.end()
}

// Notices visits the live notices, by id.
func (v *View) Notices(visit func(channel string, notice uint64, position pipeline.Position)) error {
	s := v.scan(run.Key{Kind: run.Notice}, v.layers.all, &walkScratches, nil)
	s.seek(&run.Key{Kind: run.Notice}, nil)
	for s.next() {
		visit(s.key().Name, s.key().A, pipeline.Position(s.numbers()[0]))
	}
	return s.end()
}

// Seconds visits log time, ascending.
func (v *View) Seconds(visit func(second int64, position pipeline.Position)) error {
	s := v.scan(run.Key{Kind: run.Second}, v.layers.all, &walkScratches, nil)
	s.seek(&run.Key{Kind: run.Second}, nil)
	for s.next() {
		visit(int64(s.key().A), pipeline.Position(s.numbers()[0]))
	}
	return s.end()
}

// NewestWithin is how many of the newest runs have at most so many bytes
// together.
func (v *View) NewestWithin(bytes int64) (runs int) {
	for _, l := range v.layers.all {
		if bytes -= l.info.Bytes; bytes < 0 {
			break
		}
		runs++
	}
	return runs
}
