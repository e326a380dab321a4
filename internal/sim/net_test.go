package sim

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/internal/golden"
	"github.com/tidemark-io/tidemark/pipeline"
)

// netSums are what a seed derives and answers, each thing hashed and all added up: in what order
// goroutines came to say so does not matter. A nil *netSums takes nothing.
type netSums struct {
	windows, answers atomic.Uint64
}

// answer adds a number or a list that was answered, as it is in words.
func (n *netSums) answer(what string, id uint64, of string, got any) {
	if n != nil {
		add(&n.answers, "%s of %d %s: %v", what, id, of, got)
	}
}

// window adds what a window says, whatever its bytes are: where it is, what it covers, and each
// change in its order.
func (n *netSums) window(m *Stored) {
	if n == nil {
		return
	}
	w, err := pipeline.DecodeWindow(m.Data)
	if err != nil {
		add(&n.windows, "window %d is none", m.Sequence)
		return
	}
	add(&n.windows, "window %d: %d to %d, %d events, authors %v, marks %v", m.Sequence, w.From, w.To, w.Events, w.Authors, w.Marks)
	for i, section := range w.Sections {
		changes := pipeline.ReadSection(section, w.From)
		for at := 0; ; at++ {
			c, ok := changes.Next()
			if !ok {
				break
			}
			what := any(c.Delta)
			if c.Op != pipeline.OpCell {
				what = changes.Operation
			}
			add(&n.windows, "window %d, section %d, change %d: %v of %d of column %d: %+v", m.Sequence, i, at, c.Op, c.ID, c.Column, what)
		}
		if err := changes.Err(); err != nil {
			add(&n.windows, "window %d, section %d is malformed", m.Sequence, i)
		}
	}
}

func add(to *atomic.Uint64, format string, args ...any) {
	h := fnv.New64a()
	fmt.Fprintf(h, format, args...)
	to.Add(h.Sum64())
}

// netWorlds are the seeds of TestNet, by the worlds that they are run in.
var netWorlds = []struct {
	name  string
	seeds uint64
	fault *fault
}{
	{"one node or several that hold everything", 130, nil},
	{"several nodes that share the shards", 55, amongHolders},
	{"audits", 15, &fault{setup: audited}},
}

// TestNet holds the windows and the answers of 200 seeds to what they were: a change that is to
// change nothing leaves testdata/net.golden as it is.
func TestNet(t *testing.T) {
	var text strings.Builder
	for _, world := range netWorlds {
		fmt.Fprintf(&text, "# %s: seed, windows, answers\n", world.name)
		nets := make([]netSums, world.seeds)
		eachSeed(t, 1, world.seeds, func(t *testing.T, seed uint64) error {
			_, err := simulateInto(t, seed, world.fault, nil, &nets[seed-1])
			return err
		})
		for i := range nets {
			fmt.Fprintf(&text, "%d %016x %016x\n", i+1, nets[i].windows.Load(), nets[i].answers.Load())
		}
	}
	golden.Check(t, "net", text.String())
	if t.Logf("%d events explained, of %d worlds", explained.Load(), wholes.Load()); explained.Load() == 0 {
		t.Error("nothing is explained")
	}

	for _, world := range netWorlds { // A seed is the same story every time.
		one, _ := simulate(t, 1, world.fault, nil)
		if two, _ := simulate(t, 1, world.fault, nil); one != two {
			t.Errorf("%s: seed 1 is another story the second time", world.name)
		}
	}
}
