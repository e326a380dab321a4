package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// keeper notes what it is given, or fails.
type keeper struct {
	kept []pipeline.Position
	err  error
}

func (k *keeper) Keep(_ context.Context, letters []pipeline.DeadLetter) error {
	for _, l := range letters {
		k.kept = append(k.kept, l.Position)
	}
	return k.err
}

// "only the serving generation stores them; one that comes to serve stores those behind
// Letters, which is how far the one before had routed at the switch."
func TestLetterGate(t *testing.T) {
	var k keeper
	g := pipeline.NewLetterGate(&k)
	keep := func(want string, positions ...pipeline.Position) {
		t.Helper()
		k.kept = nil
		var letters []pipeline.DeadLetter
		for _, p := range positions {
			letters = append(letters, pipeline.DeadLetter{Position: p})
		}
		if err := g.Keep(t.Context(), letters); !errors.Is(err, k.err) || err != nil && len(k.kept) == 0 {
			t.Errorf("Keep: %v", err)
		}
		if got := fmt.Sprint(k.kept); got != want {
			t.Errorf("of %v were kept %s, want %s", positions, got, want)
		}
		for i, p := range positions {
			if letters[i].Position != p {
				t.Errorf("the letters themselves were changed: %v", letters)
			}
		}
	}
	keep("[]", 1, 2) // shut, as it begins
	g.Open(0)
	keep("[1 2]", 1, 2)
	keep("[]")
	g.Open(4)
	keep("[5 9 7]", 3, 5, 4, 9, 7, 1)
	keep("[]", 3, 4)
	keep("[5]", 5)
	k.err = errors.New("the stream is full")
	keep("[6]", 6)
	k.err = nil
	g.Shut()
	keep("[]", 10)
}

// "switched at run time from any goroutine": of a call all letters behind one position
// are kept, or none. The race detector looks on.
func TestLetterGateWhileItIsSwitched(t *testing.T) {
	var k keeper
	g := pipeline.NewLetterGate(&k)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			g.Open(pipeline.Position(i % 2))
			g.Shut()
		}
	}()
	letters := []pipeline.DeadLetter{{Position: 1}, {Position: 2}}
	for range 1000 {
		k.kept = nil
		if err := g.Keep(t.Context(), letters); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(k.kept); got != "[]" && got != "[1 2]" && got != "[2]" {
			t.Fatalf("kept %s", got)
		}
	}
	<-done
}
