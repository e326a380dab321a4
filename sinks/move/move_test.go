package move_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

func serve(t testing.TB, nc *nats.Conn, node string, store *cold.Store, o move.ServeOptions) *move.Server {
	t.Helper()
	s, err := move.Serve(nc, node, store, o)
	if err == nil {
		err = nc.Flush() // who asks by another connection is heard
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so after 2 minutes: ", what)
		}
	}
}

// fill checkpoints rows of a shard, several times.
func fill(t testing.TB, s *cold.Store, number pipeline.Shard, checkpoints, rows int) {
	t.Helper()
	state, err := s.Stack(number).State()
	if err != nil {
		t.Fatal(err)
	}
	for n := range checkpoints {
		c := s.Begin()
		to := c.Shard(number)
		for i := range rows {
			to.Row(0, uint64(i+1), []int64{int64(n+1) * int64(i+7) % 100_003})
		}
		at := state.Applied + pipeline.Position(n) + 1
		to.State(cold.State{Applied: at, Sequence: uint64(at), Time: 5})
		if err := c.Commit(); err != nil {
			t.Fatal(err)
		}
		s.Stack(number).Publish()
	}
}

// sameRows compares what two stores say of the rows of fill.
func sameRows(t testing.TB, a, b *cold.Store, number pipeline.Shard, rows int) {
	t.Helper()
	read := func(s *cold.Store) []int64 {
		ids, cells := make([]uint64, rows), make([]int64, rows)
		for i := range ids {
			ids[i] = uint64(i + 1)
		}
		v := s.Stack(number).View()
		defer v.Close()
		if err := v.Rows(0, ids, cells); err != nil {
			t.Fatal(err)
		}
		return cells
	}
	x, y := read(a), read(b)
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("row %d is %d there and %d here", i+1, x[i], y[i])
		}
	}
}

// wire stands between a node and who asks it, on a server: it passes on what
// comes for a name to another name, and does to replies what a test wants.
type wire struct {
	bytes atomic.Int64 // of runs
	mu    sync.Mutex
	fault func(do string, run int, at int64, reply *nats.Msg) *nats.Msg // nil: lost
}

func (w *wire) set(fault func(do string, run int, at int64, reply *nats.Msg) *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

func wired(t testing.TB, nc *nats.Conn, name, node string) *wire {
	t.Helper()
	w := new(wire)
	ready := make(chan struct{})
	var sub *nats.Subscription
	var err error
	sub, err = nc.Subscribe(move.Subject(name, 0), func(m *nats.Msg) {
		<-ready
		if m.Reply == "" {
			nc.Publish(move.Subject(node, 0), m.Data)
			return
		}
		var r struct {
			Do  string
			Run int
			At  int64
		}
		json.Unmarshal(m.Data, &r)
		reply, err := nc.Request(move.Subject(node, 0), m.Data, time.Minute)
		if err != nil { // nobody answers there, so nobody does here
			sub.Unsubscribe()
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fault != nil {
			reply = w.fault(r.Do, r.Run, r.At, reply)
		}
		if reply != nil {
			if r.Do == "read" {
				w.bytes.Add(int64(len(reply.Data)))
			}
			nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: reply.Header, Data: reply.Data})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	t.Cleanup(func() { sub.Unsubscribe() })
	return w
}

const (
	troubleRows  = 10_000 // about 4 messages a run
	troubleChunk = 12_288 // bytes of a run in a message: the server's messages have room for little
)

// trouble is a node a with some runs in shard 1, asked through a wire as w.
func trouble(t *testing.T, o move.ServeOptions) (nc *nats.Conn, from *cold.Store, s *move.Server, w *wire) {
	t.Helper()
	server := natstest.NewOutside(t, "max_payload: 16384\n")
	connect := func() *nats.Conn {
		nc, err := nats.Connect(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	from = openStore(t, worldShards)
	fill(t, from, 1, 3, troubleRows)
	s = serve(t, connect(), "a", from, o)
	return connect(), from, s, wired(t, connect(), "w", "a")
}

func total(t testing.TB, s *cold.Store, number pipeline.Shard) int64 {
	t.Helper()
	e, err := s.Export(number)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.Manifest().Bytes()
}

// A byte turned over on the way is found and asked for again; always: it is named.
func TestDamagedMessage(t *testing.T) {
	t.Parallel()
	nc, from, _, w := trouble(t, move.ServeOptions{})
	to := openStore(t, worldShards)
	damages, most := 0, 1<<30
	w.set(func(do string, run int, at int64, reply *nats.Msg) *nats.Msg {
		if do == "read" && run == 1 && at > 0 && damages < most {
			damages++
			reply.Data[len(reply.Data)/3] ^= 4
		}
		return reply
	})
	state, err := move.Fetch(bg, nc, "w", to, 1, move.Options{})
	if err == nil || state != (cold.State{}) {
		t.Fatalf("%+v, %v", state, err)
	}
	for _, words := range []string{"node w", "shard 1", "run 2 of 3", fmt.Sprintf("bytes %d to %d", troubleChunk, 2*troubleChunk), "damaged on the way"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not in: %v", words, err)
		}
	}
	if damages < 2 {
		t.Errorf("it was tried %d times", damages)
	}
	damages, most = 0, 2
	if state, err = move.Fetch(bg, nc, "w", to, 1, move.Options{}); err != nil || state.Applied != 3 {
		t.Fatalf("%+v, %v", state, err)
	}
	sameRows(t, from, to, 1, troubleRows)
	if all, came := total(t, from, 1), w.bytes.Load(); came > all+16*troubleChunk {
		t.Errorf("%d bytes came for %d", came, all)
	}
}

// Lost replies are asked for again.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	nc, from, s, w := trouble(t, move.ServeOptions{})
	to := openStore(t, worldShards)
	r := rand.New(rand.NewPCG(1, 1))
	lost := 0
	w.set(func(_ string, _ int, _ int64, reply *nats.Msg) *nats.Msg {
		if r.IntN(8) == 0 {
			lost++
			return nil
		}
		return reply
	})
	state, err := move.Fetch(bg, nc, "w", to, 1, move.Options{Within: 100 * time.Millisecond})
	if err != nil || state.Applied != 3 || lost == 0 {
		t.Fatalf("%+v, %v, %d lost", state, err, lost)
	}
	sameRows(t, from, to, 1, troubleRows)
	await(t, "exports are closed", func() bool { return s.Open() == 0 })
}

// An export that was idle is closed there, and opened again by who comes back: runs
// that were copied are not copied again.
func TestIdleExport(t *testing.T) {
	nc, from, s, w := trouble(t, move.ServeOptions{Idle: 200 * time.Millisecond})
	to := openStore(t, worldShards)
	paused := false
	w.set(func(do string, run int, at int64, reply *nats.Msg) *nats.Msg {
		if do == "read" && run == 1 && at > 0 && !paused {
			paused = true
			await(t, "it is closed", func() bool { return s.Open() == 0 })
		}
		return reply
	})
	if state, err := move.Fetch(bg, nc, "w", to, 1, move.Options{}); err != nil || state.Applied != 3 || !paused {
		t.Fatalf("%+v, %v", state, err)
	}
	if all, came := total(t, from, 1), w.bytes.Load(); came <= all || came >= 2*all {
		t.Errorf("%d bytes came for %d", came, all)
	}
	sameRows(t, from, to, 1, troubleRows)
}

// 16 strangers who hold exports open without reading on do not keep out a node: they
// give up their places, however often they ask.
func TestStrangersDoNotKeepPlaces(t *testing.T) {
	const exports = 16
	nc, from, s, _ := trouble(t, move.ServeOptions{Exports: exports, Idle: time.Hour, Stalled: 100 * time.Millisecond})
	ask := func(body string) {
		if _, err := nc.Request(move.Subject("a", 0), []byte(body), time.Minute); err != nil {
			t.Error(err)
		}
	}
	for i := range exports {
		ask(fmt.Sprintf(`{"version":1,"do":"open","export":"stranger-%d","shard":1}`, i))
	}
	if n := s.Open(); n != exports {
		t.Fatalf("%d exports are open", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	strangers.Go(func() {
		for i := 0; ctx.Err() == nil; i = (i + 1) % exports {
			for _, do := range []string{`"open","shard":1`, `"read","bytes":1`} {
				ask(fmt.Sprintf(`{"version":1,"export":"stranger-%d","do":%s}`, i, do))
			}
		}
	})
	defer strangers.Wait()
	defer cancel()
	to := openStore(t, worldShards)
	within, cancelFetch := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancelFetch()
	if state, err := move.Fetch(within, nc, "a", to, 1, move.Options{}); err != nil || state.Applied != 3 {
		t.Fatalf("%+v, %v", state, err)
	}
	sameRows(t, from, to, 1, troubleRows)
}

// The node goes in the middle: an error; a replica gives all, whether it has the same runs
// or others.
func TestNodeGone(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprint("same runs ", same), func(t *testing.T) {
			t.Parallel()
			nc, _, s, w := trouble(t, move.ServeOptions{})
			replica, to := openStore(t, worldShards), openStore(t, worldShards)
			if same {
				if _, err := move.Fetch(bg, nc, "a", replica, 1, move.Options{}); err != nil {
					t.Fatal(err)
				}
			} else {
				fill(t, replica, 1, 4, troubleRows-1)
			}
			serve(t, nc, "b", replica, move.ServeOptions{})
			other := wired(t, nc, "w2", "b")
			w.set(func(do string, run int, _ int64, reply *nats.Msg) *nats.Msg {
				if do == "read" && run == 1 {
					s.Close()
				}
				return reply
			})
			state, err := move.Fetch(bg, nc, "w", to, 1, move.Options{Within: 200 * time.Millisecond})
			if err == nil || state != (cold.State{}) || !strings.Contains(err.Error(), "node w") {
				t.Fatalf("%+v, %v", state, err)
			}
			if here, _ := to.Stack(1).State(); here != (cold.State{}) {
				t.Fatalf("half of it is committed: %+v", here)
			}
			state, err = move.Fetch(bg, nc, "w2", to, 1, move.Options{})
			if stands, _ := replica.Stack(1).State(); err != nil || state != stands {
				t.Fatalf("%+v, %v", state, err)
			}
			if came, want := other.bytes.Load(), total(t, replica, 1); came != want {
				t.Errorf("%d bytes came from the replica, want %d", came, want)
			}
			sameRows(t, replica, to, 1, troubleRows)
		})
	}
}

// What was checkpointed meanwhile is taken too, but not what was only merged.
func TestRounds(t *testing.T) {
	nc, from, _, w := trouble(t, move.ServeOptions{})
	to := openStore(t, worldShards)
	opens := 0
	w.set(func(do string, _ int, _ int64, reply *nats.Msg) *nats.Msg {
		if do == "open" {
			if opens++; opens == 1 {
				fill(t, from, 1, 1, 1000)
			}
		}
		return reply
	})
	var needs []uint64
	last := 0.0
	state, err := move.Fetch(bg, nc, "w", to, 1, move.Options{Small: 1, Needs: func(at uint64) { needs = append(needs, at) }, Progress: func(loaded float64) {
		if loaded <= last || loaded > 1 {
			t.Errorf("loaded: %v after %v", loaded, last)
		}
		last = loaded
	}})
	if last != 1 {
		t.Errorf("at the end %v is loaded", last)
	}
	if !slices.Equal(needs, []uint64{3, 4}) {
		t.Errorf("DELTAS was needed after %v", needs)
	}
	if err != nil || state.Applied != 4 || opens != 3 {
		t.Fatalf("%+v, %v, after %d exports", state, err, opens)
	}
	if all, came := total(t, from, 1), w.bytes.Load(); came != all {
		t.Errorf("%d bytes came for %d", came, all)
	}
	sameRows(t, from, to, 1, troubleRows)

	const rows = 2000
	fill(t, from, 2, 3, rows)
	opens = 0
	first := total(t, from, 2)
	w.bytes.Store(0)
	w.set(func(do string, _ int, _ int64, reply *nats.Msg) *nats.Msg {
		if do == "open" {
			if opens++; opens == 1 {
				fill(t, from, 2, cold.RunsWanted, rows)
				await(t, "they are merged", func() bool { return from.Stats.Merges.Load() > 0 })
			}
		}
		return reply
	})
	state, err = move.Fetch(bg, nc, "w", to, 2, move.Options{Small: 1, Within: time.Minute})
	if err != nil || state.Applied != 3 || opens != 2 {
		t.Fatalf("%+v, %v, after %d exports", state, err, opens)
	}
	if came := w.bytes.Load(); came != first {
		t.Errorf("%d bytes came for %d", came, first)
	}
}

// "After an error of a later round it is that of the round before, whole and of
// use": DELTAS is kept for that one until the later is committed.
func TestNodeGoneInTheSecondRound(t *testing.T) {
	t.Parallel()
	nc, from, s, w := trouble(t, move.ServeOptions{})
	opens := 0
	w.set(func(do string, _ int, _ int64, reply *nats.Msg) *nats.Msg {
		switch {
		case do == "open":
			if opens++; opens == 1 {
				fill(t, from, 1, 1, 1000)
			}
		case opens == 2:
			s.Close()
			return nil
		}
		return reply
	})
	var needs []uint64
	state, err := move.Fetch(bg, nc, "w", openStore(t, worldShards), 1, move.Options{
		Small: 1, Within: 100 * time.Millisecond,
		Needs: func(at uint64) { needs = append(needs, at) },
	})
	if err == nil || state.Applied != 3 || opens != 2 {
		t.Fatalf("%+v, %v, after %d exports", state, err, opens)
	}
	if !slices.Equal(needs, []uint64{3}) {
		t.Errorf("what has come goes on after window 3, and DELTAS was needed after %v", needs)
	}
}

// A node that has given a shard up has nothing to give: what is stored here stays.
// Where the log has just begun, nothing is all there is.
func TestFetchOfWhatWasGivenUp(t *testing.T) {
	nc, from, _, _ := trouble(t, move.ServeOptions{})
	to := openStore(t, worldShards)
	if state, err := move.Fetch(bg, nc, "a", to, 2, move.Options{}); err != nil || state != (cold.State{}) {
		t.Fatalf("before there was anything: %+v, %v", state, err)
	}
	fill(t, from, worldShards, 1, 0) // the commons
	if err := from.Drop(1); err != nil {
		t.Fatal(err)
	}
	fill(t, to, 1, 2, 10)
	var refusal *move.Refusal
	if _, err := move.Fetch(bg, nc, "a", to, 1, move.Options{}); !errors.As(err, &refusal) || refusal.Code != 410 || !strings.Contains(err.Error(), "shard 1 from node a") {
		t.Errorf("%v", err)
	}
	if state, err := to.Stack(1).State(); err != nil || state.Applied != 2 {
		t.Errorf("it stands at %+v, %v", state, err)
	}
}

// In the first round of checkpoints a shard that is held may not be stored yet, and others
// are: a backup has it as of position 0, and a node that is to hold it comes again.
func TestOpenOfWhatIsNotStoredYet(t *testing.T) {
	held := pipeline.Shard(1)
	nc, from, _, _ := trouble(t, move.ServeOptions{Holds: func(s pipeline.Shard) bool { return s == held }})
	fill(t, from, worldShards, 1, 0) // the commons
	if err := from.Drop(1); err != nil {
		t.Fatal(err)
	}
	source, closes, err := move.Open(bg, nc, "a", 1, move.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	if m := source.Manifest(); m.Shard != 1 || m.State != (cold.State{}) || len(m.Runs) != 0 {
		t.Errorf("%+v", m)
	}
	var refusal *move.Refusal
	if _, err := move.Fetch(bg, nc, "a", openStore(t, worldShards), 1, move.Options{}); !errors.As(err, &refusal) || refusal.Code != 410 {
		t.Errorf("it is fetched: %v", err)
	}
	if _, _, err := move.Open(bg, nc, "a", 2, move.Options{}); !errors.As(err, &refusal) || refusal.Code != 410 {
		t.Errorf("what is not held: %v", err)
	}
}

// "Nothing that comes can change the store", and each refusal says why.
func TestBadRequests(t *testing.T) {
	nc, from, s, w := trouble(t, move.ServeOptions{Exports: 2})
	ask := func(body string) *nats.Msg {
		t.Helper()
		m, err := nc.Request(move.Subject("a", 0), []byte(body), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return m
	}
	open := func(id string) string { return fmt.Sprintf(`{"version":1,"do":"open","export":%q,"shard":1}`, id) }
	first := ask(open("x"))
	if again := ask(open("x")); !bytes.Equal(first.Data, again.Data) || len(first.Data) == 0 || s.Open() != 1 {
		t.Errorf("opened again: %s, %s", first.Data, again.Data)
	}
	for body, want := range map[string]string{
		`?`:                          "400 the request is no JSON",
		`{"version":2,"do":"open"}`:  "400 the request has version 2, and this node understands versions 1 to 1",
		`{"version":1,"do":"erase"}`: `400 there is nothing to do that is called "erase"`,
		`{"version":1,"do":"open","export":"y","shard":99}`:                                  "500 cold: there is no shard 99",
		`{"version":1,"do":"open","export":"","shard":1}`:                                    "400 the export's id has 0 bytes",
		open(strings.Repeat("z", 65)):                                                        "400 the export's id has 65 bytes",
		`{"version":1,"do":"open","export":"x","shard":2}`:                                   "400 the export is of shard 1",
		`{"version":1,"do":"read","export":"q","run":0,"bytes":10}`:                          "404 no such export",
		`{"version":1,"do":"read","export":"x","run":3,"bytes":10}`:                          "400 shard 1 has 3 runs",
		`{"version":1,"do":"read","export":"x","run":-1,"bytes":10}`:                         "400 shard 1 has 3 runs",
		`{"version":1,"do":"sum","export":"x","run":7}`:                                      "400 shard 1 has 3 runs",
		`{"version":1,"do":"read","export":"x","run":0,"at":-1,"bytes":10}`:                  "400 shard 1",
		`{"version":1,"do":"read","export":"x","run":0,"at":9223372036854775807,"bytes":10}`: "400 shard 1",
		`{"version":1,"do":"read","export":"x","run":0,"at":9223372036854775808,"bytes":10}`: "400 the request is no JSON",
		`{"version":1,"do":"read","export":"x","run":0,"bytes":0}`:                           "400 0 bytes wanted",
		`{"version":1,"do":"read","export":"x","run":0,"bytes":-1}`:                          "400 -1 bytes wanted",
		`{"version":1,"do":"read","export":"x","run":0,"bytes":9000000000}`:                  "",
		`{"version":1,"do":"close","export":"never"}`:                                        "",
		`{"version":1,"do":"describe"}`:                                                      "",
		`{"version":1,"do":"` + strings.Repeat("e", 5000) + `"}`:                             "400 there is nothing",
		`{"version":1,"do":"a\nb: c","export":"` + strings.Repeat("\\u0000", 100) + `"}`:     "400 there is nothing",
	} {
		m := ask(body)
		got := strings.TrimSpace(m.Header.Get("Nats-Service-Error-Code") + " " + m.Header.Get("Nats-Service-Error"))
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	ask(open("y"))
	if m := ask(open("z")); m.Header.Get("Nats-Service-Error-Code") != "429" {
		t.Errorf("a third export: %v %s", m.Header, m.Data)
	}
	// A full node is asked again.
	w.set(func(_ string, _ int, _ int64, reply *nats.Msg) *nats.Msg {
		if reply.Header.Get("Nats-Service-Error-Code") == "429" {
			nc.Publish(move.Subject("a", 0), []byte(`{"version":1,"do":"close","export":"y"}`))
		}
		return reply
	})
	if _, err := move.Fetch(bg, nc, "w", openStore(t, worldShards), 1, move.Options{}); err != nil {
		t.Error(err)
	}

	if state, err := from.Stack(1).State(); err != nil || state.Applied != 3 {
		t.Errorf("%+v, %v", state, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.Open() != 0 {
		t.Errorf("%d are open", s.Open())
	}
}

// What is waited for at a slow rate ends with the context. TestSlowestMoves has the rate.
func TestRateEndsWithTheContext(t *testing.T) {
	nc, _, _, _ := trouble(t, move.ServeOptions{})
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel() // to the end it would be minutes
	if _, err := move.Fetch(ctx, nc, "a", openStore(t, worldShards), 1, move.Options{Limit: move.NewLimiter(100)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// BenchmarkFetch takes a shard of some ten MiB, over a server on this machine.
func BenchmarkFetch(b *testing.B) {
	server := natstest.Server(b)
	from := openStore(b, worldShards)
	fill(b, from, 1, 4, 2_000_000)
	bytes := total(b, from, 1)
	serve(b, natstest.Connect(b, server), "a", from, move.ServeOptions{})
	nc := natstest.Connect(b, server)
	b.SetBytes(bytes)
	for b.Loop() {
		b.StopTimer()
		to := openStore(b, worldShards)
		b.StartTimer()
		if _, err := move.Fetch(bg, nc, "a", to, 1, move.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
