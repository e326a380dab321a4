package acceptance_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// townUsers and townPosts are the ids of a town, from 1 on.
const townUsers, townPosts = 30, 60

// town has all sorts of things happen to a few users and posts.
func town(t *testing.T, nc *nats.Conn, r *rand.Rand, packs int) (position string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range packs {
		var lines []string
		for range 1 + r.IntN(60) {
			a, b, post, undo := 1+r.IntN(townUsers), 1+r.IntN(townUsers), 1+r.IntN(townPosts), r.IntN(6) == 0
			lines = append(lines, [...]string{
				fmt.Sprintf(`{"type":"follow","actor":%d,"target":%d,"delete":%v}`, a, b, undo),
				fmt.Sprintf(`{"type":"post","actor":%d,"post":%d,"delete":%v}`, a, post, undo),
				fmt.Sprintf(`{"type":"comment","actor":%d,"post":%d,"author":%d}`, a, post, b),
				fmt.Sprintf(`{"type":"read","actor":%d,"what":["feed","comment","channel:system"]}`, a),
				fmt.Sprintf(`{"type":"notice","channel":"system","notice":%d,"delete":%v}`, post, undo),
				fmt.Sprintf(`{"type":"like","actor":%d,"post":%d,"author":%d,"delete":%v}`, a, post, b, undo),
			}[r.IntN(6)])
		}
		ack, err := js.Publish(t.Context(), "events.pack", []byte(strings.Join(lines, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		position = fmt.Sprint(ack.Sequence*1024 + uint64(len(lines)-1))
	}
	return position
}

var asOfText = regexp.MustCompile(`"as_of":"\d+"`)

// townSays is all that is counted of a town, as of a position.
func townSays(t *testing.T, nc *nats.Conn, position string) string {
	t.Helper()
	ids := func(n int) string {
		var out []string
		for id := range n {
			out = append(out, fmt.Sprint(id+1))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	at := fmt.Sprintf(`,"min_position":%q,"timeout_ms":20000`, position)
	asks := [][2]string{
		{"get", `{"counter":"post","ids":` + ids(townPosts) + at + `,"partial":false}`},
		{"get", `{"counter":"user","ids":` + ids(townUsers) + at + `,"partial":false}`},
		{"unread", `{"users":` + ids(townUsers) + at + `,"partial":false}`},
	}
	for id := range townUsers {
		for _, page := range []string{"feed", "following", "followers"} {
			asks = append(asks, [2]string{page, fmt.Sprintf(`{"user":%d,"limit":100%s}`, id+1, at)})
		}
	}
	var out strings.Builder
	for _, ask := range asks {
		for end := time.Now().Add(wholeWithin); ; time.Sleep(50 * time.Millisecond) {
			reply, err := nc.Request("tidemark."+ask[0], []byte(ask[1]), 25*time.Second)
			if err == nil && reply.Header.Get("Nats-Service-Error") == "" && !bytes.Contains(reply.Data, []byte(`"missing"`)) {
				fmt.Fprintf(&out, "%s %s\n", ask[0], asOfText.ReplaceAll(reply.Data, nil))
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s %s: %v %v", ask[0], ask[1], reply, err)
			}
		}
	}
	return out.String()
}

// "Where all nodes have lost everything, restore into the directory of
// each of them (each makes all shards), and start them; each gives up what is not
// assigned to it." Four holders on one server, backed up, trimmed; then all that they
// have counted is lost, of two of them everything, and the windows are.
func TestNodesRestored(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(41, uint64(time.Now().UnixNano())))
	server := natstest.NewOutside(t, "")
	f := newFleet(t, server.URL(), "", "a", "b", "c", "d")
	townSays(t, f.nc, town(t, f.nc, r, 60))
	to := filepath.Join(t.TempDir(), "backups")
	m := backedUp(t, f.answers, to)
	streams, err := jetlog.AttachEvents(t.Context(), f.nc, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if went, err := streams.Trim(t.Context(), m.From.Next(), to, nil); err != nil || went == 0 {
		t.Fatalf("%d messages are trimmed: %v", went, err)
	}
	at := town(t, f.nc, r, 30)
	want := townSays(t, f.nc, at)

	for _, p := range f.holders {
		p.Kill()
	}
	if err := streams.Delete(t.Context(), jetlog.DeltasStream); err != nil {
		t.Fatal(err)
	}
	var restored sync.WaitGroup
	for name, p := range f.holders {
		data := filepath.Join(p.Dir, "data")
		lost := data
		if name == "a" || name == "b" {
			lost = filepath.Join(data, "badger")
		}
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
		restored.Go(func() {
			if out, err := p.Command(t.Context(), "restore", to, "--data-dir", data, "--config", p.Config()).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		})
	}
	if restored.Wait(); t.Failed() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.holders)) {
		f.holders[name].Spawn()
	}
	for _, p := range f.holders {
		p.WaitHealthy()
	}
	f.waitWhole()
	if got := townSays(t, f.nc, at); got != want {
		g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("restored, it says %.1000s\nwant %.1000s", g[i], w[i])
			}
		}
		t.Fatalf("%d answers, want %d", len(g), len(w))
	}
	// It goes on, with two holders of each shard, and copies are what the backup and the
	// log behind it say.
	townSays(t, f.nc, town(t, f.nc, r, 10))
	f.settled()
	if out := f.answers.Do("verify", "--all"); !strings.Contains(out, "4 nodes: all as the log says") || !strings.Contains(out, m.ID) {
		t.Errorf("verify says %s", out)
	}
}
