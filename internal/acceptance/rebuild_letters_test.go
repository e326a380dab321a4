package acceptance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/letters"
	"github.com/tidemark-io/tidemark/query/client"
)

// Events that were refused for want of rules are counted once there are rules, from
// the first on. What one generation counts and the other refuses is a dead letter
// while that one serves, each exactly once, also when a node is killed on the way.
func TestRebuildNewType(t *testing.T) {
	t.Parallel()
	p := e2e.Run(t, "shards: 4\n")
	nc := p.Connect()
	odd := func(n int) {
		t.Helper()
		lines := make([][]byte, n)
		for i := range lines {
			lines[i] = fmt.Appendf(nil, `{"type":%q,"actor":7}`, nonsense)
		}
		publishSingles(t, nc, lines)
	}
	counts := func(want int64) {
		t.Helper()
		got, err := client.New(nc).Get(t.Context(), client.GetRequest{
			Counter: "user", IDs: []uint64{7}, Columns: []string{"odd"}, MinPosition: lastPosition(t, nc), Timeout: answeredWithin,
		})
		if err != nil || got.Rows[0].Values[0] != want {
			t.Errorf("%+v, %v, want %d", got, err, want)
		}
	}
	odd(50)
	refusedOnce(t, nc, 50)
	doSoon(t, p, "rebuild", "--yes", "--config", written(t, "counters: {user: {odd: {}}}\nrules: {nonsense: [{add: user.odd, key: actor}]}\n"), "--wait")
	counts(50)
	odd(30)
	counts(80)
	refusedOnce(t, nc, 50)
	doSoon(t, p, "rebuild", "--back")
	odd(20)
	refusedOnce(t, nc, 70)
	p.Kill()
	p.Start()
	p.WaitReady()
	odd(5)
	refusedOnce(t, nc, 75)
	doSoon(t, p, "rebuild", "--back")
	counts(105)
	odd(1)
	counts(106)
	refusedOnce(t, nc, 75)
}

// refusedOnce waits for so many dead letters, and for a moment longer, and sees that
// no two are of one event.
func refusedOnce(t *testing.T, nc *nats.Conn, want uint64) {
	t.Helper()
	kept := func() uint64 { return natstest.Stream(t, nc, jetlog.DeadLetterStream).CachedInfo().State.Msgs }
	for deadline := time.Now().Add(likedWithin); kept() < want && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	time.Sleep(300 * time.Millisecond)
	stream := natstest.Stream(t, nc, jetlog.DeadLetterStream)
	state, of := stream.CachedInfo().State, map[string]bool{}
	for sequence := state.FirstSeq; sequence <= state.LastSeq; sequence++ {
		m, err := stream.GetMsg(t.Context(), sequence)
		if err != nil {
			t.Fatal(err)
		}
		of[m.Header.Get(letters.HeaderSequence)] = true
	}
	if state.Msgs != want || uint64(len(of)) != want {
		t.Errorf("%d dead letters of %d events, want %d", state.Msgs, len(of), want)
	}
}
