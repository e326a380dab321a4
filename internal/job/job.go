// Package job is how a command has one node do something that takes long, and
// hears how it goes on.
//
//	tidemark.node.<node>.<verb>  ◄── request, JSON
//	          inbox of the asker ◄── {"progress":…} each second at least, then
//	                                 {"done":true,"result":…} or {"done":true,"error":"…","code":…}
//
// A request says in a header which version of pipeline.FormatJobs it is written in; without
// one it is version 1. A node that does not read that version refuses the request and says
// which ones it reads. The asker then asks again in the newest of these that it writes.
//
// A node does one job of a verb at a time. The asker notices a node that falls silent.
// The node notices an asker that is gone, and ends the job.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Subject is where a node is asked for a job.
func Subject(node, verb string) string { return "tidemark.node." + node + "." + verb }

const (
	// tellEvery is how often a node reports progress.
	tellEvery = 500 * time.Millisecond
	// silence is how long a node may tell nothing before it is taken for gone.
	silence = 5 * time.Second
	// requestBytesMax bounds a request: 10,000 ids and more.
	requestBytesMax = 512 << 10
	// textBytesMax bounds an error's words.
	textBytesMax = 1024
)

// The codes of refusals.
const (
	CodeBad    = 400 // the request
	CodeBusy   = 429 // a job of this verb is under way
	codeOther  = 426 // the request is in a version that the node does not read
	CodeFailed = 500
	CodeGone   = 503 // the node is not there, or stops
)

// Error is why a job was refused or has failed.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return e.Text }

// Bad is a request that cannot be done as it is.
func Bad(format string, args ...any) error { return &Error{CodeBad, fmt.Sprintf(format, args...)} }

// reply is one message to the asker.
type reply struct {
	Progress json.RawMessage `json:"progress,omitempty"`
	Done     bool            `json:"done,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Code     int             `json:"code,omitempty"`
	// Reads are, with codeOther, the versions that the node reads.
	Reads *[2]int `json:"reads,omitempty"`
}

// headerVersion is the version that a request is written in, decimal.
const headerVersion = "Tidemark-Jobs"

// version is what a request says of itself; 0: nothing that can be read.
func version(m *nats.Msg) int {
	n, _ := strconv.Atoi(cmp.Or(m.Header.Get(headerVersion), "1")) // an error leaves 0
	return n
}

// Handler does a job. It says how it goes on by progress, often, with what JSON
// can hold; result is what the asker gets. An Error keeps its code. ctx ends when
// the node stops or the asker is gone.
type Handler func(ctx context.Context, request []byte, progress func(any)) (result any, err error)

// Server does jobs of one node, until Close.
type Server struct {
	nc   *nats.Conn
	log  *slog.Logger
	subs []*nats.Subscription

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and work.Add against work.Wait
	closed bool
	work   sync.WaitGroup
}

// Serve takes jobs under a node's name, by verb.
func Serve(nc *nats.Conn, node string, verbs map[string]Handler, logger *slog.Logger) (*Server, error) {
	s := &Server{nc: nc, log: logger}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for verb, do := range verbs {
		turn := make(chan struct{}, 1)
		sub, err := nc.Subscribe(Subject(node, verb), func(m *nats.Msg) { s.take(m, do, turn) })
		if err != nil {
			return nil, errors.Join(fmt.Errorf("job: serve %s: %w", Subject(node, verb), err), s.Close())
		}
		s.subs = append(s.subs, sub)
	}
	return s, nc.Flush()
}

// Close ends the jobs under way, answers their askers, and returns when they have
// ended.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // an error says that the connection is closed
	}
	s.cancel()
	s.work.Wait()
	return nil
}

func (s *Server) take(m *nats.Msg, do Handler, turn chan struct{}) {
	if m.Reply == "" { // nobody would hear of it
		return
	}
	if v, f := version(m), pipeline.FormatJobs; !f.Reads(v) {
		s.send(m.Reply, "", &reply{
			Done: true, Code: codeOther, Reads: &[2]int{f.Oldest, f.Newest},
			Error: fmt.Sprintf("the request is in version %d, and this node reads versions %d to %d", v, f.Oldest, f.Newest),
		})
		return
	}
	if len(m.Data) > requestBytesMax {
		s.end(m.Reply, nil, Bad("the request has %d bytes; allowed: %d", len(m.Data), requestBytesMax))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case turn <- struct{}{}:
	default:
		s.end(m.Reply, nil, &Error{CodeBusy, "a job of this kind is under way on this node; ask again when it is done"})
		return
	}
	if s.closed {
		<-turn
		s.end(m.Reply, nil, &Error{CodeGone, "the node stops"})
		return
	}
	s.work.Go(func() { s.do(m, do, turn) })
}

func (s *Server) do(m *nats.Msg, do Handler, turn <-chan struct{}) {
	result, err := s.result(m, do)
	<-turn // before the asker may ask again
	s.end(m.Reply, result, err)
}

// result does a job, and reports its progress until it is done.
func (s *Server) result(m *nats.Msg, do Handler) (any, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	// The server says of a message that asks for a reply when nobody listens to it.
	echo := s.nc.NewInbox()
	sub, err := s.nc.Subscribe(echo, func(m *nats.Msg) {
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			cancel()
		}
	})
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	var mu sync.Mutex
	var latest any = struct{}{}
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for {
			mu.Lock()
			now, err := json.Marshal(latest)
			mu.Unlock()
			if err == nil {
				s.send(m.Reply, echo, &reply{Progress: now})
			}
			select {
			case <-ticker.C:
			case <-ended:
				return
			}
		}
	})
	result, err := do(ctx, m.Data, func(now any) {
		mu.Lock()
		latest = now
		mu.Unlock()
	})
	close(ended)
	telling.Wait() // the last one is last
	if err != nil && s.ctx.Err() != nil {
		err = &Error{CodeGone, "the node stops"}
	}
	return result, err
}

func (s *Server) end(to string, result any, err error) {
	r := &reply{Done: true}
	if err == nil {
		r.Result, err = json.Marshal(result)
	}
	if err != nil {
		r.Error, r.Code = err.Error(), CodeFailed
		if e, ok := errors.AsType[*Error](err); ok {
			r.Code = e.Code
		}
		r.Error = r.Error[:min(len(r.Error), textBytesMax)]
	}
	s.send(to, "", r)
}

func (s *Server) send(to, echo string, r *reply) {
	data, err := json.Marshal(r)
	if err == nil {
		err = s.nc.PublishMsg(&nats.Msg{Subject: to, Reply: echo, Data: data})
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("job: a reply was not sent", "error", err)
	}
}

// Ask has a node do a job, and returns its result. progress is called as it goes on,
// unless it is nil. An error of the node's is an *Error; so is that it is not there, or
// has been silent for 5 seconds (CodeGone).
func Ask(ctx context.Context, nc *nats.Conn, node, verb string, request any, progress func(json.RawMessage)) (json.RawMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	f := pipeline.FormatJobs
	result, err := askIn(ctx, nc, f.Newest, node, verb, body, progress)
	other, is := errors.AsType[*otherVersion](err)
	if !is {
		return result, err
	}
	in := f.Within(other.reads[1])
	if in == f.Newest || in < other.reads[0] {
		return nil, &Error{CodeBad, fmt.Sprintf("node %s reads requests of versions %d to %d, and this program writes versions %d to %d: use the tidemark of the version that the node has",
			node, other.reads[0], other.reads[1], f.Oldest, f.Newest)}
	}
	return askIn(ctx, nc, in, node, verb, body, progress)
}

// otherVersion is the refusal of a request in a version that a node does not read.
type otherVersion struct{ reads [2]int }

func (o *otherVersion) Error() string {
	return fmt.Sprintf("the node reads requests of versions %d to %d", o.reads[0], o.reads[1])
}

// askIn asks in one version.
func askIn(ctx context.Context, nc *nats.Conn, in int, node, verb string, body []byte, progress func(json.RawMessage)) (json.RawMessage, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	defer sub.Unsubscribe() // the node notices
	m := &nats.Msg{Subject: Subject(node, verb), Reply: inbox, Data: body}
	if in != 1 {
		m.Header = nats.Header{headerVersion: {strconv.Itoa(in)}}
	}
	if err := nc.PublishMsg(m); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	for {
		within, cancel := context.WithTimeout(ctx, silence)
		m, err := sub.NextMsgWithContext(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return nil, &Error{CodeGone, fmt.Sprintf("node %s has told nothing for %v", node, silence)}
		case errors.Is(err, nats.ErrNoResponders):
			return nil, &Error{CodeGone, fmt.Sprintf("node %s is not there, or does no such job", node)}
		case err != nil:
			return nil, fmt.Errorf("job: %w", err)
		case len(m.Data) == 0 && m.Header.Get("Status") == "503":
			return nil, &Error{CodeGone, fmt.Sprintf("node %s is not there, or does no such job", node)}
		}
		var r reply
		switch err := json.Unmarshal(m.Data, &r); {
		case err != nil:
			return nil, fmt.Errorf("job: the reply of node %s is not of this form: %w", node, err)
		case r.Done && r.Code == codeOther && r.Reads != nil:
			return nil, &otherVersion{*r.Reads}
		case r.Done && r.Error != "":
			return nil, &Error{r.Code, r.Error}
		case r.Done:
			return r.Result, nil
		case progress != nil:
			progress(r.Progress)
		}
	}
}

// AskWhenFree is Ask of a node that may do a job of this kind for somebody else: then it is
// asked again each every, until ctx ends or, unless it is 0, for within.
func AskWhenFree(ctx context.Context, nc *nats.Conn, node, verb string, request any, every, within time.Duration) (json.RawMessage, error) {
	for begun := time.Now(); ; {
		result, err := Ask(ctx, nc, node, verb, request, nil)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeBusy || within > 0 && time.Since(begun) > within {
			return result, err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
