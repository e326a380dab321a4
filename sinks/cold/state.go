package cold

import "github.com/tidemark-io/tidemark/sinks/shard"

// State and Sink are those of a shard.
type (
	State = shard.State
	Sink  = shard.Sink
)
