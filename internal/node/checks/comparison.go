package checks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// Comparison compares what a rebuild has built with what serves. It is made by the node that
// leads the rebuild, and belongs to one goroutine. Run compares one generation and then the
// other: it asks each node for the shards that the node answers for, all nodes at the same
// time, until each copy of each shard was compared with the log, or nobody compares the rest
// for Patience. Run may be called again, and compares what has come since. Result says what
// was found. It knows no node: Of gives the members of a generation. Progress must return at
// once.
//
// It compares two generations with the log, on all nodes: the new one, then the one
// that serves. What both define alike is equal if both agree with the log. Ids that are
// stored and that the log does not name are compared too, so that nothing is lost with the
// generation that serves.
//
// All holders of a shard are asked, not one of them: each copy answers once its
// generation serves. To read the log for all of its shards costs a node no more than
// to read it for some.
type Comparison struct {
	NC       *nats.Conn                                                       // by which nodes are asked
	Of       func(generations.Number) (view func() *cluster.View, shards int) // view nil: it is not open here
	Except   []string                                                         // of the one that serves: what the two do not define alike
	Progress func(done, of uint64)                                            // of the work, as far as is known
	Waits    func(why string)                                                 // gets what is waited for; "": nothing
	Patience time.Duration                                                    // how long what nobody compares is waited for; Patience
	found    map[generations.Number]*differ                                   // by generation
	order    []generations.Number
	// done are the shards that nodes have compared, by generation. To run again compares
	// what has come since: a node that was away, a shard that another one was given.
	done map[generations.Number]map[string]cluster.ShardSet

	at map[string]float64 // how much of it each node has done of the generation that is compared
}

// differ is what differs of a generation.
type differ struct {
	ids      map[uint64]bool // those that were named: DifferingMax of a node at most
	unnamed  int             // and so many more at least
	notices  int             // at least
	mixed    bool            // somewhere not all was counted by its rules
	examples []check.Difference
}

const (
	// compareEvery is how often it is looked which nodes have not compared.
	compareEvery = time.Second
	// Patience is how long what nobody compares is waited for: a node that
	// is gone may come back, or others take what it held.
	Patience = 10 * time.Minute
	// compareFaults is how often in a row a node may fail. One that is gone, or busy, has
	// not failed.
	compareFaults = 3
	// examplesMax bounds the examples of a generation, whySome those in words.
	examplesMax, whySome = 20, 3
)

// Run compares what was not compared yet. An error says what was not compared: then the
// generations do not count as alike, whatever Result says.
func (c *Comparison) Run(ctx context.Context, serving, building generations.Number) error {
	if c.order == nil {
		c.order = []generations.Number{building, serving}
		c.found, c.done = map[generations.Number]*differ{}, map[generations.Number]map[string]cluster.ShardSet{}
	}
	for _, number := range c.order {
		if c.found[number] == nil {
			c.found[number], c.done[number] = &differ{ids: map[uint64]bool{}}, map[string]cluster.ShardSet{}
		}
		if err := c.generation(ctx, number); err != nil {
			return fmt.Errorf("generation %d could not be compared with the log: %w", number, err)
		}
	}
	return nil
}

// IsOf says whether it compares a generation that is built.
func (c *Comparison) IsOf(building generations.Number) bool { return c.order[0] == building }

// Whole says that all was compared of a generation that is there now.
func (c *Comparison) Whole(number generations.Number) bool {
	view, shards := c.Of(number)
	if view == nil {
		return false
	}
	due, nobody := left(view(), shards, c.done[number])
	return len(due) == 0 && nobody.Len() == 0
}

// generation compares one, until each node has compared all that it answers for,
// and each shard was compared.
func (c *Comparison) generation(ctx context.Context, number generations.Number) error {
	c.at = map[string]float64{}
	done, faults, vain := c.done[number], map[string]int{}, inVain{patience: c.Patience}
	why := map[string]error{} // of nodes that have not compared all
	for {
		view, shards := c.Of(number)
		if view == nil {
			return errors.New("it is not open on the node that compares")
		}
		due, nobody := left(view(), shards, done)
		if len(due) == 0 && nobody.Len() == 0 {
			return nil
		}
		compared := false
		for node, a := range c.ask(ctx, number, due) {
			if why[node] = a.Err; a.Err == nil {
				faults[node], why[node] = 0, a.Found.whySkipped()
				compared = c.take(done, a.Found) || compared
				continue
			}
			if e, ok := errors.AsType[*job.Error](a.Err); !ok || e.Code != job.CodeGone && e.Code != job.CodeBusy {
				faults[node]++
			}
			if faults[node] == compareFaults {
				return fmt.Errorf("node %s: %w", node, a.Err)
			}
		}
		if due, nobody = left(view(), shards, done); len(due) == 0 && nobody.Len() == 0 {
			return nil
		}
		if vain.round(compared, time.Now()) {
			return notCompared(due, nobody, why)
		}
		waits := ""
		if !compared {
			waits = "it waits: " + notCompared(due, nobody, why).Error()
		}
		c.Waits(waits)
		select {
		case <-time.After(compareEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inVain waits for nodes that are gone. To compare takes hours: it begins when a round ends
// in which nobody has compared anything, not when one did last.
type inVain struct {
	patience time.Duration
	since    time.Time // 0: the last round was not in vain
}

// round says, at the end of a round, that it was waited for long enough.
func (v *inVain) round(compared bool, now time.Time) (enough bool) {
	if compared {
		v.since = time.Time{}
		return false
	}
	if v.since.IsZero() {
		v.since = now
	}
	return now.Sub(v.since) >= v.patience
}

// left are the shards that nodes answer for and have not compared, by node, and
// those that no node has compared.
func left(v *cluster.View, shards int, done map[string]cluster.ShardSet) (due map[string][]pipeline.Shard, nobody cluster.ShardSet) {
	due = map[string][]pipeline.Shard{}
	for s := range pipeline.Shard(shards) {
		compared := false
		for _, set := range done {
			compared = compared || set.Has(s)
		}
		if !compared {
			nobody.Add(s)
		}
		for _, m := range v.Members {
			if has := done[m.Node]; m.Status != cluster.Away && m.Ready.Has(s) && !has.Has(s) {
				due[m.Node] = append(due[m.Node], s)
			}
		}
	}
	return due, nobody
}

// ask asks nodes side by side.
func (c *Comparison) ask(ctx context.Context, number generations.Number, due map[string][]pipeline.Shard) map[string]Outcome {
	asks := make(map[string]*Ask, len(due))
	for node, shards := range due {
		asks[node] = &Ask{Generation: number, Share: "1/1", Shards: shards}
		if number == c.order[len(c.order)-1] {
			asks[node].Except = c.Except
		}
		c.at[node] += 0 // one that says something later has its share all the same
	}
	outcomes := AskAll(ctx, c.NC, CompareVerb, asks, func(node string, p check.Progress) { c.tell(number, node, p.Share()) })
	for node, o := range outcomes {
		if o.Err == nil {
			o.Err = o.Found.misfit(node, asks[node])
			outcomes[node] = o
		}
		if o.Err == nil {
			c.tell(number, node, 1)
		}
	}
	return outcomes
}

// misfit returns what is wrong with an answer; nil: nothing.
func (r *Checked) misfit(node string, ask *Ask) error {
	if r.Node != node || r.Generation != ask.Generation {
		return fmt.Errorf("it was answered for generation %d by %q", r.Generation, r.Node)
	}
	for _, s := range r.Shards {
		if !slices.Contains(ask.Shards, s) {
			return fmt.Errorf("it was answered for shard %d, which was not asked for", s)
		}
	}
	return nil
}

// whySkipped returns why a shard that was asked for was not compared; nil: all were.
func (r *Checked) whySkipped() error {
	for s, why := range r.Skipped {
		return fmt.Errorf("shard %s: %s", s, why)
	}
	return nil
}

// take notes what a node has found, and says whether it compared anything.
func (c *Comparison) take(done map[string]cluster.ShardSet, r *Checked) bool {
	set := done[r.Node]
	for _, s := range r.Shards {
		set.Add(s)
	}
	done[r.Node] = set
	d := c.found[r.Generation]
	for _, id := range r.Differing {
		d.ids[id] = true
	}
	d.unnamed = max(d.unnamed, r.Differs-len(r.Differing))
	d.notices = max(d.notices, r.Notices)
	d.mixed = d.mixed || r.Mixed
	for _, e := range r.Examples[:min(len(r.Examples), examplesMax-len(d.examples))] {
		e.Node, e.Generation = r.Node, uint32(r.Generation)
		d.examples = append(d.examples, e)
	}
	return len(r.Shards) > 0
}

// tell reports how much is done: a thousand parts of each generation.
func (c *Comparison) tell(number generations.Number, node string, share float64) {
	const each = 1000
	c.at[node] = share
	sum := 0.0
	for _, share := range c.at {
		sum += share
	}
	c.Progress(uint64(each*(float64(slices.Index(c.order, number))+sum/float64(len(c.at)))), each*uint64(len(c.order)))
}

// notCompared says what was not compared, and why.
func notCompared(due map[string][]pipeline.Shard, nobody cluster.ShardSet, faults map[string]error) error {
	var why []string
	if nobody.Len() > 0 {
		why = append(why, fmt.Sprintf("shards %v were compared by no node", nobody))
	}
	for _, node := range slices.Sorted(maps.Keys(due)) {
		why = append(why, fmt.Sprintf("node %s has not compared shards %v", node, due[node]))
	}
	for _, node := range slices.Sorted(maps.Keys(faults)) {
		if err := faults[node]; err != nil {
			why = append(why, fmt.Sprintf("node %s: %v", node, err))
		}
	}
	return errors.New(strings.Join(why, "; "))
}

// Result is what was found, of all that was compared: in how many ids either generation
// differs from the log, each once ("at least" in why where that is not known exactly), and
// some of what differs.
func (c *Comparison) Result() (differs uint64, examples []check.Difference, why string) {
	ids, unnamed, notices := map[uint64]bool{}, 0, 0
	var text []string
	for _, number := range c.order {
		d := c.found[number]
		if d == nil {
			continue
		}
		maps.Copy(ids, d.ids)
		unnamed, notices = max(unnamed, d.unnamed), max(notices, d.notices)
		examples = append(examples, d.examples...)
		if words := d.words(number); words != "" {
			text = append(text, words)
		}
	}
	return uint64(len(ids) + unnamed + notices), examples, strings.Join(text, "; ")
}

// words say of a generation what differs; "": nothing.
func (d *differ) words(number generations.Number) string {
	n := len(d.ids) + d.unnamed
	if n+d.notices == 0 {
		return ""
	}
	text := fmt.Sprintf("generation %d differs from the log in ", number)
	if d.unnamed > 0 {
		text += "at least "
	}
	text += fmt.Sprintf("%d ids and %d notices", n, d.notices)
	for i, e := range d.examples[:min(whySome, len(d.examples))] {
		text += []string{": ", ", "}[min(i, 1)] + fmt.Sprintf("%s %d %s is %d, should be %d at %v on %s", e.Counter, e.ID, e.Column, e.Is, e.Should, e.At, e.Node)
	}
	if d.mixed {
		text += " (not all of it was counted by its rules: that may be why)"
	}
	return text
}
