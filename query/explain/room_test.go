package explain

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Each explanation that runs is counted, and there are only so many at a time as there is
// memory for; one may always run.
func TestRoom(t *testing.T) {
	bytes := 2*SearchBytes + 1
	x := New(Options{Room: func() int { return bytes }})
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
