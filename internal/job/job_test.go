package job

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
)

func connect(t *testing.T, url string) *nats.Conn {
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func code(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// A job tells how it goes on, then its result; one of a verb at a time; what is
// refused says why; who asks a node that is not there hears so at once.
func TestJob(t *testing.T) {
	server := natstest.NewOutside(t, "")
	begun, ended, told := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	s, err := Serve(connect(t, server.URL()), "a", map[string]Handler{
		"add": func(ctx context.Context, request []byte, progress func(any)) (any, error) {
			var ask struct{ A, B int }
			if err := json.Unmarshal(request, &ask); err != nil {
				return nil, err
			}
			if ask.A < 0 {
				return nil, Bad("%d is less than 0", ask.A)
			}
			progress(map[string]int{"half": ask.A})
			select {
			case <-told:
				return ask.A + ask.B, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		"wait": func(ctx context.Context, _ []byte, _ func(any)) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return nil, ctx.Err()
		},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, server.URL())
	halfway := sync.OnceFunc(func() { close(told) })
	within, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	sum, err := Ask(within, nc, "a", "add", map[string]int{"A": 2, "B": 3}, func(p json.RawMessage) {
		if string(p) == `{"half":2}` { // the first may say nothing yet
			halfway()
		}
	})
	if err != nil || string(sum) != "5" {
		t.Errorf("the sum is %s, %v", sum, err)
	}
	for _, c := range []struct {
		node, verb string
		request    any
		code       int
		text       string
	}{
		{"a", "add", map[string]int{"A": -1}, CodeBad, "-1 is less than 0"},
		{"a", "add", "nothing", CodeFailed, "cannot unmarshal"},
		{"a", "add", strings.Repeat("x", requestBytesMax), CodeBad, "bytes; allowed"},
		{"b", "add", 1, CodeGone, "node b is not there"},
		{"a", "take", 1, CodeGone, "does no such job"},
	} {
		_, err := Ask(t.Context(), nc, c.node, c.verb, c.request, nil)
		if code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s of %s: %v, want %d %s", c.verb, c.node, err, c.code, c.text)
		}
	}

	// Who asks goes away; the job ends.
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := Ask(ctx, nc, "a", "wait", nil, nil)
		asked <- err
	}()
	<-begun
	if _, err := Ask(t.Context(), nc, "a", "wait", nil, nil); code(err) != CodeBusy {
		t.Errorf("a second one at a time: %v", err)
	}
	const every = time.Millisecond
	if _, err := AskWhenFree(t.Context(), nc, "a", "wait", nil, every, 20*every); code(err) != CodeBusy {
		t.Errorf("asked again for a while: %v", err)
	}
	short, stop := context.WithTimeout(t.Context(), 20*every)
	defer stop()
	if _, err := AskWhenFree(short, nc, "a", "wait", nil, every, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked again until its context ended: %v", err)
	}
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("nobody listens any more, and the job goes on")
	}

	// The node stops; who asks hears so.
	go func() {
		<-begun
		s.Close()
	}()
	// The one before may have to leave its turn.
	if _, err := AskWhenFree(t.Context(), nc, "a", "wait", nil, every, 0); code(err) != CodeGone {
		t.Errorf("the node has stopped, and said %v", err)
	}
}

// A node that falls silent amid a job is noticed.
func TestSilentNode(t *testing.T) {
	natstest.Long(t) // as long as silence is
	server := natstest.NewOutside(t, "")
	nc := connect(t, server.URL())
	sub, err := nc.Subscribe(Subject("a", "add"), func(m *nats.Msg) { m.Respond([]byte(`{"progress":{}}`)) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if _, err := Ask(t.Context(), nc, "a", "add", 1, nil); code(err) != CodeGone {
		t.Error(err)
	}
}

// A program of the next version asks a node of this one: the node refuses what it does
// not read, and is asked in a version that both know.
func TestVersionsAreNegotiated(t *testing.T) {
	server := natstest.NewOutside(t, "")
	nc := connect(t, server.URL())
	s, err := Serve(connect(t, server.URL()), "a", map[string]Handler{
		"echo": func(_ context.Context, request []byte, _ func(any)) (any, error) {
			return json.RawMessage(request), nil
		},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := nats.NewMsg(Subject("a", "echo"))
	m.Header.Set(headerVersion, "9")
	answer, err := nc.RequestMsg(m, 5*time.Second)
	if err != nil || !strings.Contains(string(answer.Data), `"reads":[1,1]`) || !strings.Contains(string(answer.Data), "version 9, and this node reads versions 1 to 1") {
		t.Errorf("a node of this version answers %s, %v", answer.Data, err)
	}

	own := pipeline.FormatJobs
	t.Cleanup(func() { pipeline.FormatJobs = own })
	if _, err := nc.Subscribe(Subject("old", "echo"), func(m *nats.Msg) { // as a node of version 1 does
		to := &reply{Done: true, Result: json.RawMessage(`"done"`)}
		if v := version(m); v != 1 {
			to = &reply{Done: true, Code: codeOther, Error: "no", Reads: &[2]int{1, 1}}
		}
		text, _ := json.Marshal(to)
		_ = m.Respond(text)
	}); err != nil {
		t.Fatal(err)
	}
	pipeline.FormatJobs.Newest = 2
	if result, err := Ask(t.Context(), nc, "old", "echo", 1, nil); err != nil || string(result) != `"done"` {
		t.Errorf("one version back: %s, %v", result, err)
	}
	pipeline.FormatJobs.Oldest = 2
	if _, err := Ask(t.Context(), nc, "old", "echo", 1, nil); code(err) != CodeBad || !strings.Contains(err.Error(), "node old reads requests of versions 1 to 1, and this program writes versions 2 to 2") {
		t.Errorf("two versions back: %v", err)
	}
}
