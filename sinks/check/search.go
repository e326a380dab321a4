package check

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Log is EVENTS as it is searched. It may be used concurrently.
type Log interface {
	// Extent is what there is now.
	Extent(ctx context.Context) (Extent, error)
	// Begin begins to look things up: what is the same for all parts that are read
	// is looked up once.
	Begin(ctx context.Context) (Parts, error)
}

// Parts are what is read of the log for one explanation. All but Get fail with
// pipeline.ErrGap where the beginning of what is asked for is gone.
type Parts interface {
	// Extent is what there was at the beginning.
	Extent() Extent
	// Open is that of pipeline.Events, for so many messages.
	Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error)
	// Get is one message; false where there is none. It may be called concurrently, but
	// not while a source is read.
	Get(ctx context.Context, sequence uint64) (m pipeline.Message, there bool, err error)
}

// Extent is which messages a stream holds.
type Extent struct {
	First, Last uint64 // sequences; First is above Last where there are none
	Created     time.Time
}

// read visits the messages of s in order.
func read(ctx context.Context, parts Parts, s stretch, visit func(m *pipeline.Message) error) error {
	source, err := parts.Open(ctx, pipeline.EndOf(s.first-1), int(min(s.last-s.first, 1<<30))+1)
	if err != nil {
		return err
	}
	defer source.Close()
	for end := uint64(0); end < s.last; {
		run, err := source.Next(ctx)
		if err != nil {
			return err
		}
		end = run[len(run)-1].Sequence
		for i := range run {
			if run[i].Sequence > s.last {
				return nil
			}
			if err := visit(&run[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// mention is an id to look for in texts.
type mention struct{ digits []byte }

func mentionOf(id uint64) mention { return mention{strconv.AppendUint(nil, id, 10)} }

// digitEscape: \u0030 to \u0039 are digits, which nobody writes so.
var digitEscape = []byte(`\u003`)

// in says quickly whether a text may name the id: false is certain.
func (m mention) in(text []byte) bool {
	return bytes.Contains(text, m.digits) || bytes.Contains(text, digitEscape)
}

// search goes back through the log, and reads what may have what is looked for.
type search struct {
	parts   Parts
	filters *filters // nil: everything is read
	extent  Extent
	mention mention // of the id that everything looked for names
	soft    time.Time
	turn    func(work func()) // nil: at once
	stats   *ExplainStats
	read    int   // messages
	passed  int64 // what was not visited yet has no later log second
}

// never is later than any log second.
const never = math.MaxInt64

const (
	// Messages are read in runs of so many where no filter is. A run begins small,
	// because what is looked for may be in the newest event, and because it takes as
	// long as it takes: a message has up to 1,024 events, or a megabyte.
	runMin, runMax = 16, 16_384
	// runTime is how long a run should take, and runBytes what is held of it at most.
	runTime  = 100 * time.Millisecond
	runBytes = 4 << 20
	// lookUps is how many messages are fetched side by side.
	lookUps = 16
)

// quest is what is looked for.
type quest struct {
	keys  func() []key                   // of what may have it
	visit func(m *pipeline.Message) bool // says whether a message has something
	done  func() bool                    // says that enough was visited
}

// back visits, from the message before `reached` back to the log's beginning, what may have
// what is looked for, the newest first, until done says so or it is late. It returns the
// first message from which on all was visited.
func (s *search) back(ctx context.Context, reached uint64, q quest) (uint64, error) {
	var known []stretch
	if s.filters != nil {
		known = s.filters.all()
	}
	s.passed = never
	for run := uint64(runMin); reached > s.extent.First; {
		if err := ctx.Err(); err != nil || s.late() || q.done() {
			return reached, err
		}
		for n := len(known); n > 0 && known[n-1].first >= reached; n-- {
			known = known[:n-1]
		}
		part := stretch{s.extent.First, reached - 1}
		if n := len(known); n > 0 && known[n-1].last >= part.last { // covered, perhaps its beginning alone
			part.first = max(known[n-1].first, part.first)
			some, err := s.covered(ctx, known[n-1], part, q)
			if err == nil {
				if reached = some; some > part.first { // late, or enough
					return reached, nil
				}
				continue
			}
			if !errors.Is(err, errDamaged) && !errors.Is(err, errAny) {
				return some, err
			}
			known = known[:n-1] // it is read
			continue
		} else if n > 0 {
			part.first = max(part.first, known[n-1].last+1)
		}
		if part.last-part.first >= run {
			part.first = part.last - run + 1
		}
		begun := time.Now()
		first, err := s.run(ctx, part, q)
		if err != nil {
			return reached, err
		}
		reached = first
		switch took := time.Since(begun); {
		case first > part.first || took > 2*runTime:
			run = max(run/2, 1)
		case took < runTime/2:
			run = min(2*run, runMax)
		}
	}
	return reached, nil
}

func (s *search) late() bool { return s.read > 0 && time.Now().After(s.soft) }

// errAny: the filter of a stretch may have whatever is asked.
var errAny = errors.New("check: no filter to speak of")

// covered looks up what the filter of a stretch names in a part of it. One that is damaged
// is taken away, to be made again.
func (s *search) covered(ctx context.Context, of, part stretch, q quest) (reached uint64, err error) {
	reached = part.last + 1
	o, err := s.filters.open(of)
	if err == nil {
		defer o.close()
		var sequences []uint64
		if o.any() {
			return reached, errAny
		}
		if sequences, err = o.findAny(q.keys()); err == nil {
			sequences = slices.DeleteFunc(sequences, func(n uint64) bool { return n < part.first || n > part.last })
			s.passed = min(s.passed, int64(o.second))
			return s.lookUp(ctx, part, sequences, q)
		}
	}
	if errors.Is(err, errDamaged) {
		s.stats.Damaged.Add(1)
		s.filters.drop(of)
	}
	return reached, err
}

// lookUp visits messages of a part, the newest first.
func (s *search) lookUp(ctx context.Context, part stretch, sequences []uint64, q quest) (reached uint64, err error) {
	if len(sequences) == 0 {
		s.stats.PassedOver.Add(1)
		return part.first, nil
	}
	found, reached := false, part.last+1
	for i := 0; i < len(sequences); {
		some := sequences[i:min(i+lookUps, len(sequences))]
		if s.late() || i > 0 && q.done() {
			return reached, nil
		}
		messages, err := s.get(ctx, some)
		if err != nil {
			return reached, err
		}
		s.inTurn(func() {
			for _, m := range messages {
				if m != nil && s.mention.in(m.Data) {
					found = q.visit(m) || found
				}
			}
		})
		i += len(some)
		reached = some[len(some)-1]
	}
	s.stats.note(found)
	return part.first, nil
}

// run reads a part that has no filter. Of more than runBytes the beginning is left: it
// returns from where on all was visited.
func (s *search) run(ctx context.Context, part stretch, q quest) (first uint64, err error) {
	first = part.first
	var held []pipeline.Message
	bytes := 0
	err = read(ctx, s.parts, part, func(m *pipeline.Message) error {
		s.read++
		s.stats.Messages.Add(1)
		s.passed = min(s.passed, m.Time/1000)
		if !s.mention.in(m.Data) {
			return nil
		}
		held, bytes = append(held, *m), bytes+len(m.Data)
		for bytes > runBytes && len(held) > 1 {
			bytes -= len(held[0].Data)
			held = held[1:]
			first = held[0].Sequence
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.stats.Unfiltered.Add(1)
	s.inTurn(func() {
		for i := range slices.Backward(held) {
			q.visit(&held[i])
		}
	})
	return first, nil
}

// get reads messages side by side; nil: there is none.
func (s *search) get(ctx context.Context, sequences []uint64) ([]*pipeline.Message, error) {
	messages, errs := make([]*pipeline.Message, len(sequences)), make([]error, len(sequences))
	var all sync.WaitGroup
	for i, sequence := range sequences {
		all.Go(func() {
			m, there, err := s.parts.Get(ctx, sequence)
			if errs[i] = err; there {
				messages[i] = &m
			}
		})
	}
	all.Wait()
	s.read += len(sequences)
	s.stats.Messages.Add(uint64(len(sequences)))
	return messages, errors.Join(errs...)
}

func (s *search) inTurn(work func()) {
	if s.turn == nil {
		work()
		return
	}
	s.turn(work)
}
