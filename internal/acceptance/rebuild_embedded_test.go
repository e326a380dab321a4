package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The same where the nodes' own servers are a NATS cluster: whoever is killed has a
// third of the copies of both streams of windows, too. Part of -rebuild.full alone.
func TestRebuildEmbedded(t *testing.T) {
	if !*rebuildFull {
		t.Skip("-rebuild.full")
	}
	t.Parallel()
	f := newRebuildFeed(t, 0, 0)
	r := &nodesRun{seed: f.seed, random: f.rand, fleet: newFleetEmbedded(t, "d")}
	f.importHalf(t, r.answers)
	r.check = f.checker(t, r.nc, r.shards)
	r.check.lossy = true
	end := r.check.begin(f.seed)
	t.Log(strings.TrimSpace(doSoon(t, r.answers, "rebuild", "--yes", "--config", written(t, fmt.Sprintf("shards: %d\n", nextShards)+moreColumns))))
	enough := f.keepsArriving(t, r.nc, 0.9)
	for _, fault := range r.draw(embeddedFaults, 12) {
		r.waitWholeOf(fleetShards, nextShards)
		begun := time.Now()
		fault.do(r)
		t.Logf("%s %s, %v", begun.Format("15:04:05.000"), fault.name, time.Since(begun).Round(time.Millisecond))
	}
	seen := until(t, r.answers, "switched", serves(2))
	t.Log(glimpse(seen))
	enough()
	r.shards = nextShards
	<-f.arrives(t, r.nc, 1, time.Second)
	r.waitWhole()
	end()
	for _, p := range r.holders {
		p.WaitReady()
	}
	f.ends(t, r.answers, r.nc)
	r.settled()
}
