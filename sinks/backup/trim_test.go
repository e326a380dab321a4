package backup

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// docs/contract.md: "only below the newest verified backup": where a number came again,
// after a record was lost, a backup of the other generation with that number is none of
// what serves; nor is one of another EVENTS.
func TestTrimByAnotherGeneration(t *testing.T) {
	events := time.Unix(1, 0).UTC()
	served, err := generation.Start(json.RawMessage(`{"by":"other rules"}`))
	if err != nil {
		t.Fatal(err)
	}
	serves, err := generation.Start(json.RawMessage(`{"by":"these rules"}`))
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{ID: "x", Events: events, Generations: served, From: pipeline.EndOf(7)}
	trim := Trim{Below: 100}
	if err := trim.To(m, "here", served, events); err != nil || trim.Below != 8 {
		t.Errorf("below %d: %v", trim.Below, err)
	}
	trim = Trim{Below: 100}
	if err := trim.To(m, "here", serves, events); err == nil || !strings.Contains(err.Error(), "is of another generation 1") {
		t.Errorf("below %d: %v", trim.Below, err)
	}
	if err := trim.To(m, "here", served, events.Add(time.Second)); !errors.Is(err, ErrForeign) || trim.Below != 100 {
		t.Errorf("by a backup of another EVENTS, below %d: %v", trim.Below, err)
	}
}
