package importer

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
)

// Lines are not looked into on their way in; those that are no events become
// dead letters. A letter carries the headers of its pack, so it says itself
// which import it is of and which line, whatever run sent the pack. The record
// says where DEADLETTER ended when the import began.

const (
	// refusedShownMax is how many refused lines are shown, the first ones.
	refusedShownMax = 10
	// blankRunsMax bounds how many runs of blank lines are remembered. After
	// them the number of a line in the input is not known.
	blankRunsMax = 1 << 18
	// lineSetChunksMax bounds the memory of a lineSet to 32 MiB.
	lineSetChunksMax = 1 << 16
)

// Why there may be more refused lines than were counted.
const (
	lettersLost    = "DEADLETTER has lost letters since the import began"
	tooManyRefused = "there are more than can be counted"
)

// Refused are the lines of an import, of all its runs, that became dead
// letters.
type Refused struct {
	Lines    uint64
	AtLeast  string // why there may be more; "": these are all
	Reasons  map[string]uint64
	Examples []RefusedLine // the first ones, in the order of the input
}

// RefusedLine is one line that became a dead letter.
type RefusedLine struct {
	Line   uint64 // in the input, from 1, blank ones included; 0: not known
	Event  uint64 // from 1, blank lines left out
	Reason string
	Error  string // one sentence
	Letter uint64 // its sequence in DEADLETTER
}

// refusals is what a run knows of where the letters are.
type refusals struct {
	id      string
	letters lettersBegin
	numbers *numbers
}

// lettersBegin is where DEADLETTER ended when the import began.
type lettersBegin struct {
	Last   uint64    `json:"last,omitempty"`
	Stream time.Time `json:"stream,omitzero"` // when it was created
}

// lettersEnd is where DEADLETTER ends now. It is zero where that cannot be
// seen: an import does not need it, and what reads the letters later begins
// with the first.
func (s *session) lettersEnd(ctx context.Context) lettersBegin {
	box, err := letters.OpenBox(ctx, s.nc)
	if err != nil {
		return lettersBegin{}
	}
	state, err := box.State(ctx)
	if err != nil {
		return lettersBegin{}
	}
	return lettersBegin{state.Last, state.Created}
}

// Refused finds the lines that were refused. Ask it when the node has applied
// r.Last: the letters are there before. r is of a run without an error.
func (r Result) Refused(ctx context.Context, nc *nats.Conn) (Refused, error) {
	found := Refused{Reasons: map[string]uint64{}}
	if r.refusals == nil {
		return found, nil // no lines at all
	}
	box, err := letters.OpenBox(ctx, nc)
	if err != nil {
		return found, err
	}
	before, err := box.State(ctx)
	if err != nil {
		return found, err
	}
	begin := r.refusals.letters
	if !begin.Stream.Equal(before.Created) || begin.Last > before.Last {
		if !begin.Stream.IsZero() {
			found.AtLeast = lettersLost
		}
		begin.Last = 0 // an older record, another stream, or one that lost its tail
	}
	var lines lineSet
	missing := before.Last - begin.Last // the letters since then, less those that are there
	err = box.Visit(ctx, begin.Last+1, "", func(l *letters.Letter) error {
		if l.Sequence <= before.Last {
			missing--
		}
		r.refusals.count(&found, &lines, l)
		return nil
	})
	if err != nil {
		return found, err
	}
	after, err := box.State(ctx)
	switch {
	case missing > 0 || !after.Created.Equal(before.Created):
		found.AtLeast = lettersLost
	case lines.full:
		found.AtLeast = cmp.Or(found.AtLeast, tooManyRefused)
	}
	return found, err
}

// count takes one letter, which may be of anything.
func (f *refusals) count(found *Refused, lines *lineSet, l *letters.Letter) {
	if l.Carried(headerImport) != f.id {
		return
	}
	p := packIn(f.id, nats.Header{
		headerImport: {f.id}, headerLines: {l.Carried(headerLines)}, headerHash: {l.Carried(headerHash)},
	})
	if p == nil {
		return // nothing that an import made
	}
	event := p.first + uint64(l.Position.Line())
	if event > p.last || !lines.add(event) {
		return // the same; or the same letter, kept twice
	}
	found.Lines++
	found.Reasons[l.Reason]++
	at, _ := slices.BinarySearchFunc(found.Examples, event, func(e RefusedLine, event uint64) int {
		return cmp.Compare(e.Event, event)
	})
	if at == refusedShownMax {
		return
	}
	found.Examples = slices.Insert(found.Examples, at, RefusedLine{f.numbers.line(event), event, l.Reason, l.Error, l.Sequence})
	found.Examples = found.Examples[:min(len(found.Examples), refusedShownMax)]
}

// lineSet is a set of line numbers, 4,096 of them in 512 bytes.
type lineSet struct {
	chunks map[uint64]*[64]uint64
	full   bool
}

// add is false for a line that is in it, and for one that there is no room for.
func (s *lineSet) add(line uint64) bool {
	chunk, word, bit := line>>12, line>>6&63, uint64(1)<<(line&63)
	bits := s.chunks[chunk]
	if bits == nil {
		if len(s.chunks) == lineSetChunksMax {
			s.full = true
			return false
		}
		if s.chunks == nil {
			s.chunks = map[uint64]*[64]uint64{}
		}
		bits = new([64]uint64)
		s.chunks[chunk] = bits
	}
	isNew := bits[word]&bit == 0
	bits[word] |= bit
	return isNew
}

// numbers says which line of the input an event stands in. Between two runs of
// blank lines the two numbers differ by the same.
type numbers struct {
	events uint64     // so far
	runs   []blankRun // before which there were blank lines
	known  uint64     // events up to here; 0: all
}

type blankRun struct {
	event  uint64 // the first one after it
	blanks uint64 // up to there
}

// next counts an event that stands in a line.
func (n *numbers) next(line uint64) {
	n.events++
	blanks, before := line-n.events, uint64(0)
	if len(n.runs) > 0 {
		before = n.runs[len(n.runs)-1].blanks
	}
	switch {
	case blanks == before || n.known != 0:
	case len(n.runs) == blankRunsMax:
		n.known = n.events - 1
	default:
		n.runs = append(n.runs, blankRun{n.events, blanks})
	}
}

// line is 0 when it is not known.
func (n *numbers) line(event uint64) uint64 {
	if n.known != 0 && event > n.known || event > n.events {
		return 0
	}
	after := sort.Search(len(n.runs), func(i int) bool { return n.runs[i].event > event })
	if after == 0 {
		return event
	}
	return event + n.runs[after-1].blanks
}
