package jetlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/internal/pull"
)

// Messages of our streams are read in three ways only: in order with bodies (reader), one
// by one (GetStored, NextStored, LastStored), and their headers alone (VisitHeaders). Any
// client may publish to EVENTS, with any bytes as headers, and the server stores them. The
// library's GetMsg fails at headers that it cannot decode; its Fetch and Next take a message
// with an empty body and a header Status for an answer of the server.

// Stored is a message as its stream holds it.
type Stored struct {
	Sequence uint64
	Time     time.Time // the stream's timestamp
	Subject  string
	Header   nats.Header // nil if it cannot be decoded, as in what a consumer delivers
	Data     []byte
}

// storedRequest is a request for one message, as the server reads it.
type storedRequest struct {
	Sequence    uint64 `json:"seq,omitempty"`
	NextSubject string `json:"next_by_subj,omitempty"`
	LastSubject string `json:"last_by_subj,omitempty"`
}

const (
	// storedTimeout bounds a request for one message.
	storedTimeout = 5 * time.Second
	// silenceMax is how long VisitHeaders waits for the next message.
	silenceMax = 5 * time.Second
	// visitHeartbeat is how often the server says that a consumer without news lives.
	visitHeartbeat = time.Second
)

// GetStored returns the message of a stream at a sequence, from the stream's leader. The
// error wraps jetstream.ErrMsgNotFound if there is none, and jetstream.ErrStreamNotFound
// if there is no such stream.
func GetStored(ctx context.Context, nc *nats.Conn, stream string, sequence uint64) (*Stored, error) {
	return getStored(ctx, nc, stream, storedRequest{Sequence: sequence})
}

// NextStored returns the first message at a sequence or after it with a subject, which may
// have wildcards. Its errors are those of GetStored.
func NextStored(ctx context.Context, nc *nats.Conn, stream string, sequence uint64, subject string) (*Stored, error) {
	return getStored(ctx, nc, stream, storedRequest{Sequence: sequence, NextSubject: subject})
}

// LastStored returns the last message with a subject, which may have wildcards. Its errors
// are those of GetStored.
func LastStored(ctx context.Context, nc *nats.Conn, stream, subject string) (*Stored, error) {
	return getStored(ctx, nc, stream, storedRequest{LastSubject: subject})
}

func getStored(ctx context.Context, nc *nats.Conn, stream string, request storedRequest) (*Stored, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, fmt.Errorf("request a message of %s: %w", stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	err = json.Unmarshal(reply.Data, &answer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("request a message of %s: %w", stream, err)
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return nil, jetstream.ErrStreamNotFound
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Message == nil:
		return nil, fmt.Errorf("request a message of %s: %w", stream, jetstream.ErrInvalidJetStreamResponse)
	}
	m := answer.Message
	stored := &Stored{Sequence: m.Sequence, Time: m.Time, Subject: m.Subject, Data: m.Data}
	if len(m.Header) > 0 {
		// An error leaves it nil: nats.go does the same with what it delivers.
		stored.Header, _ = nats.DecodeHeadersMsg(m.Header)
	}
	return stored, nil
}

// errSilence says that a stream has more messages, and none came for some seconds.
var errSilence = errors.New("jetlog: the server sends nothing")

// VisitHeaders calls visit for each message of a stream that a consumer with these settings
// begins and goes on with, in order, without its body, as far as they are there now. An
// error of visit ends it and is returned as it is. Messages that are deleted before they come,
// or that the server cannot read, are passed over.
func VisitHeaders(ctx context.Context, js jetstream.JetStream, stream string, consumer jetstream.ConsumerConfig, visit func(*Stored) error) error {
	consumer.HeadersOnly = true
	p, err := pull.Open(ctx, js, stream, consumer, pull.Options{Heartbeat: visitHeartbeat})
	if err != nil {
		return err
	}
	defer p.Close()
	silence := time.NewTimer(silenceMax)
	defer silence.Stop()
	seen, last := uint64(0), uint64(0)
	for seen < p.Waiting {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C:
			return fmt.Errorf("%w: %d of %d messages came", errSilence, seen, p.Waiting)
		case m := <-p.Arrived:
			ack, stored, err := p.Take(m)
			if err != nil {
				return err
			}
			if !stored { // the consumer has nothing: it is at the end, or at a message that it cannot give
				_, err := NextStored(ctx, js.Conn(), stream, last+1, cmp.Or(consumer.FilterSubject, ">"))
				if errors.Is(err, jetstream.ErrMsgNotFound) {
					return nil
				}
				continue
			}
			seen, last = seen+1, ack.Stream
			err = visit(&Stored{Sequence: ack.Stream, Time: time.Unix(0, ack.Nanos), Subject: m.Subject, Header: m.Header})
			if err != nil {
				return err
			}
			if ack.Pending == 0 {
				return nil // the others have left the stream since
			}
			silence.Reset(silenceMax)
		}
	}
	return nil
}
