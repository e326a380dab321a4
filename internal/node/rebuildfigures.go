package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/kit/figures"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// generationFigures are of which generations there are, and of the one beside that
// which serves. All other figures are those of the one that serves.
func (n *Node) generationFigures(c *figures.Collector) {
	set := func(name, help string, of func(generations.Set) generations.Number) {
		c.Gauge(name, help, func() float64 { return float64(of(n.rebuilds.set())) })
	}
	set("generation_serving", "The generation of counts that answers, as this node knows it.", func(s generations.Set) generations.Number { return s.Serving })
	set("generation_building", "The generation that is built; 0: none.", func(s generations.Set) generations.Number { return s.Building })
	set("generation_kept", "The generation that answered before and is kept; 0: none.", func(s generations.Set) generations.Number { return s.Kept })
	c.Gauge("generation_differs", "Ids in which the generation that is built, or the one that serves, differed from the log.", func() float64 { return float64(n.rebuilds.set().Differs) })
	c.Add(prometheus.GaugeValue, "generation_applied_position", "Up to here this node has applied the events in a generation that is open.", []string{"generation"}, func(emit func(float64, ...string)) {
		serving, beside := n.Serving(), n.rebuilds.beside.Load()
		for _, g := range []*counting.Generation{serving, beside} {
			again := g == beside && serving == beside // for a moment, at a switch
			if g != nil && g.IsOpen() && !again {
				emit(float64(g.Applied()), strconv.FormatUint(uint64(g.Number), 10))
			}
		}
	})
	c.Gauge("generation_trouble", "1 while something is wrong with the record of generations, or with the one beside that which serves; /readyz says what.", func() float64 {
		if n.rebuilds.trouble.Err() != nil {
			return 1
		}
		return 0
	})
}
