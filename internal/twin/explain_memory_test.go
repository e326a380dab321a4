package twin

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/explain"
)

// heldLog says what is held at most while it is read.
type heldLog struct {
	listLog
	runs int
	most uint64 // bytes
}

func (l *heldLog) Begin(context.Context) (explain.Parts, error) {
	return heldParts{l, listParts{&l.listLog}}, nil
}

type heldParts struct {
	*heldLog
	listParts
}

func (p heldParts) Extent() explain.Extent { return p.listParts.Extent() }

func (p heldParts) Open(ctx context.Context, from pipeline.Position, n int) (pipeline.Source, error) {
	return p.heldLog.Open(ctx, from, n)
}

func (l *heldLog) Open(ctx context.Context, from pipeline.Position, n int) (pipeline.Source, error) {
	s, err := l.listLog.Open(ctx, from, n)
	return heldSource{s, l}, err
}

type heldSource struct {
	pipeline.Source
	log *heldLog
}

func (s heldSource) Next(ctx context.Context) ([]pipeline.Message, error) {
	if s.log.runs++; s.log.runs%64 == 0 {
		s.log.most = max(s.log.most, heap())
	}
	return s.Source.Next(ctx)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A stretch of long events, all of one id, is not held to show twenty of them.
func TestExplainOfLongEvents(t *testing.T) {
	w, err := newWorld(t.TempDir(), setupOf(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	program, err := operators.Compile(w.schema, w.rules, 1, operators.Limits{Events: 1, Bytes: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	const events = 2000
	body := []byte(fmt.Sprintf(`{"type":"like","actor":1,"post":42,"author":7,"text":%q}`, strings.Repeat("x", 60<<10)))
	log := &heldLog{listLog: listLog{first: 1}}
	for i := range uint64(events) {
		log.messages = append(log.messages, pipeline.Message{Sequence: i + 1, Subject: "events.like", Data: body})
	}
	x := explain.New(explain.Options{
		Schema: w.schema, Tracer: func() pipeline.Tracer { return program.NewTracer() }, Log: log,
		Dir: t.TempDir(), Upto: func() uint64 { return events }, Rate: 1 << 30, BytesMax: 1 << 30, Events: events,
	})
	if err := x.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	column, _ := w.schema.Find("post.like")
	log.most = 0
	before, page := heap(), query.Explanation{}
	ask := &query.ExplainAsk{ID: 42, Columns: []pipeline.Column{column}, AsOf: pipeline.EndOf(events), Before: pipeline.PositionMax, Limit: 20, Soft: time.Now().Add(time.Hour)}
	if err := x.Explain(t.Context(), ask, &page); err != nil {
		t.Fatal(err)
	}
	if page.Read != events || len(page.Events) != 4 || len(page.Events[3].Body) != len(body) || page.Next != pipeline.At(events-3, 0) {
		t.Errorf("%d messages are read, %d events, next %s", page.Read, len(page.Events), page.Next)
	}
	if log.most > before+16<<20 {
		t.Errorf("%d MiB are held while a page of 256 KiB is made", (log.most-before)>>20)
	}
}
