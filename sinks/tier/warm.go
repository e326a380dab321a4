package tier

import (
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/run"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// After a start memory is empty. Warm fills it while queries are answered and
// windows applied: outboxes first, because every feed asks many of them, then users,
// rows and the prints of members, each kind in the order of the disk.

// PartMax is how many entries are read at a time at most: some milliseconds, so
// that a checkpoint rarely comes between and it has to be read again, and the
// lock is held shorter than that.
const PartMax = 4096

// ownerEntries is about how many entries a user or an author has: where they
// are read one by one, so many fewer make a part.
const ownerEntries = 16

// Everything has Warm load all of a shard, and prints of members.
const Everything = math.MaxInt64

// WarmOptions say how much Warm loads.
type WarmOptions struct {
	Bytes   int64       // of the newest runs on disk, which it loads; or Everything, after which only members are only on disk
	Bounds  int         // bytes of memory for what bounds the newest posts of all authors: it comes first, unless Everything is loaded
	Entries int         // that it reads at a time
	Tight   bool        // there is no room for the rows twice: see shard.Tighten
	More    func() bool // asked between parts: it goes on until it is through or this says no
}

// Warm loads what there is on the disk, the newest first.
func (t *Shard) Warm(o WarmOptions) error {
	defer t.warmed.Store(true)
	defer t.Loaded()
	o.Entries = min(o.Entries, PartMax)
	return t.unreadable((&warming{t, o}).load())
}

// Warmed says that Warm has ended, or that there was nothing to load.
func (t *Shard) Warmed() bool { return t.warmed.Load() }

type warming struct {
	*Shard
	o WarmOptions
}

// load goes from the newest runs to older ones, so that memory, if it is full before
// all are loaded, has what was written last. What comes again is there already. Where
// not all fits, the newest posts of all authors come first: an author with nothing new
// enough for a feed need not be looked for on the disk.
func (w *warming) load() error {
	if w.o.Bytes != Everything {
		if err := inOrder(0, w.room, w.bounds); err != nil {
			return err
		}
		all, err := w.newestWithin(Everything)
		if err != nil {
			return err
		}
		runs, err := w.newestWithin(w.o.Bytes)
		if err != nil {
			return err
		}
		for newest := range runs {
			if err := inOrder(newest+1, w.newestOutboxes, w.newestUsers, w.newestRows); err != nil {
				return err
			}
		}
		if runs < all {
			return nil
		}
	}
	for _, load := range []func() error{w.outboxes, w.users, w.rows, w.members} {
		if err := load(); err != nil {
			return err
		}
	}
	return nil
}

// boundBytes is about what the bound of an author takes, in a table that is not
// quite full.
const boundBytes = 6

// room counts the authors, to make a table that has room for them, or for as many
// as may be.
func (w *warming) room(int) error {
	part, authors := cold.Part{Most: w.o.Entries}, 0
	err := w.each(func(view *cold.View, _ uint64) (through bool, err error) {
		err = view.WalkAuthors(&part, func(uint64) { authors++ })
		return part.Done, err
	})
	w.Room(min(authors, w.o.Bounds/boundBytes) * 3 / 2)
	return err
}

func (w *warming) bounds(int) error {
	from := uint64(0)
	return w.each(func(view *cold.View, _ uint64) (through bool, err error) {
		r := cold.Range{From: from, Most: w.o.Entries}
		var newest []hot.Pair
		err = view.PostRange(&r, func(author uint64, position pipeline.Position, _ uint64) {
			if n := len(newest); n > 0 && newest[n-1].A == author {
				newest[n-1].B = uint64(position)
				return
			}
			newest = append(newest, hot.Pair{A: author, B: uint64(position)})
		})
		if err == nil {
			from, through = r.To, r.To == math.MaxUint64
			w.Bound(newest, through)
		}
		return through, err
	})
}

func inOrder(newest int, loads ...func(newest int) error) error {
	for _, load := range loads {
		if err := load(newest); err != nil {
			return err
		}
	}
	return nil
}

func (w *warming) newestWithin(bytes int64) (runs int, err error) {
	view := w.stack.View()
	defer view.Close() // which may remove a file: not under the shard's lock
	return view.NewestWithin(bytes), w.Err()
}

// each calls step with the disk as it is, until step says that it is through,
// or more says no.
func (w *warming) each(step func(view *cold.View, published uint64) (through bool, err error)) error {
	for w.o.More() {
		var through bool
		var err error
		w.Disk(func() { through, err = w.part(step) })
		if through || err != nil {
			return err
		}
	}
	return nil
}

func (w *warming) part(step func(view *cold.View, published uint64) (through bool, err error)) (through bool, err error) {
	var view *cold.View
	published, err := w.Pin(func() { view = w.stack.View() })
	if err != nil {
		return false, err
	}
	defer view.Close()
	return step(view, published)
}

func (w *warming) outboxes() error {
	from := uint64(0)
	return w.each(func(view *cold.View, published uint64) (through bool, err error) {
		r := cold.Range{From: from, Most: w.o.Entries}
		var authors []shard.Author
		err = view.PostRange(&r, func(author uint64, position pipeline.Position, post uint64) {
			if n := len(authors); n == 0 || authors[n-1].ID != author {
				authors = append(authors, shard.Author{ID: author})
			}
			authors[len(authors)-1].Post(position, post)
		})
		end := r.To == math.MaxUint64
		if err != nil || !w.InstallAuthors(published, authors, shard.IDs(from, r.To, end)) {
			return false, err
		}
		from = r.To
		return end, nil
	})
}

func (w *warming) users() error {
	from := uint64(0)
	return w.each(func(view *cold.View, published uint64) (through bool, err error) {
		r := cold.Range{From: from, Most: w.o.Entries}
		var users []shard.User
		places := make(map[uint64]int)
		user := func(id uint64) *shard.User {
			at, ok := places[id]
			if !ok {
				at = len(users)
				places[id] = at
				users = append(users, shard.User{ID: id})
			}
			return &users[at]
		}
		err = view.UserRange(&r,
			func(id, followee uint64, since pipeline.Position) { user(id).Follow(followee, since) },
			func(id uint64, marks [4]uint64) { user(id).Marks = marks },
			func(id uint64, channel string, position pipeline.Position) { user(id).Cursor(channel, position) })
		end := r.To == math.MaxUint64
		if err != nil || !w.InstallUsers(published, users, shard.IDs(from, r.To, end)) {
			return false, err
		}
		from = r.To
		return end, nil
	})
}

// piece is rows of one counter, by id.
type piece struct {
	counter int
	ids     []uint64
	cells   []int64
}

// readPieces reads a part of the rows.
func readPieces(view *cold.View, part *cold.Part) (pieces []piece, err error) {
	err = view.WalkRows(part, func(counter int, id uint64, cells []int64) error {
		if n := len(pieces); n == 0 || pieces[n-1].counter != counter {
			pieces = append(pieces, piece{counter: counter})
		}
		p := &pieces[len(pieces)-1]
		p.ids, p.cells = append(p.ids, id), append(p.cells, cells...)
		return nil
	})
	return pieces, err
}

func (w *warming) rows() error {
	if w.o.Tight {
		w.Tighten()
	}
	defer w.FitAll()
	part := cold.Part{Most: w.o.Entries}
	place, from := 0, uint64(0) // in w.order, and of an id: where the walk is
	return w.each(func(view *cold.View, published uint64) (through bool, err error) {
		next := part
		pieces, err := readPieces(view, &next)
		if err != nil {
			return false, err
		}
		// The part covers all counters up to the last row, also those that
		// have no row; every one of them as of this view.
		at, id := place, from
		for _, p := range pieces {
			for ; at < len(w.order) && w.order[at] != p.counter; at, id = at+1, 0 {
				if !w.InstallCounter(published, w.order[at], nil, nil, shard.IDs(id, 0, true)) {
					return false, nil
				}
			}
			last := p.ids[len(p.ids)-1]
			if !w.InstallCounter(published, p.counter, p.ids, p.cells, shard.IDs(id, last+1, last == math.MaxUint64)) {
				return false, nil
			}
			id = last + 1
		}
		for ; next.Done && at < len(w.order); at, id = at+1, 0 {
			if !w.InstallCounter(published, w.order[at], nil, nil, shard.IDs(id, 0, true)) {
				return false, nil
			}
		}
		part, place, from = next, at, id
		return part.Done, nil
	})
}

// members has filters know followers, then the sets of columns.
func (w *warming) members() error {
	for _, column := range append([]pipeline.Column{shard.NoColumn}, w.schema.Sets()...) {
		if err := w.membersOf(column); err != nil {
			return err
		}
	}
	return nil
}

func (w *warming) membersOf(column pipeline.Column) error {
	part, from := cold.Part{Most: w.o.Entries}, hot.Pair{}
	return w.each(func(view *cold.View, _ uint64) (through bool, err error) {
		to, prints := from, make([]hot.Print, 0, part.Most)
		visit := func(id uint64, m pipeline.Member, _ int64) { // the next part may have others with the last one's first word
			to, prints = hot.Pair{A: id, B: m.A}, append(prints, hot.PrintOf(id, m))
		}
		switch {
		case column == shard.NoColumn:
			err = view.WalkEdges(&part, func(user, follower uint64) { visit(user, pipeline.Member{A: follower}, 0) })
		case w.schema.Columns[column].Set.Items > 0:
			err = view.WalkItems(column, &part, func(id uint64, i *shard.Item) {
				to = hot.Pair{A: id, B: run.Newest(uint64(i.Position))}
				if i.Identity.A != 0 {
					prints = append(prints, hot.PrintOf(id, i.Identity))
				}
			})
		default:
			err = view.WalkMembers(column, &part, visit)
		}
		if err != nil {
			return false, err
		}
		more := w.NoteMembers(column, prints, &shard.Stretch{From: from, To: to, End: part.Done})
		from = to
		return part.Done || !more, nil
	})
}

// Of what does not fit into memory, the newest runs. Which these are moves with
// every checkpoint and merge: nothing depends on where exactly they end.

// newest calls step for each part of so many of the newest runs.
func (w *warming) newest(runs, entries int, step func(view *cold.View, published uint64, part *cold.Part) (installed bool, err error)) error {
	part := cold.Part{Newest: runs, Most: max(entries, 1)}
	return w.each(func(view *cold.View, published uint64) (through bool, err error) {
		next := part
		installed, err := step(view, published, &next)
		if err == nil && installed {
			part = next
		}
		return part.Done, err
	})
}

func (w *warming) newestOutboxes(runs int) error {
	return w.newest(runs, w.o.Entries/ownerEntries, func(view *cold.View, published uint64, part *cold.Part) (bool, error) {
		want := shard.Want{Published: published}
		err := view.WalkAuthors(part, func(author uint64) { want.Authors = append(want.Authors, author) })
		return w.install(view, &want, err)
	})
}

func (w *warming) newestUsers(runs int) error {
	return w.newest(runs, w.o.Entries/ownerEntries, func(view *cold.View, published uint64, part *cold.Part) (bool, error) {
		want := shard.Want{Published: published}
		err := view.WalkUsers(part, func(user uint64) { want.Users = append(want.Users, user) })
		return w.install(view, &want, err)
	})
}

// install puts in owners with all there is of them.
func (w *warming) install(view *cold.View, want *shard.Want, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	want.Users, want.Authors = slices.Compact(want.Users), slices.Compact(want.Authors)
	l, err := load(view, want)
	return err == nil && w.Install(want, l), err
}

func (w *warming) newestRows(runs int) error {
	return w.newest(runs, w.o.Entries, func(view *cold.View, published uint64, part *cold.Part) (bool, error) {
		pieces, err := readPieces(view, part)
		if err != nil {
			return false, err
		}
		for _, p := range pieces {
			if !w.InstallCounter(published, p.counter, p.ids, p.cells, nil) {
				return false, nil
			}
		}
		return true, nil
	})
}
