package main

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// call asks once and waits for the answer; r draws what is asked.
type call func(ctx context.Context, r *rand.Rand) error

// tally is what came of calls.
type tally struct {
	perSecond float64
	took      sample // of each, in milliseconds
}

// callFor has so many callers call for a while, each one call after the other
// on a connection of its own. The clock starts when all are connected and have
// called once.
func callFor(ctx context.Context, callers int, during time.Duration, connect func() (call, io.Closer, error)) (tally, error) {
	calls := make([]call, callers)
	for n := range calls {
		one, connection, err := connect()
		if err != nil {
			return tally{}, err
		}
		defer connection.Close()
		if err := one(ctx, rand.New(rand.NewPCG(uint64(n), 0))); err != nil {
			return tally{}, err
		}
		calls[n] = one
	}
	took := make([]sample, callers)
	work, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	until := begun.Add(during)
	for n, one := range calls {
		work.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			for last := time.Now(); last.Before(until); {
				if err := one(ctx, r); err != nil {
					return err
				}
				now := time.Now()
				took[n] = append(took[n], now.Sub(last).Seconds()*1000)
				last = now
			}
			return nil
		})
	}
	err := work.Wait()
	all := slices.Concat(took...)
	return tally{float64(len(all)) / time.Since(begun).Seconds(), all}, err
}

// pace calls at fixed times, whatever becomes of those before, and gives how
// long each took from when it was due, in milliseconds. Calls may run at once.
func pace(ctx context.Context, perSecond int, during time.Duration, one func(ctx context.Context, i int, seed uint64) error) (took sample, err error) {
	r := rand.New(rand.NewPCG(1, 9))
	work, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	begun := time.Now()
	for i := range int(during.Seconds() * float64(perSecond)) {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		seed := r.Uint64()
		time.Sleep(time.Until(due))
		work.Go(func() error {
			if err := one(ctx, i, seed); err != nil {
				return err
			}
			ms := time.Since(due).Seconds() * 1000
			mu.Lock()
			defer mu.Unlock()
			took = append(took, ms)
			return nil
		})
	}
	err = work.Wait()
	return took, err
}
