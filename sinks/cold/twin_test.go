package cold_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// model is what a shard holds, by maps: a row's cells, or an entry's numbers.
type model map[run.Key][4]int64

func (m model) clone() model { return maps.Clone(m) }

// under are the keys of a kind, and of an owner (0: all), in order.
func (m model) under(kind run.Kind, owner uint64) (keys []run.Key) {
	for k := range m {
		if k.Kind == kind && (owner == 0 || k.A == owner) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b run.Key) int { return a.Compare(&b) })
	return keys
}

const (
	twinShards = 2
	twinUsers  = 12 // ids of everything: small, so that keys come again
)

var twinColumns = []int{3, 1, 4}

// twinSets are the columns of page, with a set of each kind that runs have.
var twinSets = []pipeline.SetSpec{
	{Members: pipeline.MembersIDs},
	{Members: pipeline.MembersPairs},
	{Members: pipeline.MembersIDs, Keep: twinKeep},
	{Members: pipeline.MembersTokens, Keep: twinKeep},
}

const (
	twinSetsFirst = 4 // column, in the schema
	twinKeep      = 5
)

// twinState is that of a shard that has come so far.
func twinState(at pipeline.Position) cold.State {
	return cold.State{Applied: at, Sequence: uint64(at), Time: int64(at) * 1000}
}

// twinStore is a store beside its models.
type twinStore struct {
	t       *testing.T
	r       *rand.Rand
	store   *cold.Store
	holds   [twinShards + 1]model // published
	pending [twinShards + 1]model // committed; nil: the same
	applied [twinShards + 1]pipeline.Position
	horizon pipeline.Position
	views   []twinView
}

type twinView struct {
	view  *cold.View
	model model
	says  string
	shard int
}

// twinMember is the key of a member of one of twinSets.
func twinMember(set int, id uint64, m pipeline.Member) run.Key {
	k := run.Key{Kind: run.Kept, Counter: uint8(len(twinColumns) + set), A: id, B: m.A, C: m.B}
	if twinSets[set].Keep == 0 {
		k.Kind = run.Member
		if twinSets[set].Wide() {
			k.Kind = run.Pair
		}
	}
	return k
}

func (w *twinStore) id() uint64 { return 1 + w.r.Uint64N(twinUsers) }

func (w *twinStore) delta() pipeline.Delta {
	n := w.r.Int64N(50)
	return []pipeline.Delta{pipeline.Identity, pipeline.Add(n - 20), pipeline.Set(n % 3), pipeline.Take(n), pipeline.Add(n).Then(pipeline.Take(10))}[w.r.IntN(5)]
}

// change hands something over, and returns what it makes of the model.
func (w *twinStore) change(to cold.Sink) (key run.Key, then func(was [4]int64) (is [4]int64, gone bool)) {
	a, b, position := w.id(), w.id(), pipeline.Position(1+w.r.Uint64N(200))
	name, there := fmt.Sprint("c", b%3), w.r.IntN(3) > 0
	if !there {
		position = 0
	}
	set := func(numbers ...int64) func([4]int64) ([4]int64, bool) {
		return func([4]int64) (is [4]int64, gone bool) {
			copy(is[:], numbers)
			return is, !there
		}
	}
	switch kind := run.Kind(1 + w.r.IntN(int(run.Kept))); kind {
	case run.Row:
		counter := w.r.IntN(len(twinColumns))
		key = run.Key{Kind: kind, Counter: uint8(counter), A: a}
		columns := twinColumns[counter]
		if there {
			deltas := make([]pipeline.Delta, columns)
			for i := range deltas {
				deltas[i] = w.delta()
			}
			to.Change(counter, a, deltas)
			return key, func(was [4]int64) (is [4]int64, gone bool) {
				for i, d := range deltas {
					is[i] = d.Apply(was[i])
				}
				return is, is == [4]int64{}
			}
		}
		var row [4]int64
		for i := range columns {
			row[i] = w.r.Int64N(4) * w.r.Int64N(1000)
		}
		to.Row(counter, a, row[:columns])
		return key, func([4]int64) ([4]int64, bool) { return row, row == [4]int64{} }
	case run.Following:
		to.Following(a, b, position)
		return run.Key{Kind: kind, A: a, B: b}, set(int64(position))
	case run.Follower:
		to.Follower(a, b, there)
		return run.Key{Kind: kind, A: a, B: b}, set()
	case run.Post:
		at := pipeline.Position(1 + w.r.Uint64N(30))
		to.Post(a, at, uint64(position))
		return run.Key{Kind: kind, A: a, B: uint64(at)}, set(int64(position))
	case run.Marks:
		there = true
		to.Marks(a, [4]uint64{1, uint64(position), 3, b})
		return run.Key{Kind: kind, A: a}, set(1, int64(position), 3, int64(b))
	case run.Cursor:
		there = true
		to.Cursor(a, name, position)
		return run.Key{Kind: kind, A: a, Name: name}, set(int64(position))
	case run.Notice:
		to.Notice(name, a, position)
		return run.Key{Kind: kind, A: a, Name: name}, set(int64(position))
	case run.Member, run.Pair, run.Kept:
		number := w.r.IntN(len(twinSets))
		column := pipeline.Column(twinSetsFirst + number)
		if w.r.IntN(6) == 0 {
			to.Empty(column, a)
			there = false
			return twinMember(number, a, pipeline.Member{}), set()
		}
		m, second := pipeline.Member{A: b}, w.r.Int64N(60)
		if twinSets[number].Wide() {
			m.B = w.r.Uint64N(3)
		}
		to.Member(column, a, m, second, there)
		if twinSets[number].Keep == 0 {
			second = 0
		}
		return twinMember(number, a, m), set(second)
	default:
		to.Second(int64(a), position)
		return run.Key{Kind: run.Second, A: a}, set(int64(position))
	}
}

func (w *twinStore) checkpoint() {
	c := w.store.Begin()
	discard := w.r.IntN(5) == 0
	for i := range w.holds {
		if w.r.IntN(2) == 0 {
			continue
		}
		is := w.pending[i]
		if is == nil {
			is = w.holds[i]
		}
		next, last := is.clone(), map[run.Key]func([4]int64) ([4]int64, bool){}
		to := c.Shard(pipeline.Shard(i))
		for range w.r.IntN(40) {
			key, then := w.change(to)
			last[key] = then // of what comes twice for one key the last counts
		}
		for key := range last {
			if key.IsMark() { // also of what came before it in this checkpoint, the members came later
				maps.DeleteFunc(next, func(k run.Key, _ [4]int64) bool { return k.Emptied() == key })
			}
		}
		for key, then := range last {
			var gone bool
			if next[key], gone = then(next[key]); gone {
				delete(next, key)
			}
		}
		at := w.applied[i] + pipeline.Position(w.r.IntN(3))
		to.State(twinState(at))
		if !discard {
			w.pending[i], w.applied[i] = next, at
		}
	}
	if discard {
		c.Discard()
	} else if err := c.Commit(); err != nil {
		w.t.Fatal(err)
	}
	if w.r.IntN(3) > 0 {
		w.publish()
	}
}

func (w *twinStore) publish() {
	for i, m := range w.pending {
		if m != nil {
			w.store.Stack(pipeline.Shard(i)).Publish()
			w.holds[i], w.pending[i] = m, nil
		}
	}
}

func (w *twinStore) look(says string) twinView {
	i := w.r.IntN(len(w.holds))
	return twinView{w.store.Stack(pipeline.Shard(i)).View(), w.holds[i], fmt.Sprintf("%s shard %d", says, i), i}
}

// step does one thing.
func (w *twinStore) step(n int) {
	switch w.r.IntN(8) {
	case 0, 1, 2:
		w.checkpoint()
	case 3:
		w.publish()
	case 4, 5:
		if _, err := w.store.MergeOnce(); err != nil {
			w.t.Fatal(err)
		}
	case 6:
		if len(w.views) < 4 {
			w.views = append(w.views, w.look(fmt.Sprintf("view of step %d,", n)))
			return
		}
		w.compare(w.views[0])
		w.views[0].view.Close()
		w.views = w.views[1:]
	default:
		if w.r.IntN(4) == 0 {
			w.horizon += pipeline.Position(w.r.IntN(2))
			for i := range w.holds {
				w.store.Stack(pipeline.Shard(i)).SetHorizon(w.horizon)
			}
		}
		v := w.look(fmt.Sprintf("step %d,", n))
		w.compare(v)
		v.view.Close()
	}
}

// started is what a new life of the store finds.
func (w *twinStore) started() {
	w.views = nil
	for i, m := range w.pending {
		if m != nil {
			w.holds[i], w.pending[i] = m, nil
		}
		state, err := w.store.Stack(pipeline.Shard(i)).State()
		if want := twinState(w.applied[i]); err != nil || state != want {
			w.t.Fatalf("shard %d stands at %+v, %v; it was %+v", i, state, err, want)
		}
		w.store.Stack(pipeline.Shard(i)).SetHorizon(w.horizon)
	}
}

func (w *twinStore) stepFew() {
	for n := range 5 + w.r.IntN(60) {
		w.step(n)
	}
}

// What a store holds, whatever was checkpointed, published, merged, and begun
// again, is what a map holds; a view is as of when it was made.
func TestStoreTwin(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			seeds := 15
			if name == "badger" {
				seeds = 3
			} else if testing.Short() {
				seeds = 6
			}
			for seed := range seeds {
				r := rand.New(rand.NewPCG(uint64(seed), 3))
				engine := open(t)
				w := &twinStore{t: t, r: r}
				for i := range w.holds {
					w.holds[i] = model{}
				}
				for range 6 {
					e := engine()
					store, err := cold.OpenOn(e, twinSchema(t), twinShards, "n")
					if err != nil {
						t.Fatal(err)
					}
					w.store = store
					store.OpenAtMost(1 + r.IntN(20))
					w.started()
					w.stepFew()
					for _, v := range w.views {
						w.compare(v)
						v.view.Close()
					}
					if name == "badger" || r.IntN(2) == 0 { // else it is cut off
						if err := store.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func twinSchema(t *testing.T) *pipeline.Schema {
	var columns []pipeline.ColumnSpec
	for i, n := range twinColumns {
		for j := range n {
			c := pipeline.ColumnSpec{Counter: i, Name: fmt.Sprint("col", j), Bits: 16, Max: 63}
			if set := len(columns) - twinSetsFirst; set >= 0 {
				c.Set = twinSets[set]
			}
			columns = append(columns, c)
		}
	}
	s, err := pipeline.NewSchema([]string{"post", "user", "page"}, columns)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compare reads all there is in each way there is.
func (w *twinStore) compare(v twinView) {
	w.t.Helper()
	check := func(what string, err error, got, want []string) {
		w.t.Helper()
		if err != nil {
			w.t.Fatalf("%s, %s: %v", v.says, what, err)
		}
		if !slices.Equal(got, want) {
			w.t.Fatalf("%s, %s:\n%v, want\n%v", v.says, what, got, want)
		}
	}
	say := func(x ...any) string { return fmt.Sprint(x...) }
	list := func(keys []run.Key, say func(k run.Key, n [4]int64) string) (all []string) {
		for _, k := range keys {
			if k.Kind == run.Post && k.B < uint64(w.horizon) {
				continue
			}
			if s := say(k, v.model[k]); len(all) == 0 || all[len(all)-1] != s {
				all = append(all, s)
			}
		}
		return all
	}
	var ids []uint64
	for id := uint64(1); id <= twinUsers+2; id++ {
		if w.r.IntN(4) > 0 {
			ids = append(ids, id)
		}
	}
	var got, want []string
	for counter, columns := range twinColumns {
		cells := make([]int64, columns*len(ids))
		err := v.view.Rows(counter, ids, cells)
		got, want = nil, nil
		for i, id := range ids {
			row := v.model[run.Key{Kind: run.Row, Counter: uint8(counter), A: id}]
			got, want = append(got, say(id, cells[i*columns:(i+1)*columns])), append(want, say(id, row[:columns]))
		}
		check("Rows", err, got, want)
	}
	walk := func(walk func(*cold.Part) error) (err error) {
		part := cold.Part{Most: 1 + w.r.IntN(8)}
		for got = nil; err == nil && !part.Done; {
			err = walk(&part)
		}
		return err
	}
	err := walk(func(p *cold.Part) error {
		return v.view.WalkRows(p, func(counter int, id uint64, cells []int64) error {
			got = append(got, say(counter, id, cells))
			return nil
		})
	})
	check("WalkRows", err, got, list(v.model.under(run.Row, 0), func(k run.Key, n [4]int64) string { return say(int(k.Counter), k.A, n[:twinColumns[k.Counter]]) }))
	owner := func(k run.Key, _ [4]int64) string { return say(k.A) }
	err = walk(func(p *cold.Part) error { return v.view.WalkUsers(p, func(u uint64) { got = append(got, say(u)) }) })
	check("WalkUsers", err, got, list(v.model.under(run.Marks, 0), owner))
	if w.horizon == 0 {
		err = walk(func(p *cold.Part) error { return v.view.WalkAuthors(p, func(u uint64) { got = append(got, say(u)) }) })
		check("WalkAuthors", err, got, list(v.model.under(run.Post, 0), owner))
	}
	pair := func(k run.Key, _ [4]int64) string { return say(k.A, k.B) }
	err = walk(func(p *cold.Part) error {
		return v.view.WalkEdges(p, func(u, f uint64) { got = append(got, say(u, f)) })
	})
	check("WalkEdges", err, got, list(v.model.under(run.Follower, 0), pair))
	numbers := func(k run.Key, n [4]int64) string { return say(k.A, k.B, k.Name, n) }
	one := func(a, b uint64, name string, n uint64) { got = append(got, say(a, b, name, [4]int64{int64(n)})) }
	got = nil
	err = v.view.Notices(func(channel string, n uint64, p pipeline.Position) { one(n, 0, channel, uint64(p)) })
	check("Notices", err, got, list(v.model.under(run.Notice, 0), numbers))
	got = nil
	err = v.view.Seconds(func(s int64, p pipeline.Position) { one(uint64(s), 0, "", uint64(p)) })
	check("Seconds", err, got, list(v.model.under(run.Second, 0), numbers))

	var followings, marks, cursors []string
	for r := (cold.Range{Most: 1 + w.r.IntN(5)}); r.To != math.MaxUint64; r.From = r.To {
		err = v.view.UserRange(&r, func(u, f uint64, p pipeline.Position) {
			followings = append(followings, say(u, f, "", [4]int64{int64(p)}))
		}, func(u uint64, m [4]uint64) { marks = append(marks, say(u, uint64(0), "", m)) }, func(u uint64, c string, p pipeline.Position) {
			cursors = append(cursors, say(u, uint64(0), c, [4]int64{int64(p)}))
		})
		check("UserRange", err, nil, nil)
	}
	check("UserRange", nil, followings, list(v.model.under(run.Following, 0), numbers))
	check("UserRange", nil, marks, list(v.model.under(run.Marks, 0), numbers))
	check("UserRange", nil, cursors, list(v.model.under(run.Cursor, 0), numbers))
	got = nil
	for r := (cold.Range{Most: 1 + w.r.IntN(5)}); r.To != math.MaxUint64; r.From = r.To {
		err = v.view.PostRange(&r, func(u uint64, p pipeline.Position, post uint64) {
			if p >= w.horizon {
				one(u, uint64(p), "", post)
			}
		})
		check("PostRange", err, nil, nil)
	}
	check("PostRange", nil, got, list(v.model.under(run.Post, 0), numbers))

	w.compareSets(v, check)

	var froms []cold.From
	for _, id := range ids {
		froms = append(froms, cold.From{Author: id, Position: w.horizon + pipeline.Position(w.r.Uint64N(20))})
	}
	got, want = nil, nil
	err = v.view.Posts(froms, func(i int, p pipeline.Position, post uint64) { one(froms[i].Author, uint64(p), "", post) })
	for _, f := range froms {
		keys := slices.DeleteFunc(v.model.under(run.Post, f.Author), func(k run.Key) bool { return k.B < uint64(f.Position) })
		want = append(want, list(keys, numbers)...)
	}
	check("Posts", err, got, want)

	for _, id := range ids {
		got = nil
		err = v.view.Following(id, 0, func(f uint64, p pipeline.Position) bool {
			one(id, f, "", uint64(p))
			return true
		})
		check("Following", err, got, list(v.model.under(run.Following, id), numbers))
		after, most := w.r.Uint64N(twinUsers), 1+w.r.IntN(5)
		got = nil
		err = v.view.Following(id, after, func(f uint64, p pipeline.Position) bool {
			one(id, f, "", uint64(p))
			return len(got) < most
		})
		followees := slices.DeleteFunc(v.model.under(run.Following, id), func(k run.Key) bool { return k.B <= after })
		check("Following", err, got, list(followees[:min(most, len(followees))], numbers))
		got = nil
		err = v.view.Followers(id, after, func(f uint64) bool {
			got = append(got, say(id, f))
			return len(got) < most
		})
		keys := slices.DeleteFunc(v.model.under(run.Follower, id), func(k run.Key) bool { return k.B <= after })
		check("Followers", err, got, list(keys[:min(len(keys), most)], pair))
		got = nil
		err = v.view.Cursors(id, func(c string, p pipeline.Position) { one(id, 0, c, uint64(p)) })
		check("Cursors", err, got, list(v.model.under(run.Cursor, id), numbers))
		m, err := v.view.Marks(id)
		check("Marks", err, []string{say(m)}, []string{say(v.model[run.Key{Kind: run.Marks, A: id}])})
		other := w.id()
		_, follows := v.model[run.Key{Kind: run.Following, A: id, B: other}]
		is, err := v.view.Follows(id, other)
		check("Follows", err, []string{say(is)}, []string{say(follows)})
		_, followed := v.model[run.Key{Kind: run.Follower, A: id, B: other}]
		is, err = v.view.Followed(id, other)
		check("Followed", err, []string{say(is)}, []string{say(followed)})
	}
}
