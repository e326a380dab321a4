package check

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// Each explanation that runs is counted, and there are only so many at a time as there is
// memory for; one may always run.
func TestRoom(t *testing.T) {
	bytes := 2*SearchBytes + 1
	x := NewExplainer(ExplainOptions{Room: func() int { return bytes }})
	for range 2 {
		if err := x.room.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.Bytes(); got != 2*SearchBytes {
		t.Errorf("they hold %d bytes", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := x.room.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third one: %v", err)
	}
	entered := make(chan error, 2)
	for range 2 {
		go func() { entered <- x.room.enter(t.Context()) }()
	}
	for range 2 { // each that ends makes room for one
		x.room.leave()
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		if got := x.Bytes(); got > 2*SearchBytes {
			t.Errorf("they hold %d bytes", got)
		}
	}
	x.room.leave()
	x.room.leave()
	if bytes = 0; x.room.enter(t.Context()) != nil || x.Bytes() != SearchBytes {
		t.Error("one alone has to wait")
	}
}

// Who came first goes on first; who gives up takes nobody's turn.
func TestRoomInOrder(t *testing.T) {
	x := NewExplainer(ExplainOptions{Room: func() int { return SearchBytes }})
	if err := x.room.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		x.room.mu.Lock()
		defer x.room.mu.Unlock()
		return len(x.room.waiting)
	}
	const all, gone = 20, 7
	entered, gaveUp := make(chan int), make(chan error)
	ctx, giveUp := context.WithCancel(t.Context())
	for i := range all {
		go func() {
			of := t.Context()
			if i == gone {
				of = ctx
			}
			if err := x.room.enter(of); err != nil {
				gaveUp <- err
				return
			}
			entered <- i
		}()
		e2e.Until(t, "it waits", func() bool { return waiting() == i+1 })
	}
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) || waiting() != all-1 {
		t.Fatalf("%v, and %d wait", err, waiting())
	}
	for i := range all {
		if i == gone {
			continue
		}
		x.room.leave()
		if got := <-entered; got != i {
			t.Fatalf("number %d goes on, not %d", got, i)
		}
	}
	if x.room.leave(); x.Bytes() != 0 {
		t.Errorf("they hold %d bytes", x.Bytes())
	}
}
