package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
	natstest.SideBySide(4)
	code := m.Run()
	e2e.Clean()
	natstest.Clean()
	os.Exit(code)
}

// "A node that only answers ... can be started and killed at will": ten times, with -short two,
// while a client asks. What it is answered is never less than it asked for, and never more than
// there is.
func TestThinKilledAndStarted(t *testing.T) {
	t.Parallel()
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	server := natstest.NewOutside(t, "")
	holder := e2e.RunOn(t, server.URL(), "node: holder\nroles: [route, hold]\nshards: 8\n")
	thin := e2e.Prepare(t, e2e.Setup{URL: server.URL(), Settings: "roles: [answer]\n"})
	holder.WaitReady()
	nc := holder.Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	thin.Start()
	thin.WaitReady()

	l := &liked{nc: nc}
	stop := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(stop)
	each := func(pause time.Duration, do func() error) {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
				if err := do(); err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	each(2*time.Millisecond, func() error {
		n := l.likes.Add(1)
		ack, err := js.Publish(t.Context(), "events.like", fmt.Appendf(nil, `{"actor":%d,"post":42,"author":7}`, 100+n))
		if err == nil {
			l.position.Store(ack.Sequence * 1024) // first: ask goes by it
			l.stored.Store(n)
		}
		return err
	})
	each(time.Millisecond, l.ask)
	for round := range rounds {
		before := l.answered.Load()
		e2e.Until(t, "it answers", func() bool { return l.answered.Load() > before+20 || t.Failed() })
		if round%2 == 0 {
			thin.Kill()
		} else if state := thin.Stop(); state.ExitCode() != 0 {
			t.Errorf("stopped: %v", state)
		}
		thin.Start()
	}
	t.Logf("%d whole answers, %d requests while nobody answered", l.answered.Load(), l.unanswered.Load())
}

// liked is a post whose likes come all the time.
type liked struct {
	nc                   *nats.Conn
	likes                atomic.Uint64 // published or about to be
	stored, position     atomic.Uint64 // acknowledged, and where
	answered, unanswered atomic.Uint64
}

// ask asks for them, and is an error where the answer is wrong.
func (l *liked) ask() error {
	at := l.position.Load()
	least := l.stored.Load()
	if at == 0 || at != l.position.Load() { // of another moment
		least = 0
	}
	request := fmt.Sprintf(`{"counter":"post","ids":[42],"columns":["like"],"min_position":"%d"}`, at)
	reply, err := l.nc.Request("tidemark.get", []byte(request), time.Second)
	if err != nil || strings.Contains(reply.Header.Get("Nats-Service-Error"), "stopping") {
		l.unanswered.Add(1)
		return nil
	}
	most := l.likes.Load()
	var got struct {
		Rows []struct {
			Like uint64 `json:"like"`
		} `json:"rows"`
		Missing []string `json:"missing"`
	}
	err = errors.New(reply.Header.Get("Nats-Service-Error"))
	if err.Error() == "" {
		err = json.Unmarshal(reply.Data, &got)
	}
	if err != nil || len(got.Rows) != 1 || len(got.Missing) > 0 {
		return fmt.Errorf("%s: %w %s", request, err, reply.Data)
	}
	if is := got.Rows[0].Like; is < least || is > most {
		return fmt.Errorf("%s: %s, must be from %d to %d", request, reply.Data, least, most)
	}
	l.answered.Add(1)
	return nil
}

// A process whose name another one has taken, while it was suspended, ends and
// says why.
func TestEndsWhenItsNameIsTaken(t *testing.T) {
	t.Parallel()
	server := natstest.NewOutside(t, "")
	const settings = "node: front\nroles: [answer]\n"
	e2e.RunOn(t, server.URL(), "node: holder\nroles: [route, hold]\nshards: 8\n").WaitReady()
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
