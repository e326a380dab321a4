package counting

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
)

// keeper notes what it is given, or fails.
type keeper struct {
	kept  []pipeline.Position
	begun int
	err   error
}

func (k *keeper) Begin() { k.begun++ }

func (k *keeper) Keep(_ context.Context, letters []pipeline.DeadLetter) error {
	for _, l := range letters {
		k.kept = append(k.kept, l.Position)
	}
	return k.err
}

// "Only the generation that serves stores dead letters"
func TestLetters(t *testing.T) {
	var k keeper
	l := new(letterGate).keepIn(&k)
	keep := func(want string, positions ...pipeline.Position) {
		t.Helper()
		k.kept = nil
		var letters []pipeline.DeadLetter
		for _, p := range positions {
			letters = append(letters, pipeline.DeadLetter{Position: p})
		}
		if err := l.Keep(t.Context(), letters); !errors.Is(err, k.err) || err != nil && len(k.kept) == 0 {
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
	keep("[]", 1, 2) // it does not serve, as it begins
	l.on()
	keep("[1 2]", 1, 2)
	keep("[]")
	keep("[3 5 4 9 7 1]", 3, 5, 4, 9, 7, 1)
	k.err = errors.New("the stream is full")
	keep("[6]", 6)
	k.err = nil
	l.off()
	keep("[]", 10)
	l.keep(true)
	keep("[11]", 11)
	l.keep(false)
	keep("[]", 12)

	// Each run of the router may derive letters again.
	for range 2 {
		_, _, end := l.routing(t.Context())
		end(nil)
	}
	if k.begun != 2 {
		t.Errorf("of 2 runs %d begin", k.begun)
	}
}

// It is switched at run time from any goroutine: of a call all letters are kept, or
// none. The race detector looks on.
func TestLettersWhileItIsSwitched(t *testing.T) {
	var k keeper
	l := new(letterGate).keepIn(&k)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			l.on()
			l.off()
		}
	}()
	letters := []pipeline.DeadLetter{{Position: 1}, {Position: 2}}
	for range 1000 {
		k.kept = nil
		if err := l.Keep(t.Context(), letters); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(k.kept); got != "[]" && got != "[1 2]" {
			t.Fatalf("kept %s", got)
		}
	}
	<-done
}
