package explain

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Whatever runs have, all that goes on the page has its body, what is held of
// bodies is bounded, and what was let go of is read again, each once: the twin
// holds everything.
func TestPartHoldsWhatThePageShows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 400 {
		limit, largest := 1+r.IntN(40), 1<<(4+r.IntN(13))
		p := &page{ask: &query.ExplainAsk{Limit: limit}}
		var twin []touch // the oldest first
		for sequence := uint64(1); len(twin) < 3*limit; sequence++ {
			for offset := range 1 + r.IntN(1<<r.IntN(6)) {
				n := 1 + r.IntN(largest)
				twin = append(twin, touch{ExplainedEvent: query.ExplainedEvent{Position: pipeline.At(sequence, offset), Bytes: n, Body: make([]byte, min(n, 1))}})
			}
		}
		f := part{page: p}
		for end := len(twin); end > 0; { // a run is anything that begins with a message
			begin := r.IntN(end)
			for begin > 0 && twin[begin-1].Position.Sequence() == twin[begin].Position.Sequence() {
				begin--
			}
			for i := begin; i < end; i++ {
				one := twin[i]
				one.Body = bytes.Clone(one.Body)
				f.add(&one)
				if len(f.touches) > 1+r.IntN(50) {
					f.cut(1 + r.IntN(len(f.touches)))
				}
				held, bodies := 0, 0
				for _, t := range slices.Concat(f.touches, p.touches) {
					if t.Body != nil {
						held += t.shown()
						bodies++
					}
				}
				if held > 2*bodiesMax || bodies > 2*limit {
					t.Fatalf("round %d: %d bytes of %d bodies are held, the limit is %d", round, held, bodies, limit)
				}
			}
			first := max(f.first, twin[begin].Position.Sequence())
			f.turn()
			end = slices.IndexFunc(twin, func(t touch) bool { return t.Position.Sequence() >= first })
		}
		if len(p.touches) != len(twin) {
			t.Fatalf("round %d: %d of %d touches", round, len(p.touches), len(twin))
		}
		n := p.fitting(limit)
		for i, got := range p.touches {
			want := &twin[len(twin)-1-i]
			if got.Position != want.Position || i < n && (got.Body == nil) != (want.shown() == 0) {
				t.Fatalf("round %d: touch %d of %d on the page is %d with %d bytes, want %d", round, i, n, got.Position, len(got.Body), want.Position)
			}
		}
	}
}
