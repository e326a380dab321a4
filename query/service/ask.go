package service

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/micro"

	"github.com/tidemark-io/tidemark/query"
)

// ErrStopping: the service stops, and has not begun with the request.
var ErrStopping = errors.New("query: the service stops")

// Ask answers a request of this process, which came by another door than NATS: in the
// same lanes, with the same limits, codes and words. endpoint is the subject's last name,
// body the request in JSON; it is kept until it is answered, which may be after ctx has
// ended: then Ask returns code 503. Stop waits for it.
func (s *Service) Ask(ctx context.Context, endpoint string, body []byte) (query.Reply, error) {
	e := s.endpointOf(endpoint)
	if e == nil {
		return query.Reply{Code: int(codeNotFound), Message: "this process does not answer " + query.Name + "." + endpoint}, nil
	}
	if !s.ask() {
		return query.Reply{}, ErrStopping
	}
	defer s.waiting.Done()
	a := &asked{endpoint: endpoint, body: body, done: make(chan struct{})}
	s.begin(e, a, false)
	select {
	case <-a.done:
		return a.reply, nil
	case <-ctx.Done():
		return query.Reply{Code: int(codeNotReady), Message: "the asker has gone"}, nil
	}
}

// ask makes Stop wait for one request more, unless it has begun.
func (s *Service) ask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.waiting.Add(1)
	return true
}

func (s *Service) endpointOf(name string) *endpoint {
	for _, e := range s.endpoints {
		if e.name == name {
			return e
		}
	}
	return nil
}

// asked is a request of this process. It is a micro.Request without a message.
type asked struct {
	endpoint string
	body     []byte
	reply    query.Reply
	done     chan struct{} // closed when there is a reply
}

func (a *asked) Data() []byte           { return a.body }
func (a *asked) Headers() micro.Headers { return nil }
func (a *asked) Subject() string        { return query.Name + "." + a.endpoint }
func (a *asked) Reply() string          { return "" }

func (a *asked) Respond(data []byte, _ ...micro.RespondOpt) error {
	a.reply = query.Reply{Code: int(codeOK), Data: slices.Clone(data)}
	close(a.done)
	return nil
}

func (a *asked) RespondJSON(any, ...micro.RespondOpt) error { panic("query: no endpoint answers so") }

func (a *asked) Error(code, message string, data []byte, _ ...micro.RespondOpt) error {
	number, err := strconv.Atoi(code)
	a.reply = query.Reply{Code: number, Message: message, Data: data}
	close(a.done)
	return err
}
