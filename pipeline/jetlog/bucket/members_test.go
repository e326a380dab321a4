package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

const (
	beat         = 50 * time.Millisecond
	memberExpiry = 600 * time.Millisecond // where a member is to be away, and all else is waited for
	stallExpiry  = 3 * time.Second        // where it is to be away, and others are not: a busy machine stands still for a second
	never        = 20 * time.Second       // everywhere else
)

// process is one that joined, on a connection of its own.
type process struct {
	*bucket.Members
	b    *bench
	nc   *nats.Conn
	kill func() // as kill -9 does: the connection ends, and nothing is said
}

func member(node string) cluster.Member {
	return cluster.Member{
		Node: node, Roles: cluster.Route | cluster.Hold | cluster.Answer, Weight: 1, Version: "1", Formats: cluster.Formats{"wire": {1, 2}},
		Shards: 16, Fingerprint: 7, Counters: "post(like)", Applied: 5,
	}
}

func (b *bench) process(log *slog.Logger) *process {
	b.Helper()
	streams, _ := natstest.Streams(b, b.server)
	return b.processOn(streams, nil, log)
}

func (b *bench) processOn(streams *jetlog.Streams, nc *nats.Conn, log *slog.Logger) *process {
	b.Helper()
	m, err := bucket.OpenMembers(b.ctx, streams, bucket.MembersOptions{Beat: beat, Expiry: b.expiry, Logger: log})
	b.must(err)
	b.Cleanup(m.Close)
	return &process{Members: m, b: b, nc: nc}
}

// joined is a process that joins and goes on beating until it is killed.
func (b *bench) joined(node string) *process {
	b.Helper()
	nc := b.connect()
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)
	p := b.processOn(streams, nc, nil)
	b.must(p.Join(b.ctx, member(node)))
	p.beats(member(node))
	return p
}

// beats goes on beating until it is killed, or only that is stopped.
func (p *process) beats(me cluster.Member) (stop func()) {
	ctx, cancel := context.WithCancel(p.b.ctx)
	var beating sync.WaitGroup
	beating.Go(func() { _ = p.Keep(ctx, func() cluster.Member { return me }) })
	stop = func() { cancel(); beating.Wait() }
	p.kill = func() {
		stop()
		if p.nc != nil {
			p.nc.Close()
		}
		p.Close()
	}
	p.b.Cleanup(stop)
	return stop
}

// until waits for a view.
func (p *process) until(what string, is func(*cluster.View) bool) *cluster.View {
	p.b.Helper()
	deadline := time.After(e2e.Patience)
	for {
		changed := p.Changed()
		v := p.View()
		if is(v) {
			return v
		}
		select {
		case <-changed:
		case <-deadline:
			var members []string
			for _, m := range v.Members {
				members = append(members, fmt.Sprint(m.Node, " ", m.Status, " ", m.Unseen))
			}
			p.b.Fatalf("%s does not come: %v, epoch %d (stored: %t), drained %v, %v", what, members, v.Assignment.Epoch, v.Stored, v.Drained, v.Degrade)
		}
	}
}

// sees waits until these are all the members, as "a up".
func (p *process) sees(want ...string) *cluster.View {
	p.b.Helper()
	return p.until(fmt.Sprint(want), func(v *cluster.View) bool {
		var is []string
		for _, m := range v.Members {
			is = append(is, m.Node+" "+m.Status.String())
		}
		return slices.Equal(is, want)
	})
}

// docs/architecture.md: "so is one that counts something else", also when they start in
// the same moment: one of them is there then. The one that is refused leaves no key, in
// any slot.
func TestMisfitsAtOnce(t *testing.T) {
	b := newBench(t)
	o := natstest.Options()
	o.Slot = 1
	second, err := jetlog.OpenStreams(b.ctx, b.connect(), o)
	b.must(err)
	for round := range 20 {
		names := [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		var members [2]*process
		var errs [2]error
		var joining sync.WaitGroup
		for i := range members {
			if round%2 == 0 {
				members[i] = b.process(nil)
			} else {
				members[i] = b.processOn(second, nil, nil)
			}
		}
		for i := range members {
			joining.Go(func() {
				me := member(names[i])
				me.Fingerprint = cluster.Fingerprint(10 + i)
				errs[i] = members[i].Join(b.ctx, me)
			})
		}
		joining.Wait()
		refused := 0
		for i, err := range errs {
			if err == nil {
				b.must(members[i].Leave(b.ctx, member(names[i])))
				continue
			}
			if refused++; !errors.Is(err, bucket.ErrMemberMisfit) || !strings.Contains(err.Error(), names[1-i]) {
				t.Errorf("round %d: %v", round, err)
			}
			members[1-i].until("the refused one is gone", func(v *cluster.View) bool { _, there := v.Member(names[i]); return !there })
		}
		if refused != 1 {
			t.Fatalf("round %d: %d are refused, should be one: %v", round, refused, errs)
		}
		for _, m := range members {
			m.Close()
		}
	}
}

// docs/architecture.md: "A second process of the same name is refused",
// "A restarted process of the same name does not wait after kill -9".
func TestMemberNames(t *testing.T) {
	b := newBench(t)
	first := b.joined("a")
	second := b.process(nil)
	if err := second.Join(b.ctx, member("a")); !errors.Is(err, bucket.ErrNameTaken) {
		t.Fatalf("a second process joins as a: %v", err)
	}
	b.must(second.Join(b.ctx, member("b")))
	first.sees("a up", "b up")

	first.kill()
	begin := time.Now()
	third := b.process(nil)
	b.must(third.Join(b.ctx, member("a")))
	if took := time.Since(begin); took > b.expiry {
		t.Errorf("a restarted process waits for %v", took)
	}
	third.sees("a up", "b up")
}

// Of several that start with one name at the same time, one has it.
func TestMembersJoinTogether(t *testing.T) {
	b := newBench(t)
	var all []*process
	for range 4 {
		all = append(all, b.process(nil))
	}
	errs := make([]error, len(all))
	var joining sync.WaitGroup
	for i, p := range all {
		joining.Go(func() { errs[i] = p.Join(b.ctx, member("a")) })
	}
	joining.Wait()
	joined := 0
	for _, err := range errs {
		switch {
		case err == nil:
			joined++
		case !errors.Is(err, bucket.ErrNameTaken):
			t.Error(err)
		}
	}
	if joined != 1 {
		t.Errorf("%d have joined: %v", joined, errs)
	}
}

// A process that could not answer has lost its name to the next, and is told so.
func TestMemberOvertaken(t *testing.T) {
	b := newBench(t).expiring(memberExpiry)
	wire := natstest.NewWire(t, b.server)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://" + wire.Address()})
	b.must(err)
	t.Cleanup(nc.Close)
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)
	first := b.processOn(streams, nc, nil)
	b.must(first.Join(b.ctx, member("a")))

	wire.Mute(true) // it hears nothing, and its connection is there
	second := b.process(nil)
	begin := time.Now()
	joined := second.Join(b.ctx, member("a"))
	took := time.Since(begin)
	wire.Mute(false)
	if joined != nil || took < memberExpiry {
		t.Errorf("who does not answer and does not write is gone after an expiry: %v after %v", joined, took)
	}
	if err := first.Beat(b.ctx, member("a")); !errors.Is(err, bucket.ErrNameTaken) {
		t.Errorf("it beats: %v", err)
	}
	b.must(second.Beat(b.ctx, member("a")))
}

// docs/architecture.md: "so is one that counts something else". One that is no more does
// not keep others from starting.
func TestMembersMustFit(t *testing.T) {
	b := newBench(t)
	first := b.joined("a")
	second := b.process(nil)
	for want, change := range map[string]func(*cluster.Member){
		"node b has 32 shards, node a has 16":                                               func(m *cluster.Member) { m.Shards = 32 },
		"node b counts post(view) (fingerprint 0000000000000008); node a counts post(like)": func(m *cluster.Member) { m.Fingerprint, m.Counters = 8, "post(view)" },
		"node b counts post(like) (fingerprint 0000000000000008); node a counts post(like)": func(m *cluster.Member) { m.Fingerprint = 8 },
		"node a (version 1) reads wire of versions 1 to 2, node b (version 1) of versions 3 to 4": func(m *cluster.Member) {
			m.Formats = cluster.Formats{"wire": {3, 4}}
		},
		"node b (version 1) reads wire of versions 0 to 0, node a (version 1) of versions 1 to 2": func(m *cluster.Member) { m.Formats = nil },
	} {
		other := member("b")
		change(&other)
		if err := second.Join(b.ctx, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	thin := member("thin")
	thin.Roles, thin.Shards, thin.Fingerprint, thin.Counters = cluster.Answer, 0, 0, ""
	b.must(b.process(nil).Join(b.ctx, thin))
	first.kill()
	other := member("b")
	other.Shards = 32
	b.must(second.Join(b.ctx, other))
}

func TestMemberAwayAndBack(t *testing.T) {
	t.Parallel()
	b := newBench(t).expiring(stallExpiry)
	watcher, a := b.joined("w"), b.joined("a")
	watcher.sees("a up", "w up")
	a.kill()
	v := watcher.sees("a away", "w up")
	if m, _ := v.Member("a"); m.Unseen < b.expiry {
		t.Errorf("away after %v", m.Unseen)
	}
	back := b.process(nil)
	me := member("a")
	b.must(back.Join(b.ctx, me))
	still := back.beats(me)
	watcher.sees("a up", "w up")
	b.must(watcher.Drain(b.ctx, "a"))
	back.sees("a draining", "w up")
	b.must(watcher.Undrain(b.ctx, "a"))
	v = watcher.sees("a up", "w up")
	if m, _ := v.Member("a"); m.Drained || m.Session != back.Session() {
		t.Errorf("got %+v", m)
	}
	if err := watcher.Forget(b.ctx, "a"); !errors.Is(err, bucket.ErrNodeUp) {
		t.Errorf("a node that is up is forgotten: %v", err)
	}
	if err := watcher.Drain(b.ctx, "x"); !errors.Is(err, bucket.ErrUnknownNode) || !strings.Contains(err.Error(), "a, w") {
		t.Errorf("a node that is not there is drained: %v", err)
	}
	still()
	b.must(back.Leave(b.ctx, me)) // at once, without an expiry
	v = watcher.until("a away", func(v *cluster.View) bool { m, _ := v.Member("a"); return m.Status == cluster.Away })
	if m, _ := v.Member("a"); m.Unseen >= b.expiry || !m.Stopped {
		t.Errorf("stopped in order, and away after %v", m.Unseen)
	}
	b.must(watcher.Forget(b.ctx, "a"))
	watcher.sees("w up")
}

// "undrain": what was drained a moment ago, too, before who is asked has heard of it.
func TestUndrainAtOnce(t *testing.T) {
	b := newBench(t)
	watcher := b.joined("w")
	watcher.sees("w up")
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	for range 20 {
		b.must(watcher.Drain(b.ctx, "w"))
		b.must(watcher.Undrain(b.ctx, "w"))
		if _, err := bucket.Get(b.ctx, cluster.DrainPrefix+"w"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatalf("it is drained still: %v", err)
		}
	}
	watcher.sees("w up")
}

// A node that was killed a moment ago is forgotten at once, and what somebody
// deletes of one that is there comes back.
func TestForgetMember(t *testing.T) {
	t.Parallel()
	b := newBench(t).expiring(stallExpiry)
	watcher, a, c := b.joined("w"), b.joined("a"), b.joined("c")
	v := watcher.sees("a up", "c up", "w up")
	o := cluster.Options{Shards: 16, Replicas: 1, ReplaceAfter: time.Hour}
	next, _ := v.Next(o)
	b.must(watcher.Assign(b.ctx, v, next))
	a.kill()
	b.must(watcher.Forget(b.ctx, "a"))
	v = watcher.sees("c up", "w up")
	if next, ok := v.Next(o); !ok || len(next.Held("a")) != 0 {
		t.Errorf("its shards stay: %+v", next)
	}
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	b.must(bucket.Delete(b.ctx, "member.c"))
	for end := time.Now().Add(2 * b.expiry); time.Now().Before(end); time.Sleep(beat / 5) {
		if m, there := c.View().Member("c"); !there || m.Status != cluster.Up {
			t.Fatalf("one that is there is gone: %t, %v", there, m)
		}
	}
}

// One whose last beat comes while it is looked at is forgotten all the same.
func TestForgetAfterALateBeat(t *testing.T) {
	b := newBench(t).expiring(memberExpiry)
	watcher, a := b.joined("w"), b.joined("a")
	watcher.sees("a up", "w up")
	a.kill()
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	me := member("a")
	me.Session, me.Applied = "killed", 6
	value, err := me.Encode()
	b.must(err)
	var late atomic.Int64
	nc := b.connect()
	_, err = nc.Subscribe(jetlog.InternalPrefix+"member.a", func(asked *nats.Msg) {
		_ = asked.Sub.Unsubscribe()
		if _, err := bucket.Put(b.ctx, "member.a", value); err == nil {
			late.Add(1)
		}
	})
	b.must(err)
	b.must(nc.Flush())
	b.must(watcher.Forget(b.ctx, "a"))
	watcher.sees("w up")
	if late.Load() != 1 {
		t.Errorf("%d beats came late", late.Load())
	}
}

// docs/nodes.md: "What is not named stays as it is": also where two are told different
// things at once.
func TestDegradeAtOnce(t *testing.T) {
	b := newBench(t)
	one, other := b.process(nil), b.process(nil)
	want := cluster.Degrade{Reads: cluster.ReadsMemory, Writes: cluster.WritesRefuse}
	began := false
	is, err := one.DegradeBy(b.ctx, func(d cluster.Degrade) (cluster.Degrade, error) {
		if !began {
			began = true
			_, err := other.DegradeBy(b.ctx, func(d cluster.Degrade) (cluster.Degrade, error) { d.Writes = want.Writes; return d, nil })
			b.must(err)
		}
		d.Reads = want.Reads
		return d, nil
	})
	if b.must(err); is != want {
		t.Errorf("it says %+v", is)
	}
	one.until("both are told", func(v *cluster.View) bool { return v.Degrade == want })
	b.must(one.Degrade(b.ctx, cluster.Normal))
	one.until("it is ended", func(v *cluster.View) bool { return v.Degrade == cluster.Normal })
}

// A thin node leaves nothing behind, also when it is killed, in the end.
func TestThinMembersLeaveNothing(t *testing.T) {
	b := newBench(t).expiring(memberExpiry)
	watcher := b.joined("w")
	thin := func(node string) cluster.Member { m := member(node); m.Roles = cluster.Answer; return m }
	left, killed := b.process(nil), b.process(nil)
	b.must(left.Join(b.ctx, thin("left")))
	b.must(killed.Join(b.ctx, thin("killed")))
	watcher.until("both", func(v *cluster.View) bool { return len(v.Members) == 3 })
	b.must(left.Leave(b.ctx, thin("left")))
	watcher.sees("killed away", "w up")
	tidied := func() bool {
		b.must(watcher.TidyAfter(b.ctx, memberExpiry))
		state, err := b.streams.State(b.ctx, jetlog.BucketStream)
		b.must(err)
		return state.Messages == 2 // the watcher's, and the marks of EVENTS
	}
	for !tidied() {
		if b.ctx.Err() != nil {
			t.Fatal("their keys stay")
		}
		time.Sleep(beat)
	}
	watcher.sees("w up")
}

// "Two nodes that both take themselves for the leader cannot both
// write"
func TestTwoDeciders(t *testing.T) {
	b := newBench(t)
	first, second := b.joined("a"), b.joined("b")
	o := cluster.Options{Shards: 16, Replicas: 1}
	one, two := first.sees("a up", "b up"), second.sees("a up", "b up")
	next, ok := one.Next(o)
	other, also := two.Next(o)
	if !ok || !also {
		t.Fatal("nothing to decide")
	}
	b.must(first.Assign(b.ctx, one, next))
	if err := second.Assign(b.ctx, two, other); !errors.Is(err, bucket.ErrDecided) {
		t.Errorf("both write: %v", err)
	}
	v := second.until("the assignment", func(v *cluster.View) bool { return v.Stored })
	if v.Assignment.Epoch != 1 || len(v.Assignment.Held("a"))+len(v.Assignment.Held("b")) != 16 {
		t.Errorf("got %+v", v.Assignment)
	}
	if next, ok := v.Next(o); ok {
		t.Errorf("there is more to decide: %+v", next)
	}
}

// "A bucket that is deleted is rebuilt from what members report"
func TestMembersOutliveTheBucket(t *testing.T) {
	b := newBench(t)
	o := cluster.Options{Shards: 16, Replicas: 2, ReplaceAfter: time.Hour}
	a, c := b.joined("a"), b.joined("c")
	v := a.sees("a up", "c up")
	next, _ := v.Next(o)
	b.must(a.Assign(b.ctx, v, next))
	v = c.until("the assignment", func(v *cluster.View) bool { return v.Stored })
	b.must(c.Degrade(b.ctx, cluster.Degrade{Reads: cluster.ReadsMemory, Writes: cluster.WritesOn}))
	a.until("degraded", func(v *cluster.View) bool { return v.Degrade.Reads == cluster.ReadsMemory })

	b.must(b.js.DeleteKeyValue(b.ctx, jetlog.Bucket))
	b.must(b.streams.Restore(b.ctx))
	lost := a.until("the new bucket", func(v *cluster.View) bool { return !v.Stored })
	if lost.Assignment.Epoch != v.Assignment.Epoch || lost.Revision != 0 || lost.Degrade != cluster.Normal {
		t.Errorf("after the loss: epoch %d, revision %d, %v", lost.Assignment.Epoch, lost.Revision, lost.Degrade)
	}
	again, ok := lost.Next(o)
	if !ok || again.Epoch != v.Assignment.Epoch+1 || fmt.Sprint(again.ByShard) != fmt.Sprint(v.Assignment.ByShard) {
		t.Errorf("what is written again is not what was there: %+v", again)
	}
	b.must(a.Assign(b.ctx, lost, again))
	for _, p := range []*process{a, c} {
		p.until("all that was", func(v *cluster.View) bool {
			return v.Stored && v.Assignment.Epoch == again.Epoch && len(v.Members) == 2 && v.Members[0].Status == cluster.Up && v.Members[1].Status == cluster.Up
		})
	}
	// One that begins now finds them beating, not only remembered.
	b.process(nil).sees("a up", "c up")
}

// The same, and who decides begins only then: what nodes hold takes the place of
// what was assigned.
func TestAssignmentFromReports(t *testing.T) {
	t.Parallel()
	b := newBench(t).expiring(stallExpiry)
	for node, has := range map[string][2]pipeline.Shard{"a": {0, 10}, "c": {10, 16}} {
		p := b.process(nil)
		me := member(node)
		me.Epoch = 41
		for s := has[0]; s < has[1]; s++ {
			me.Ready.Add(s)
		}
		b.must(p.Join(b.ctx, me))
		p.beats(me)
	}
	late := b.process(nil)
	b.must(late.Join(b.ctx, member("d")))
	late.beats(member("d"))
	v := late.sees("a up", "c up", "d up")
	o := cluster.Options{Shards: 16, Replicas: 1}
	if _, ok := v.Next(o); ok && !v.Settled {
		t.Error("it does not wait for the others")
	}
	late.until("everybody's word", func(v *cluster.View) bool { return v.Settled })
	v = late.sees("a up", "c up", "d up")
	next, ok := v.Next(o)
	if !ok || next.Epoch <= 41 || len(next.Held("d")) != 5 {
		t.Fatalf("got %+v", next)
	}
	for s, holders := range next.ByShard {
		if has := (map[bool]string{true: "a", false: "c"})[s < 10]; holders[0] != has && holders[0] != "d" {
			t.Errorf("shard %d, which %s has, goes to %v", s, has, holders)
		}
	}
}

// "Foreign values in the bucket are refused, not trusted"
func TestForeignValuesAmongTheMembers(t *testing.T) {
	b := newBench(t).expiring(memberExpiry)
	log := new(e2e.Lines)
	watcher := b.process(slog.New(slog.NewTextHandler(log, nil)))
	b.must(watcher.Join(b.ctx, member("w")))
	watcher.beats(member("w"))
	v := watcher.sees("w up")
	o := cluster.Options{Shards: 16, Replicas: 1}
	next, _ := v.Next(o)
	b.must(watcher.Assign(b.ctx, v, next))
	watcher.until("the assignment", func(v *cluster.View) bool { return v.Stored })

	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	good := func(node string) string {
		m := member(node)
		m.Session = "x"
		text, _ := m.Encode()
		return string(text)
	}
	for key, values := range map[string][]string{
		"member.x":   {"", "oops", "{}", good("y"), strings.Replace(good("x"), `"weight":1`, `"weight":-1`, 1), strings.Repeat("[", 1<<15)},
		"member.w":   {"oops", good("w")}, // in its own name: it goes on
		"assignment": {"oops", `{"epoch":1,"shards":1,"replicas":1,"nodes":["a"],"holders":[[1]]}`},
		"degrade":    {"oops", `{"reads":"some","writes":"on"}`},
		"drain.x":    {"anything"},
	} {
		for _, value := range values {
			_, err := bucket.PutString(b.ctx, key, value)
			b.must(err)
		}
	}
	// An empty body with a status looked like the end of all news to the library.
	_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "$KV.TIDEMARK.member.z", Header: nats.Header{"Status": {"100"}, "Description": {"Idle"}}})
	b.must(err)
	_, err = bucket.PutString(b.ctx, "drain.w", "{}")
	b.must(err)
	v = watcher.sees("w draining")
	if v.Stored || v.Assignment.Epoch != 1 || len(v.Assignment.Held("w")) != 16 || v.Degrade != cluster.Normal {
		t.Errorf("got %+v", v)
	}
	again, ok := v.Next(o)
	if !ok || again.Epoch != 2 {
		t.Fatalf("what somebody wrote over is not written again: %+v", again)
	}
	b.must(watcher.Assign(b.ctx, v, again))
	watcher.until("the assignment", func(v *cluster.View) bool { return v.Stored && v.Assignment.Epoch == 2 })
	// It goes on beating under its own session.
	time.Sleep(2 * memberExpiry)
	watcher.sees("w draining")
	// An epoch of the past means nothing.
	old, err := next.Encode()
	b.must(err)
	_, err = bucket.Put(b.ctx, "assignment", old)
	b.must(err)
	v = watcher.until("not stored", func(v *cluster.View) bool { return !v.Stored })
	if v.Assignment.Epoch != 2 {
		t.Errorf("epoch %d is believed", v.Assignment.Epoch)
	}
	if n := strings.Count(log.String(), "holds what no node wrote"); n != 1 {
		t.Errorf("%d lines, want 1 a minute:\n%s", n, log.String())
	}
}

// However many keys somebody makes, a bounded number is looked at.
func TestTooManyMembers(t *testing.T) {
	b := newBench(t)
	watcher := b.joined("w")
	for i := range cluster.NodesMax + 10 {
		m := member(fmt.Sprintf("n%d", i))
		m.Session = "x"
		value, err := m.Encode()
		b.must(err)
		_, err = b.js.PublishAsync("$KV.TIDEMARK.member."+m.Node, value, jetstream.WithStallWait(time.Minute))
		b.must(err)
	}
	<-b.js.PublishAsyncComplete()
	v := watcher.until("many", func(v *cluster.View) bool { return len(v.Members) == cluster.NodesMax })
	if _, there := v.Member("w"); !there {
		t.Error("who was there before is not")
	}
}

// Thousands of forged keys, there before the others begin to look: real ones find each
// other all the same, and Tidy removes what nobody renews.
func TestForgedKeysBeforeTheStart(t *testing.T) {
	b := newBench(t).expiring(memberExpiry)
	flood := func(from int) {
		for i := range 2 * cluster.NodesMax {
			m := member(fmt.Sprintf("n%d", from+i))
			m.Session = "x"
			value, err := m.Encode()
			b.must(err)
			_, err = b.js.PublishAsync("$KV.TIDEMARK.member."+m.Node, value, jetstream.WithStallWait(time.Minute))
			b.must(err)
		}
		<-b.js.PublishAsyncComplete()
	}
	b.joined("early")
	flood(0)
	late := b.joined("late")
	watcher := b.process(nil)
	both := func(v *cluster.View) bool {
		for _, name := range []string{"early", "late"} {
			if m, there := v.Member(name); !there || m.Status != cluster.Up {
				return false
			}
		}
		return true
	}
	late.until("both, by one of them", both)
	watcher.until("both, by a third", both)
	values := func() uint64 {
		keys, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
		b.must(err)
		status, err := keys.Status(b.ctx)
		b.must(err)
		return status.Values()
	}
	before := values()
	watcher.until("keys that are old enough", func(v *cluster.View) bool {
		old := 0
		for _, m := range v.Members {
			if m.Unseen > 2*memberExpiry {
				old++
			}
		}
		return old > 900
	})
	b.must(watcher.TidyAfter(b.ctx, 2*memberExpiry))
	if after := values(); after > before-400 {
		t.Errorf("%d of %d keys are left", after, before)
	}
	watcher.until("both, after others are gone", both)
}

// A key in its own name does not end a process, whatever answers to the name: only the
// process whose session the key has does.
func TestForgedOwnName(t *testing.T) {
	b := newBench(t)
	p := b.process(natstest.Log(t))
	b.must(p.Join(b.ctx, member("a")))
	stranger := b.connect()
	answers := "something"
	sub, err := stranger.Subscribe("tidemark.internal.member.a", func(m *nats.Msg) { _ = m.Respond([]byte(answers)) })
	b.must(err)
	b.must(stranger.Flush())
	forge := func(session string) {
		forged := member("a")
		forged.Session = session
		value, err := forged.Encode()
		b.must(err)
		_, err = b.js.Publish(b.ctx, "$KV.TIDEMARK.member.a", value)
		b.must(err)
	}
	forge("forged")
	if err := p.Beat(b.ctx, member("a")); err != nil {
		t.Errorf("nobody has its name: %v", err)
	}
	b.must(sub.Unsubscribe())
	_, err = stranger.Subscribe("tidemark.internal.member.a", func(m *nats.Msg) { _ = m.Respond([]byte("other")) })
	b.must(err)
	b.must(stranger.Flush())
	forge("other")
	if err := p.Beat(b.ctx, member("a")); !errors.Is(err, bucket.ErrNameTaken) {
		t.Errorf("another process has its name: %v", err)
	}
}

// A process that was cut off does not take the others for silent.
func TestCutOffIsNotSilence(t *testing.T) {
	t.Parallel()
	b := newBench(t).expiring(stallExpiry)
	a := b.joined("a")
	wire := natstest.NewWire(t, b.server)
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: "nats://" + wire.Address()})
	b.must(err)
	t.Cleanup(nc.Close)
	streams, err := jetlog.OpenStreams(b.ctx, nc, natstest.Options())
	b.must(err)
	cut := b.processOn(streams, nc, nil)
	b.must(cut.Join(b.ctx, member("c")))
	cut.beats(member("c"))
	cut.sees("a up", "c up")
	wire.Mute(true)
	end := time.Now().Add(3 * b.expiry)
	for time.Now().Before(end) {
		if m, _ := cut.View().Member("a"); m.Status != cluster.Up {
			t.Fatalf("a is %v, after %v of silence", m.Status, m.Unseen)
		}
		time.Sleep(beat)
	}
	if silent := cut.Silent(); silent < 2*b.expiry {
		t.Errorf("it has heard nothing for %v", silent)
	}
	a.sees("a up", "c away")
	wire.Mute(false)
	for end = time.Now().Add(2 * b.expiry); time.Now().Before(end); time.Sleep(beat / 4) {
		if m, _ := cut.View().Member("a"); m.Status != cluster.Up {
			t.Fatalf("connected again, a is %v, after %v of silence", m.Status, m.Unseen)
		}
	}
	a.sees("a up", "c up")
}
