package sinks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks"
)

func TestProgressWakesAtThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p sinks.Progress
		woken := make(chan error, 1)
		go func() { woken <- p.Wait(t.Context(), 10) }()
		p.Set(9)
		synctest.Wait()
		select {
		case err := <-woken:
			t.Fatalf("woken at 9: %v", err)
		default:
		}
		p.Set(10)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		p.Set(5)
		if p.Get() != 10 {
			t.Fatalf("went back to %d", p.Get())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Wait(ctx, 11); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a wait in vain gave %v", err)
		}
		if err := p.Wait(ctx, 10); err != nil {
			t.Fatalf("what is reached already gave %v", err)
		}
		if p.Waiters() != 0 {
			t.Fatalf("%d waiters are left", p.Waiters())
		}
	})
}

func TestProgressManyWaiters(t *testing.T) {
	var p sinks.Progress
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for n := range pipeline.Position(300) {
				ctx, cancel := context.WithCancel(t.Context())
				if i%4 == 3 { // gives up at about the moment it is woken
					go cancel()
				}
				err := p.Wait(ctx, n)
				cancel()
				if err == nil && p.Get() < n || err != nil && i%4 != 3 {
					t.Errorf("waited for %d: %v at %d", n, err, p.Get())
				}
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for n := range pipeline.Position(300) {
				p.Set(n)
			}
		})
	}
	work.Wait()
	if p.Waiters() != 0 {
		t.Errorf("%d waiters are left", p.Waiters())
	}
}
