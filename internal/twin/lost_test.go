package twin

import (
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// "Ages are measured in log time": after a power cut the windows of what was
// counted and is lost are derived again, from fillers that are younger (I10).
// Shards have them already; what they hold does not get younger by it.
func TestFillersDoNotMakeYounger(t *testing.T) {
	w, err := newWorld(t.TempDir(), setup{shards: 2, owners: 2, dirtyRowsMax: 5000, every: time.Hour, ages: agesOf(3, 3600, 7200)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	m, about := &model{ages: w.ages}, people{users: []uint64{ann, bob, cleo}}
	tell := func(step time.Duration, events ...event) {
		t.Helper()
		for _, e := range events {
			if err := w.publish([]message{{step: step.Milliseconds(), events: []event{e}}}, 0, m); err != nil {
				t.Fatal(err)
			}
			step = 0
		}
	}
	tell(0, follow(bob, ann))
	kept, end := len(w.log), w.end
	tell(time.Second, post(ann, 11), like(cleo, 99, dan))
	tell(time.Second, like(cleo, 99, dan))

	// The last three messages are lost; fillers stand there, ten seconds younger.
	var fillers []pipeline.Message
	for i := range 3 {
		fillers = append(fillers, pipeline.Message{
			Sequence: uint64(kept + i + 1), Time: w.clock + 10_000,
			Subject: "events.filler", Header: map[string][]string{"Tidemark-Filler": {"1"}},
		})
	}
	real, last := w.log, w.end
	w.end = end
	if err := w.derive(fillers, 0); err != nil {
		t.Fatal(err)
	}
	w.log = real
	if w.end != last {
		t.Fatalf("the fillers end at %d, what is lost at %d", w.end, last)
	}
	for _, step := range []time.Duration{11 * time.Second, 3587 * time.Second, time.Second, 2 * time.Second, 5 * time.Second, 5 * time.Second} {
		tell(step, like(cleo, 98, dan))
		if err := w.same(m, about, 2); err != nil {
			t.Fatalf("%v later: %v", step, err)
		}
	}
}
