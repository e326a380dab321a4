package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/query/service"
)

// sends sends requests, each a subject and a body, and gives the subscription to what
// is answered.
func (r *room) sends(requests ...[2]string) *nats.Subscription {
	r.t.Helper()
	answers, err := r.nc.SubscribeSync(r.nc.NewInbox())
	for _, q := range requests {
		if err == nil {
			err = r.nc.PublishRequest("tidemark."+q[0], answers.Subject, []byte(q[1]))
		}
	}
	if err == nil {
		err = r.nc.Flush() // the server has them
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return answers
}

// told is an answer, or "code text" of an error.
func told(m *nats.Msg) string {
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + m.Header.Get("Nats-Service-Error")
	}
	return string(m.Data)
}

// next is the next answer.
func next(t *testing.T, answers *nats.Subscription) string {
	t.Helper()
	m, err := answers.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return told(m)
}

func (r *room) stops(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return r.service.Stop(ctx)
}

// Stop answers everything that has arrived.
func TestStopDrains(t *testing.T) {
	r := start(t)
	var requests [][2]string
	for i := range 50 {
		requests = append(requests, [2]string{"get", fmt.Sprintf(`{"counter":"post","ids":[1],"min_position":"%d"}`, i%10/9*5)})
	}
	answers := r.sends(requests...)
	stopped := make(chan error, 1)
	go func() { stopped <- r.stops(time.Minute) }()
	e2e.Until(t, "it takes nothing any more", func() bool {
		_, err := r.nc.Request("tidemark.get", nil, time.Minute)
		return errors.Is(err, nats.ErrNoResponders)
	})
	r.reader.Apply(5)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	for range requests {
		if got := next(t, answers); !strings.HasPrefix(got, `{"rows"`) {
			t.Error(got)
		}
	}
	if err := r.stops(time.Minute); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

// A stop ends in order also while somebody waits for a position that is not reached (a
// node that mends a lost tail applies nothing meanwhile), for one that the log does not
// have, or reads the disk for longer than a stop may take, of a user who follows a
// million.
func TestStopEndsWaitsAndLongReads(t *testing.T) {
	t.Parallel()
	var l logOf
	r := start(t, withLog(&l, 6))
	users := "1"
	for user := uint64(1); user <= 1000; user++ {
		r.reader.Cool(user)
		users += fmt.Sprint(",", user)
	}
	var reading atomic.Bool
	r.reader.Disk = func(context.Context) { reading.Store(true); time.Sleep(50 * time.Millisecond) } // 50 s for all
	answers := r.sends(
		[2]string{"get", `{"counter":"post","ids":[1],"min_position":"5","timeout_ms":60000}`},
		[2]string{"get", `{"counter":"post","ids":[1],"min_seq":9,"timeout_ms":60000}`},
		[2]string{"unread", `{"users":[` + users + `]}`},
	)
	e2e.Until(t, "all wait", func() bool { return reading.Load() && r.reader.Waiting() == 2 && l.looks.Load() > 0 })
	if err := r.stops(30 * time.Second); err != nil { // below their 60
		t.Errorf("stop: %v", err)
	}
	got := []string{next(t, answers), next(t, answers), next(t, answers)}
	slices.Sort(got)
	want := []string{
		"503 stopping", "503 stopping: min_position 5 was not reached, applied is 0", "503 stopping: min_seq 9 was not reached, applied is 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// When Stop may take no longer, those that wait are told what is known.
func TestStopAtItsDeadline(t *testing.T) {
	var looking atomic.Bool
	disk := make(chan struct{})
	var readers atomic.Int64
	r := start(t, func(o *service.Options, _ *server.Options) {
		o.Limits = service.Limits{ColdReads: 1, Timeout: 20 * time.Second}
		o.LogEnd = func(ctx context.Context) (uint64, error) {
			looking.Store(true)
			<-ctx.Done() // it does not answer
			return 0, ctx.Err()
		}
	})
	r.reader.Cool(42)
	r.reader.Disk = func(context.Context) { readers.Add(1); <-disk }
	r.events.Before = func(ctx context.Context) error {
		if len(r.events.Events()) > 0 { // the second is not stored
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	stored := r.sends([2]string{"read", `{"user":7,"what":["feed"],"wait":true}`})
	e2e.Until(t, "a read is stored", func() bool { return len(r.events.Events()) == 1 && r.reader.Waiting() == 1 })
	unsure := r.sends([2]string{"get", `{"counter":"post","ids":[1],"min_seq":7,"timeout_ms":60000}`})
	cold := r.sends([2]string{"get", `{"counter":"post","ids":[42],"columns":["like"]}`}, [2]string{"get", `{"counter":"post","ids":[42]}`})
	lost := r.sends([2]string{"read", `{"user":7,"what":["feed"]}`})
	e2e.Until(t, "all wait", func() bool {
		return looking.Load() && readers.Load() == 1 && r.figure("tidemark_query_cold_in_flight") == 2 && r.figure("tidemark_query_in_flight") == 5
	})
	stopped := make(chan error, 1)
	go func() { stopped <- r.stops(10 * time.Millisecond) }()
	for answers, want := range map[*nats.Subscription]string{
		stored: "504 stopping: the read is stored at position 1024",
		unsure: "503 stopping: min_seq 7 was not reached",
		cold:   "503 stopping", // the one whose turn it is not
		lost:   "503 it is not known whether the read was stored",
	} {
		if got := next(t, answers); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	close(disk)
	if err := <-stopped; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	if got := next(t, cold); !strings.HasPrefix(got, `{"rows":[{"id":"42",`) {
		t.Error(got)
	}
}

// A request of this process is answered as one over NATS also while the service stops,
// and none is begun with after that.
func TestAskWhileItStops(t *testing.T) {
	r := start(t)
	var answered atomic.Int64
	ended := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				reply, err := r.service.Ask(context.Background(), "get", []byte(`{"counter":"post","ids":["1"]}`))
				if errors.Is(err, service.ErrStopping) {
					return
				}
				if answered.Add(1); err != nil || reply.Code != 200 {
					t.Errorf("%+v, %v", reply, err)
					return
				}
			}
		}()
	}
	e2e.Until(t, "they ask", func() bool { return answered.Load() > 100 })
	if err := r.stops(time.Minute); err != nil {
		t.Error(err)
	}
	for range 8 {
		<-ended
	}
}

// An asker that goes is not waited for, and its request's answer goes nowhere.
func TestAskerGoes(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan string)
	go func() {
		reply, err := r.service.Ask(ctx, "get", []byte(`{"counter":"post","ids":["1"],"min_position":"99999","timeout_ms":30000}`))
		answered <- fmt.Sprint(reply.Code, err)
	}()
	e2e.Until(t, "it waits", func() bool { return r.reader.Waiting() == 1 })
	cancel()
	if got := <-answered; got != "503 <nil>" {
		t.Error(got)
	}
	r.reader.Apply(99999)
}
