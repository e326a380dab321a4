package query

import (
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Freshness knows how old an answer can be: [pipeline.Freshness]. Its methods are called
// for every answer and concurrently.
type Freshness interface {
	// Age is how old an answer that reaches a position can be; whole: it is not older
	// than an answer may be that is not said to be degraded.
	Age(asOf pipeline.Position) (age time.Duration, whole bool)
	// Least is how far an answer must reach for that now. false: none can be whole, from
	// whichever node it comes.
	Least() (asOf pipeline.Position, can bool)
	// Reaches: no answer can be fresher than one that reaches a position.
	Reaches(asOf pipeline.Position) bool
}
