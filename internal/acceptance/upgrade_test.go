package acceptance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// upgradeSettings let a node hold a part of the shards alone: it asks the others.
const upgradeSettings = "shards: 8\ncluster: {replicas: 2, replace_after: 1m}\nrouter: {lease_renew: 50ms, lease_expiry: 400ms}\ncheckpoint: {interval: 200ms, rows: 2048}\n"

const upgradeShards = 8

// later builds a program of this tree in which each version of a format is so many
// higher, and of which the oldest versions are gone.
func later(t *testing.T, ahead, drops int) string {
	t.Helper()
	const at = "github.com/tidemark-io/tidemark/pipeline."
	binary := filepath.Join(t.TempDir(), "tidemark")
	flags := fmt.Sprintf("-X %sahead=%d -X %sdrops=%d -X main.version=later", at, ahead, at, drops)
	if err := e2e.Build(binary, "./cmd/tidemark", "-ldflags", flags); err != nil {
		t.Fatal(err)
	}
	return binary
}

// "A node of this version and one of the next work together, or the new
// one refuses by name what it cannot do". With -short the one that refuses is not built.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, e2e.Binary(t), later(t, 1, 0))
	if got := u.newest(); got != 1 {
		t.Errorf("the newest window has version %d", got)
	}
	u.mix()
	if got := u.newest(); got != 1 {
		t.Errorf("the newest window has version %d while an old node reads it", got)
	}
	u.replaced("b")
	e2e.Until(t, "windows are written in the version that all read now", func() bool { return u.newest() == 2 })
	u.backup(2)
	u.exact()

	// What the new version has written, the old one does not take for damage.
	u.nodes["b"].Stop()
	u.refused(u.nodes["b"], u.old, "reads versions 1 to 1")
	u.nodes["b"].Use(u.next)
	u.nodes["b"].Start()
	u.exact()

	if !testing.Short() { // A version without the ones that the others read is not let in.
		u.refused(u.node("d"), later(t, 4, 4),
			"cannot work together", "node d (version later)", "reads", "of versions", "docs/nodes.md, Rolling upgrade")
		u.exact()
	}
	u.end()
}

// upgrade is a system whose nodes are replaced one after the other, while somebody
// publishes and asks.
type upgrade struct {
	t         *testing.T
	old, next string // programs
	server    *natstest.Member
	nodes     map[string]*e2e.Process
	nc        *nats.Conn
	client    *client.Client

	begun time.Time
	stop  context.CancelFunc
	done  chan struct{}
	asked atomic.Int64 // exact answers
	whole atomic.Int64 // of these, in a row without one that had to be asked for again
}

// upgradePosts are liked in turn: they are of all shards, so that every node is asked,
// and asks others.
const upgradePosts = 64

func newUpgrade(t *testing.T, old, next string) *upgrade {
	u := &upgrade{t: t, old: old, next: next, server: natstest.Apart(t), nodes: map[string]*e2e.Process{}, begun: time.Now(), done: make(chan struct{})}
	for _, name := range []string{"a", "b"} {
		u.node(name).Spawn()
	}
	for _, p := range u.nodes {
		p.WaitReady()
	}
	u.nc = u.nodes["a"].Connect()
	u.client = client.New(u.nc)
	waitWhole(t, u.client, upgradeShards)
	ctx, stop := context.WithCancel(t.Context())
	u.stop = stop
	t.Cleanup(stop)
	go u.ask(ctx)
	u.exact()
	return u
}

// node prepares one of the old version.
func (u *upgrade) node(name string) *e2e.Process {
	p := e2e.Prepare(u.t, e2e.Setup{URL: u.server.URL, Binary: u.old, Settings: "node: " + name + "\n" + upgradeSettings})
	u.nodes[name] = p
	return p
}

// ask publishes and asks for what it has published. Nobody else does: each answer is
// exact, whoever gives it. While a node is replaced a request may get no answer.
func (u *upgrade) ask(ctx context.Context) {
	defer close(u.done)
	js, err := jetstream.New(u.nc)
	if err != nil {
		u.t.Error(err)
		return
	}
	want := make([]int64, upgradePosts)
	var ids []uint64
	for i := range want {
		ids = append(ids, uint64(i+1))
	}
	for n := 0; ctx.Err() == nil; n++ {
		post := n % upgradePosts
		ack, err := js.Publish(ctx, "events.like", fmt.Appendf(nil, `{"actor":%d,"post":%d,"author":9}`, 1000+n, post+1), jetstream.WithMsgID(fmt.Sprint("like-", n)))
		if err != nil {
			n--
			continue
		}
		want[post]++
		u.compare(ctx, ids, want, client.Position(ack.Sequence+1)<<10-1)
	}
}

// compare asks until there is an answer, and compares it.
func (u *upgrade) compare(ctx context.Context, ids []uint64, want []int64, at client.Position) {
	for last := error(nil); ; {
		got, err := u.client.GetMany(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: []string{"like"}, MinPosition: at, Timeout: 5 * time.Second})
		if ctx.Err() != nil {
			return
		}
		if err == nil && got.Degraded {
			err = fmt.Errorf("degraded, missing %v", got.Missing)
		}
		if err != nil {
			u.whole.Store(0)
			if last == nil || last.Error() != err.Error() {
				u.t.Logf("asked again: %v", err)
				last = err
			}
			continue
		}
		for i, row := range got.Rows {
			if row.Values[0] != want[i] {
				u.t.Errorf("post %d has %d likes at %d, not %d", ids[i], row.Values[0], at, want[i])
			}
		}
		u.asked.Add(1)
		u.whole.Add(1)
		return
	}
}

// exact waits until all nodes answer: many answers come in a row, each at once.
func (u *upgrade) exact() {
	u.t.Helper()
	u.whole.Store(0)
	e2e.Until(u.t, "exact answers, each at once", func() bool { return u.whole.Load() >= 20 })
	u.t.Logf("exact after %.1f s", time.Since(u.begun).Seconds())
}

// mix has nodes of both versions: one of the next version comes, which takes shards from
// those that are there, and one of the old is replaced.
func (u *upgrade) mix() {
	u.t.Helper()
	c := u.node("c")
	c.Use(u.next)
	c.Start()
	waitWhole(u.t, u.client, upgradeShards)
	u.exact() // of some shards only nodes of the old version have a copy: c asks them
	u.replaced("a")
	u.backup(1)
	for _, p := range u.nodes { // a command of either version has all nodes compute
		p.Do("verify", "--all")
	}
	u.exact()
}

// replaced stops a node and starts it with the next version.
func (u *upgrade) replaced(name string) {
	u.t.Helper()
	p := u.nodes[name]
	p.Stop()
	p.Use(u.next)
	p.Start()
	p.WaitReady()
	waitWhole(u.t, u.client, upgradeShards)
	u.exact()
}

// backup makes one with the next version, in a version that all read.
func (u *upgrade) backup(version int) {
	u.t.Helper()
	to := u.t.TempDir()
	u.nodes["c"].Do("backup", to)
	manifests, err := filepath.Glob(filepath.Join(to, "backups", "*"))
	if err != nil || len(manifests) != 1 {
		u.t.Fatal(manifests, err)
	}
	text, err := os.ReadFile(manifests[0])
	if want := fmt.Sprintf(`"format":%d`, version); err != nil || !strings.Contains(string(text), want) {
		u.t.Errorf("the manifest does not have %s: %.200s, %v", want, text, err)
	}
}

// newest is the version of the newest window in DELTAS.
func (u *upgrade) newest() int {
	u.t.Helper()
	stream := natstest.Stream(u.t, u.nc, jetlog.DeltasStream)
	m, err := stream.GetMsg(u.t.Context(), stream.CachedInfo().State.LastSeq)
	if err != nil || !strings.HasPrefix(string(m.Data), "TMW") {
		u.t.Fatalf("%v, %v", m, err)
	}
	return int(m.Data[3])
}

// refused starts a node that must not run, and end by itself with an error that has all
// of some words.
func (u *upgrade) refused(p *e2e.Process, binary string, words ...string) {
	u.t.Helper()
	p.Use(binary)
	p.Spawn()
	e2e.Until(u.t, "the node ends by itself", func() bool { return p.Ended() != nil })
	lines := strings.Split(strings.TrimSpace(logOf(u.t, p)), "\n")
	for _, word := range words {
		if last := lines[len(lines)-1]; p.Ended().ExitCode() != 1 || !strings.Contains(last, word) {
			u.t.Errorf("it ends with %d and says %q, not %q", p.Ended().ExitCode(), last, word)
		}
	}
}

func (u *upgrade) end() {
	u.t.Helper()
	u.stop()
	<-u.done
	u.t.Logf("%d exact answers", u.asked.Load())
}
