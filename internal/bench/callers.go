package main

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

// call asks once and waits for the answer; r draws what is asked.
type call func(r *rand.Rand) error

// callFor has so many callers call for a while, each one call after the other on a
// connection of its own, and gives calls a second. The clock starts when all are connected
// and have called.
func callFor(callers int, during time.Duration, connect func() (one call, disconnect func())) (perSecond float64) {
	calls := make([]call, callers)
	for n := range calls {
		one, disconnect := connect()
		defer disconnect()
		r := rand.New(rand.NewPCG(uint64(n), 0))
		for range 3 { // the first are of a client that does not know the node yet
			check(one(r))
		}
		calls[n] = one
	}
	made := make([]int, callers)
	var work errgroup.Group
	begun := time.Now()
	for n, one := range calls {
		work.Go(func() error {
			for r := rand.New(rand.NewPCG(uint64(n), 1)); time.Since(begun) < during; made[n]++ {
				if err := one(r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check(work.Wait())
	sum := 0
	for _, n := range made {
		sum += n
	}
	return float64(sum) / time.Since(begun).Seconds()
}

// to is a caller by the Go client.
func to(url string, one func(*client.Client, *rand.Rand) error) func() (call, func()) {
	return func() (call, func()) {
		c := must(client.Connect(url))
		return func(r *rand.Rand) error { return one(c, r) }, c.Close
	}
}

// pace calls at fixed times, whatever becomes of those before, and gives how long each took
// from when it was due, in milliseconds. Calls may run at once.
func pace(perSecond int, during time.Duration, one func(i int, due time.Time, r *rand.Rand) error) (took sample) {
	var work errgroup.Group
	var mu sync.Mutex
	begun := time.Now()
	for i := range int(during.Seconds() * float64(perSecond)) {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(due))
		work.Go(func() error {
			if err := one(i, due, rand.New(rand.NewPCG(uint64(i), 9))); err != nil {
				return err
			}
			ms := time.Since(due).Seconds() * 1000
			mu.Lock()
			defer mu.Unlock()
			took = append(took, ms)
			return nil
		})
	}
	check(work.Wait())
	return slices.Clip(took)
}
