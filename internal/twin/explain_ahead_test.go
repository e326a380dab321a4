package twin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/explain"
)

// slowLog takes a while to open, and says how many sources of it are open, or are
// being opened.
type slowLog struct {
	listLog
	mu         sync.Mutex
	open, most int
	asked, all int   // to open, and opened
	together   int   // from the sixth on none is open before so many were at a time
	fails      error // from the sixth on
}

// met says whether there were as many at a time as are waited for.
func (l *slowLog) met() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked <= 5 || l.most >= l.together
}

func (l *slowLog) Begin(context.Context) (explain.Parts, error) {
	return slowParts{listParts{&l.listLog}, l}, nil
}

type slowParts struct {
	listParts
	log *slowLog
}

func (p slowParts) Open(ctx context.Context, from pipeline.Position, messages int) (pipeline.Source, error) {
	l := p.log
	l.mu.Lock()
	l.asked++
	l.open++
	l.most = max(l.most, l.open)
	fails := l.fails != nil && l.asked > 5
	l.mu.Unlock()
	err := ctx.Err()
	for end := time.Now().Add(time.Minute); err == nil; err = ctx.Err() {
		time.Sleep(time.Millisecond)
		if l.met() || time.Now().After(end) {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.all++
	}
	if err == nil && fails {
		err = l.fails
	}
	if err != nil {
		l.open--
		return nil, err
	}
	s, err := l.listLog.Open(ctx, from, messages)
	return slowSource{s, l}, err
}

type slowSource struct {
	pipeline.Source
	log *slowLog
}

func (s slowSource) Close() error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.open--
	return s.Source.Close()
}

// Stretches are read side by side: three are opened beside the one that is read, none
// where the newest ones have all, and none stays open.
func TestStretchesAreOpenedAhead(t *testing.T) {
	schema, err := Configuration().Schema()
	if err != nil {
		t.Fatal(err)
	}
	program, err := operators.Compile(schema, Configuration().Rules(), 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	column, _ := schema.Find("post.like")
	const stretches, events = 40, 16
	broken := errors.New("the disk")
	for _, c := range []struct {
		limit, opened int
		fails         error
	}{{1, 1, nil}, {events / 4, 1, nil}, {events, 5, nil}, {1000, stretches, nil}, {1000, 9, broken}} {
		l := &slowLog{listLog: listLog{first: 1}}
		for i := range uint64(stretches * events) {
			l.messages = append(l.messages, pipeline.Message{Sequence: i + 1, Subject: "events.like", Data: fmt.Appendf(nil, `{"actor":1,"post":%d,"author":2}`, 42+i%2)})
		}
		x := explain.New(explain.Options{
			Schema: schema, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: l,
			Dir: t.TempDir(), Upto: func() uint64 { return stretches * events }, Rate: 1 << 30, BytesMax: 1 << 30, Events: events,
		})
		if err := x.Make(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.asked, l.all, l.most, l.fails = 0, 0, 0, c.fails
		if c.opened == stretches {
			l.together = 3
		}
		var page query.Explanation
		ask := query.ExplainAsk{ID: 42, Columns: []pipeline.Column{column}, AsOf: pipeline.EndOf(stretches * events), Before: pipeline.PositionMax, Limit: c.limit, Soft: time.Now().Add(time.Hour)}
		err := x.Explain(t.Context(), &ask, &page)
		if !errors.Is(err, c.fails) || err == nil && len(page.Events) != min(c.limit, stretches*events/2) {
			t.Fatalf("%+v: %d events, %v", c, len(page.Events), err)
		}
		if l.open != 0 || l.most > 4 || l.all > c.opened || c.opened == stretches && l.most < 3 {
			t.Errorf("%+v: %d are open, %d were at a time, %d in all", c, l.open, l.most, l.all)
		}
		s := &x.Stats
		if c.opened == stretches && (s.Read.Load() != stretches || s.Vain.Load() != 0 || s.Messages.Load() != stretches*events || s.Searches.Load() != 1 || s.Made.Load() != stretches) {
			t.Errorf("%d read, %d in vain, %d messages, %d searches, %d filters", s.Read.Load(), s.Vain.Load(), s.Messages.Load(), s.Searches.Load(), s.Made.Load())
		}
	}
}
