package cold

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// setSpec is spec, with a set in some columns.
func setSpec(t interface{ Fatal(...any) }, sets map[string]pipeline.SetSpec, lines ...string) *pipeline.Schema {
	s := spec(t, lines...)
	var names []string
	for _, c := range s.Counters {
		names = append(names, c.Name)
	}
	columns := slices.Clone(s.Columns)
	for name, set := range sets {
		column, ok := s.Find(name)
		if !ok {
			t.Fatal("no column " + name)
		}
		columns[column].Set = set
	}
	s, err := pipeline.NewSchema(names, columns)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openSchema(t *testing.T, dir string, schema *pipeline.Schema) *Store {
	t.Helper()
	s, err := Open(dir, schema, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// column finds one by its full name.
func column(t *testing.T, s *Store, name string) pipeline.Column {
	t.Helper()
	c, ok := s.Schema().Find(name)
	if !ok {
		t.Fatal("no column " + name)
	}
	return c
}

// members lists what the set of a column has of an id.
func members(t *testing.T, s *Store, name string, id uint64) (all []string) {
	t.Helper()
	v := s.Stack(pipeline.ShardOf(id, s.meta.Shards)).View()
	defer v.Close()
	err := v.Members(column(t, s, name), id, pipeline.Member{}, func(m pipeline.Member, second int64) bool {
		all = append(all, fmt.Sprint(m.A, " ", m.B, " ", second))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	ofIDs   = pipeline.SetSpec{Members: pipeline.MembersIDs}
	ofPairs = pipeline.SetSpec{Members: pipeline.MembersPairs}
)

// A set keeps its number and its members, whatever the
// configuration says in between, and is no counter.
func TestSetNumbers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "post: like")
	write(t, s, "post", 7, 1)
	closeStore(t, s)

	with := setSpec(t, map[string]pipeline.SetSpec{"post.like": ofIDs, "user.liked": ofPairs}, "post: like", "user: liked")
	s = openSchema(t, dir, with)
	const id = 7
	checkpoint(t, s, pipeline.ShardOf(id, 4), 8, func(to Sink) {
		to.Member(column(t, s, "post.like"), id, pipeline.Member{A: 5}, 0, true)
		to.Member(column(t, s, "user.liked"), id, pipeline.Member{A: 5, B: 9}, 0, true)
	})
	want := Dictionary{{"post", []string{"like"}}, {"user", []string{"liked"}}, {"post.like", nil}, {"user.liked", nil}}
	if got := s.Meta(); fmt.Sprint(got.Dictionary) != fmt.Sprint(want) {
		t.Fatalf("with sets: %+v", got)
	}
	closeStore(t, s)

	s = open(t, dir, "page: hit")
	if got := s.Meta(); len(s.Schema().Counters) != 3 || got.Dictionary.find("page") != 4 {
		t.Fatalf("by a configuration without sets: %+v, %+v", s.Schema().Counters, got)
	}
	write(t, s, "page", 7, 2)
	if got := scanned(t, s); !maps.Equal(got, cells{"post.like 7": 1, "page.hit 7": 2}) {
		t.Fatalf("the rows are %v", got)
	}
	closeStore(t, s)

	s = openSchema(t, dir, with)
	defer closeStore(t, s)
	if likes, liked := members(t, s, "post.like", id), members(t, s, "user.liked", id); fmt.Sprint(likes, liked) != "[5 0 0] [5 9 0]" {
		t.Fatalf("the members are %v and %v", likes, liked)
	}
}

// A shard with sets goes to a store that numbers them alike, and to no other.
func TestSetsMove(t *testing.T) {
	schema := setSpec(t, map[string]pipeline.SetSpec{"post.like": ofIDs}, "post: like")
	from := openSchema(t, t.TempDir(), schema)
	defer closeStore(t, from)
	id := uint64(1)
	for pipeline.ShardOf(id, 4) != 1 {
		id++
	}
	checkpoint(t, from, 1, 8, func(to Sink) { to.Member(0, id, pipeline.Member{A: 5}, 0, true) })
	e := export(t, from, 1)

	for _, lines := range [][]string{{"post: like"}, {"post: like", "user: seen"}} { // it has no number there, or another
		to := open(t, t.TempDir(), lines...)
		i := beginImport(t, to, 1)
		if err := i.Copy(bg, e); !errors.Is(err, ErrDictionary) {
			t.Errorf("into a store of %v: %v", lines, err)
		}
		i.Close()
		closeStore(t, to)
	}
	to := openSchema(t, t.TempDir(), setSpec(t, map[string]pipeline.SetSpec{"post.like": ofIDs, "user.seen": ofIDs}, "user: seen", "post: like"))
	defer closeStore(t, to)
	if err := to.Adopt(from.Meta().Dictionary); err != nil {
		t.Fatal(err)
	}
	imported(t, to, e)
	if got := members(t, to, "post.like", id); fmt.Sprint(got) != "[5 0 0]" {
		t.Errorf("%v", got)
	}
}

// A mark counts from wherever a walk or a listing goes on within a set.
func TestMarkBeforeAPart(t *testing.T) {
	s := openSchema(t, t.TempDir(), setSpec(t, map[string]pipeline.SetSpec{"post.like": ofIDs}, "post: like"))
	defer closeStore(t, s)
	const id = 7
	shard := pipeline.ShardOf(id, 4)
	add := func(at pipeline.Position, from, to uint64, before func(Sink)) {
		checkpoint(t, s, shard, at, func(sink Sink) {
			before(sink)
			for m := from; m < to; m++ {
				sink.Member(0, id, pipeline.Member{A: m}, 0, true)
			}
		})
	}
	add(1, 1, 5000, func(Sink) {})
	add(2, 3000, 3010, func(to Sink) { to.Empty(0, id) })
	v := s.Stack(shard).View()
	defer v.Close()
	var walked, listed []uint64
	for part := (Part{Most: 4}); !part.Done; {
		if err := v.WalkMembers(0, &part, func(_ uint64, m pipeline.Member, _ int64) { walked = append(walked, m.A) }); err != nil {
			t.Fatal(err)
		}
	}
	err := v.Members(0, id, pipeline.Member{A: 3004}, func(m pipeline.Member, _ int64) bool {
		listed = append(listed, m.A)
		return true
	})
	if fmt.Sprint(walked) != "[3000 3001 3002 3003 3004 3005 3006 3007 3008 3009]" || fmt.Sprint(listed) != "[3005 3006 3007 3008 3009]" || err != nil {
		t.Fatalf("walked %v, listed %v, %v", walked, listed, err)
	}
	for m, want := range map[uint64]bool{2999: false, 3000: true, 3010: false} {
		if _, there, err := v.Member(0, id, pipeline.Member{A: m}); there != want || err != nil {
			t.Errorf("%d is there: %v, %v", m, there, err)
		}
	}
	// The highest member there can be is the last.
	if err := v.Members(0, id, pipeline.Member{A: math.MaxUint64}, func(m pipeline.Member, _ int64) bool {
		t.Errorf("%v is above all", m)
		return false
	}); err != nil {
		t.Fatal(err)
	}
}

// Members are sorted as the library's stable sort does.
func TestSortMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	g := new(gather)
	for range 2000 {
		wide := []uint64{1, 3, 256, 70_000, 1<<64 - 1}
		a, b, c := wide[r.IntN(len(wide))], wide[r.IntN(len(wide))], wide[r.IntN(len(wide))]
		all := make([]member, 1+r.IntN(50))
		for i := range all {
			all[i] = member{entry{r.Uint64N(a), r.Uint64N(b), uint64(i)}, r.Uint64N(c)}
		}
		want := slices.Clone(all)
		slices.SortStableFunc(want, func(x, y member) int {
			return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.c, y.c))
		})
		var got []member
		for _, at := range g.sort(all) {
			got = append(got, all[at.where])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// A value of a member that cannot be read is an error of every read of it, and names the
// block.
func TestDamagedSecond(t *testing.T) {
	kept := pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: 10}
	s := openSchema(t, t.TempDir(), setSpec(t, map[string]pipeline.SetSpec{"post.view": kept}, "post: view"))
	defer closeStore(t, s)
	const id = 7
	shard := pipeline.ShardOf(id, 4)
	checkpoint(t, s, shard, 1, func(to Sink) {
		g := to.(*gather)
		g.sets[0] = append(g.sets[0], member{entry{id, 5, g.put(false, math.MaxUint64)}, 0})
	})
	v := s.Stack(shard).View()
	defer v.Close()
	visit := func(pipeline.Member, int64) bool { return true }
	_, _, err := v.Member(0, id, pipeline.Member{A: 5})
	for _, err := range []error{
		err,
		v.Members(0, id, pipeline.Member{}, visit),
		v.WalkMembers(0, &Part{}, func(uint64, pipeline.Member, int64) {}),
	} {
		var damage *run.Damage
		if !isCorrupt(err) || !errors.As(err, &damage) {
			t.Errorf("%v", err)
		}
	}
}
