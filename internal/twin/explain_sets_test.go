package twin

import (
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/explain"
)

// docs/contract.md: "The events behind the number, newest first, what each changed,
// paged; their sum is the number": also where events count once, and a second one changes
// nothing; for ever, and for ten minutes; with rows deleted, and with filters of the whole
// log, some of them damaged, and none.
func TestExplainSets(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./internal/twin -run TestExplainSets -seed=%d", seed)
	logs := 24
	if testing.Short() {
		logs = 12
	}
	for number := range logs {
		defaults := map[string]int64(nil)
		if number%2 == 1 {
			defaults = map[string]int64{"user.liked": 9, "post.comment": 2, "page.view": 5}
		}
		explainSets(t, seed, number, defaults)
	}
}

// explainSets explains what four groups of people do in one log; none knows another.
func explainSets(t *testing.T, seed uint64, number int, defaults map[string]int64) {
	set := setup{shards: 1, ages: agesOf(5, 3600, 7200), defaults: defaults}
	set.ages.once = true
	w, err := newLog(set)
	if err != nil {
		t.Fatal(err)
	}
	c := Configuration()
	withSets(c, true)
	program, err := operators.Compile(w.schema, c.Rules(), 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := chances(seed, number)
	var all []past
	for i := range 4 {
		g := newGenerator(r, i)
		g.once, g.users, g.posts = true, g.users[:3], g.posts[:2]
		g.weights = weights{kindComment: 3, kindLike: 10, kindAdjust: 2, kindView: 10}
		// Times do not go back: an explanation knows those of the events that it reads alone.
		g.pace = [][]int64{{0, 1_000}, {0, 60_000, 300_000}, {0, 1_000, 299_000, 600_000, 601_000}}[r.IntN(3)]
		all = append(all, past{g.sequence(), &model{ages: w.ages, defaults: defaults}})
	}
	left := [4][]message{}
	for i := range all {
		left[i] = all[i].messages
	}
	for run := 0; len(left[0])+len(left[1])+len(left[2])+len(left[3]) > 0; run++ { // now one, now another
		i := r.IntN(4)
		n := min(len(left[i]), r.IntN(12))
		w.note(left[i][:n], all[i].model)
		left[i] = left[i][n:]
	}
	log, dir := &listLog{messages: w.log, first: 1}, ""
	if number%3 > 0 {
		dir = t.TempDir()
	}
	x := explain.New(explain.Options{
		Schema: w.schema, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: log,
		Dir: dir, Upto: func() uint64 { return uint64(len(w.log)) }, Rate: 1 << 30, BytesMax: 1 << 30, Events: 3,
	})
	if err := x.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	if number%6 == 1 {
		damage(t, r, dir)
	}
	for _, p := range all {
		for _, a := range w.setNumbers(p) {
			if err := w.explained(t, r, x, p.model, a); err != nil {
				t.Fatalf("log %d, %s of %d, defaults %v: %v", number, a.name, a.id, defaults, err)
			}
		}
	}
}

// setNumbers are those that count in sets, or whose row is made by what does, and what they were after each event.
func (w *world) setNumbers(p past) (all []asked) {
	for name, ids := range map[string][]uint64{"post.like": p.posts, "post.comment": p.posts, "user.liked": p.users, "page.view": p.pages} {
		column, _ := w.schema.Find(name)
		for _, id := range ids {
			all = append(all, asked{column: column, name: name, id: id})
		}
	}
	note := func(_ *logged, c *counts) {
		for i := range all {
			a := &all[i]
			counter, column, _ := cutName(a.name)
			a.values = append(a.values, p.model.value(c, counter, column, a.id))
		}
	}
	note(nil, &counts{})
	p.model.countEach(note)
	return all
}
