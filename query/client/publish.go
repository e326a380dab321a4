package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
)

// ErrUncertain: no acknowledgement came, so it is not known whether the log
// has the event or the pack. Sending it again may count it twice, unless it
// has the same Nats-Msg-Id.
var ErrUncertain = errors.New("client: no acknowledgement, not known whether it was stored")

// ErrRefused: the log refuses events for now, because people said so ('tidemark
// degrade writes=refuse'). Nothing was stored. It is not tried again: to go on, to
// wait or to keep the events elsewhere is the producer's choice.
var ErrRefused = errors.New("client: events are refused by hand")

const (
	// The code and words with which JetStream refuses events then.
	codeStoreFailed = 10077
	tooMany         = "maximum messages exceeded"

	ackTimeout      = 5 * time.Second  // for one attempt
	patienceDefault = 30 * time.Second // for all attempts; far below the stream's window of duplicates
	pauseFirst      = 50 * time.Millisecond
	pauseMax        = 2 * time.Second
)

// Publish stores one event and returns its position once the log has it. An
// answer with that position, by Wait or MinPosition, counts the event.
//
// An event with an ID is tried again for up to half a minute, or until ctx
// ends, unless events are refused (ErrRefused). One without is tried once: ErrUncertain then means what it says.
func (c *Client) Publish(ctx context.Context, e Event) (Position, error) {
	body, err := e.AppendJSON(nil)
	if err != nil {
		return 0, err
	}
	msg := &nats.Msg{Subject: "events." + e.kind, Data: body}
	if e.id != "" {
		msg.Header = nats.Header{nats.MsgIdHdr: {e.id}}
	}
	deadline := time.Now().Add(patienceDefault)
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		ack, err := c.publish(ctx, msg)
		if err == nil {
			return pipeline.At(ack.Sequence, 0), nil
		}
		if e.id == "" || !passing(err) || time.Now().After(deadline) || !sleep(ctx, pause) {
			return 0, fmt.Errorf("client: publish %s: %w", msg.Subject, err)
		}
	}
}

func (c *Client) publish(ctx context.Context, msg *nats.Msg) (pubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, c.ackTimeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return pubAck{}, unstored(msg.Subject)
	case err != nil && ctx.Err() != nil:
		return pubAck{}, fmt.Errorf("%w: %w", ErrUncertain, err)
	case err != nil:
		return pubAck{}, err
	}
	return readAck(reply.Data)
}

func unstored(subject string) error {
	return &Error{codeUnavailable, "no stream takes " + subject + ": is tidemark running on this NATS server?", nats.ErrNoResponders}
}

// pubAck is JetStream's acknowledgement.
type pubAck struct {
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

func readAck(data []byte) (pubAck, error) {
	var ack pubAck
	if err := json.Unmarshal(data, &ack); err != nil {
		return ack, fmt.Errorf("%w: the acknowledgement is %.100q", ErrUncertain, data)
	}
	if e := ack.Error; e != nil && e.ErrCode == codeStoreFailed && e.Description == tooMany {
		return ack, &Error{e.Code, "events are refused for now, by hand (" + tooMany + ")", ErrRefused}
	}
	if ack.Error != nil {
		return ack, &Error{Code: ack.Error.Code, Message: ack.Error.Description}
	}
	if ack.Sequence == 0 {
		return ack, fmt.Errorf("%w: the acknowledgement is %.100q", ErrUncertain, data)
	}
	return ack, nil
}

// passing: another attempt may go better.
func passing(err error) bool {
	return errors.Is(err, ErrUncertain) || isCode(err, codeUnavailable) && !errors.Is(err, ErrRefused) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// sleep is false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
