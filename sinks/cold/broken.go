package cold

import "github.com/tidemark-io/tidemark/sinks/run"

// Broken replaces a step that all answers from runs rest on; nil is as it should be. It is
// there to be broken on purpose: the simulation must notice. It is set before the first use
// of a store.
type Broken struct {
	// Merge says which of the runs that are to become one are read, and in which
	// order; both slices are the newest first.
	Merge func(runs []*run.Run) []*run.Run
}

// read are the runs that a merge reads.
func (b *Broken) read(from []*layer) []*run.Run {
	runs := make([]*run.Run, len(from))
	for i, l := range from {
		runs[i] = l.run
	}
	if b.Merge != nil {
		return b.Merge(runs)
	}
	return runs
}
