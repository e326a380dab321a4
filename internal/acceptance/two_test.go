package acceptance_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

// "Of two processes on one NATS server one routes and the other waits;
// either may be killed at any moment, and counts stay exact."
func TestTwoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	t.Parallel()
	path, lines := slice(t, follows, follows+15_000)
	want := oracle(t, path)
	server := natstest.Apart(t)
	const settings = "cluster: {replicas: 2}\nrouter: {lease_renew: 50ms, lease_expiry: 400ms}\ncheckpoint: {interval: 50ms, rows: 2048}\n"
	nodes := []*e2e.Process{e2e.RunOn(t, server.URL, settings), e2e.RunOn(t, server.URL, settings)}
	nc := nodes[0].Connect()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	const rounds = 6
	for i := range rounds {
		part := lines[i*len(lines)/rounds : (i+1)*len(lines)/rounds]
		victim := nodes[random.IntN(2)]
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			victim.Kill()
		}()
		publishSingles(t, nc, part)
		<-killed
		victim.Start()
	}
	for i, node := range nodes {
		node.WaitReady()
		waitBoth(t, nc, 64)
		other := nodes[1-i]
		other.Kill() // the answers are this node's alone
		check(t, nc, want, lastPosition(t, nc))
		other.Start()
	}
}
