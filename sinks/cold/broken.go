package cold

import (
	"slices"

	"github.com/tidemark-io/tidemark/sinks/run"
)

// Broken replaces steps that all answers from runs rest on; those that are nil
// are as they should be. It is there to be broken on purpose: the simulation
// must notice. It is set before the first use of a store.
type Broken struct {
	// Merge says which of the runs that are to become one are read, and in which
	// order; both slices are the newest first.
	Merge func(runs []*run.Run) []*run.Run

	// Replace says which of the runs that became one stay listed, above the
	// merged one.
	Replace func(runs []*run.Run, merged *run.Run) (stay []*run.Run)

	// May says whether a lookup asks a run for a key.
	May func(r *run.Run, key run.Key) bool
}

// read are the runs that a merge reads.
func (b *Broken) read(from []*layer) []*run.Run {
	runs := runsOf(from)
	if b.Merge != nil {
		return b.Merge(runs)
	}
	return runs
}

// replacing is what is listed in the place of runs that became one.
func (b *Broken) replacing(from, merged []*layer) []*layer {
	if b.Replace == nil || len(merged) == 0 {
		return merged
	}
	stay := b.Replace(runsOf(from), merged[0].run)
	from = slices.DeleteFunc(slices.Clone(from), func(l *layer) bool { return !slices.Contains(stay, l.run) })
	return append(from, merged...)
}

func runsOf(layers []*layer) []*run.Run {
	runs := make([]*run.Run, len(layers))
	for i, l := range layers {
		runs[i] = l.run
	}
	return runs
}

// denies says that a run is not asked for a key. It costs a look at a nil.
func (b *Broken) denies(l *layer, key *run.Key) bool { return b.May != nil && !b.May(l.run, *key) }
