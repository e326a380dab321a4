package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	e2e.Clean()
	natstest.Clean()
	os.Exit(code)
}

// "A node that only answers starts in under a second, and can be
// started and killed at will": ten times, while a client asks. What it is answered is
// never less than it asked for, and never more than there is.
func TestThinKilledAndStarted(t *testing.T) {
	server := natstest.NewOutside(t, "")
	holder := e2e.RunOn(t, server.URL(), "node: holder\nroles: [route, hold]\nshards: 8\n")
	thin := e2e.Prepare(t, e2e.Setup{URL: server.URL(), Settings: "roles: [answer]\n"})
	holder.WaitReady()
	nc := holder.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}

	const post = 42
	var likes atomic.Uint64            // published or about to be
	var stored, position atomic.Uint64 // acknowledged, and where
	stop := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer sync.OnceFunc(func() { close(stop) })()
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			n := likes.Add(1)
			ack, err := js.Publish(t.Context(), "events.like", fmt.Appendf(nil, `{"actor":%d,"post":%d,"author":7}`, 100+n, post))
			if err != nil {
				if t.Context().Err() == nil {
					t.Error(err)
				}
				return
			}
			position.Store(ack.Sequence * 1024) // first: ask goes by it
			stored.Store(n)
		}
	})
	var answered, unanswered atomic.Uint64
	asking := func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := ask(nc, post, &likes, &stored, &position); errors.Is(err, errUnanswered) {
				unanswered.Add(1)
				time.Sleep(time.Millisecond)
			} else if err != nil {
				t.Error(err)
				return
			} else {
				answered.Add(1)
			}
		}
	}
	for round := range 10 {
		begun := time.Now()
		thin.Start()
		healthy := time.Since(begun)
		thin.WaitReady()
		t.Logf("start %d: answers after %v, ready after %v", round+1, healthy.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
		if round == 0 {
			work.Go(asking)
		}
		before := answered.Load()
		for end := time.Now().Add(e2e.Patience); answered.Load() < before+20; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) || t.Failed() {
				t.Fatalf("%d answers, %d requests without", answered.Load(), unanswered.Load())
			}
		}
		if round%2 == 0 {
			thin.Kill()
		} else if state := thin.Stop(); state.ExitCode() != 0 {
			t.Errorf("stopped: %v", state)
		}
	}
	t.Logf("%d whole answers, %d requests while nobody answered", answered.Load(), unanswered.Load())
}

// errUnanswered: nobody was there, or is not any more.
var errUnanswered = errors.New("unanswered")

func ask(nc *nats.Conn, post int, likes, stored, position *atomic.Uint64) error {
	at := position.Load()
	least := stored.Load()
	if at != position.Load() { // of another moment
		least = 0
	}
	request := fmt.Sprintf(`{"counter":"post","ids":[%d],"columns":["like"]}`, post)
	if at > 0 {
		request = fmt.Sprintf(`{"counter":"post","ids":[%d],"columns":["like"],"min_position":"%d"}`, post, at)
	}
	reply, err := nc.Request("tidemark.get", []byte(request), time.Second)
	if err != nil {
		return errUnanswered
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		if code == "503" && strings.Contains(reply.Header.Get("Nats-Service-Error"), "stopping") {
			return errUnanswered
		}
		return fmt.Errorf("%s: %s %s", request, code, reply.Header.Get("Nats-Service-Error"))
	}
	most := likes.Load()
	var got struct {
		Rows []struct {
			Like uint64 `json:"like"`
		} `json:"rows"`
		Missing []string `json:"missing"`
	}
	if err := json.Unmarshal(reply.Data, &got); err != nil || len(got.Rows) != 1 || len(got.Missing) > 0 {
		return fmt.Errorf("%s: %v %s", request, err, reply.Data)
	}
	if is := got.Rows[0].Like; is < least && at > 0 || is > most {
		return fmt.Errorf("%s: %s, must be from %d to %d", request, reply.Data, least, most)
	}
	return nil
}

// All who hold are killed: what nobody answers for is missing, then nobody is
// known any more, and all of it comes back by itself.
func TestThinWhenHoldersAreKilled(t *testing.T) {
	server := natstest.NewOutside(t, "")
	holder := e2e.RunOn(t, server.URL(), "node: holder\nroles: [route, hold]\nshards: 8\n")
	holder.WaitReady()
	thin := e2e.RunOn(t, server.URL(), "roles: [answer]\n")
	thin.WaitReady()
	nc := holder.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), "events.like", []byte(`{"actor":1,"post":42,"author":7}`))
	if err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf(`{"counter":"post","ids":[42],"columns":["like"],"min_position":"%d"}`, ack.Sequence*1024)
	get := func() string {
		reply, err := nc.Request("tidemark.get", []byte(request), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Header.Get("Nats-Service-Error-Code") + reply.Header.Get("Nats-Service-Error") + string(reply.Data)
	}
	comes := func(want string, others ...string) {
		t.Helper()
		for end := time.Now().Add(e2e.Patience); ; time.Sleep(20 * time.Millisecond) {
			got := get()
			if strings.Contains(got, want) {
				return
			}
			if !slices.ContainsFunc(others, func(other string) bool { return strings.Contains(got, other) }) || time.Now().After(end) {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
	const whole, missing, nobody = `"like":1`, `"missing":["42"]`, "503not ready: no node that holds counters is known"
	comes(whole)
	holder.Kill()
	comes(nobody, missing, "504")
	holder.Start()
	comes(whole, nobody, missing, "503not ready", "504")
	thin.WaitReady()
}

// A process whose name another one has taken, while it was suspended, ends and
// says why.
func TestEndsWhenItsNameIsTaken(t *testing.T) {
	server := natstest.NewOutside(t, "")
	const settings = "node: front\nroles: [answer]\n"
	holder := e2e.RunOn(t, server.URL(), "node: holder\nroles: [route, hold]\nshards: 8\n")
	holder.WaitReady()
	first := e2e.RunOn(t, server.URL(), settings)
	first.WaitReady()
	first.Signal(syscall.SIGSTOP)
	second := e2e.RunOn(t, server.URL(), settings)
	first.Signal(syscall.SIGCONT)
	e2e.Until(t, "it ends", func() bool { return first.Ended() != nil })
	log, err := os.ReadFile(first.Log())
	if err != nil {
		t.Fatal(err)
	}
	if code := first.Ended().ExitCode(); code != 1 || !strings.Contains(string(log), "another process has this node name") {
		t.Errorf("exit code %d, log:\n%s", code, log)
	}
	second.WaitReady()
}
