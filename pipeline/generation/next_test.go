package generation_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// What the simulation does not have: EVENTS lacks what a rebuild needs. Nothing then goes on to
// be compared or switched to.
func TestNextWhereEventsLack(t *testing.T) {
	for stage, s := range stages(t) {
		is := s.Next(generation.Seen{Lacks: true, CaughtUp: true, Compared: true})
		if aborts := is == generation.StepAbort; aborts != (s.Building != 0) {
			t.Errorf("%s: %s is due", stage, is)
		}
	}
}
