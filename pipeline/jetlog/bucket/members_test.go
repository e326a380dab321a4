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

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

const (
	beat         = 50 * time.Millisecond
	memberExpiry = 600 * time.Millisecond // where a member is to be away, and all else is waited for
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

// wired is a process whose connection can be muted.
func (b *bench) wired() (*process, *natstest.Wire) {
	b.Helper()
	streams, wire := b.streamsOnAWire()
	return b.processOn(streams, nil, nil), wire
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
		p.b.Helper()
		stop()
		if p.nc != nil {
			p.nc.Close()
		}
		p.Close()
		e2e.Until(p.b, "the server knows that "+me.Node+" is gone", func() bool {
			_, err := p.b.js.Conn().Request(jetlog.InternalPrefix+"member."+me.Node, nil, beat)
			return errors.Is(err, nats.ErrNoResponders)
		})
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
	for round := range 6 {
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
	first, wire := b.wired()
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
// not keep others from starting, and a thin node counts nothing.
func TestMembersMustFit(t *testing.T) {
	b := newBench(t)
	first, second := b.joined("a"), b.process(nil)
	other := member("b")
	other.Shards = 32
	const want = "node b has 32 shards, node a has 16"
	if err := second.Join(b.ctx, other); !errors.Is(err, bucket.ErrMemberMisfit) || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q: %v", want, err)
	}
	thin := member("thin")
	thin.Roles, thin.Shards, thin.Fingerprint, thin.Counters = cluster.Answer, 0, 0, ""
	b.must(b.process(nil).Join(b.ctx, thin))
	first.kill()
	b.must(second.Join(b.ctx, other))
}

// A node stops in order, comes back, is drained and undrained, and is forgotten.
func TestMemberAwayAndBack(t *testing.T) {
	b := newBench(t)
	watcher, me := b.joined("w"), member("a")
	a := b.process(nil)
	b.must(a.Join(b.ctx, me))
	watcher.sees("a up", "w up")
	b.must(a.Leave(b.ctx, me)) // at once, without an expiry
	if m, _ := watcher.sees("a away", "w up").Member("a"); m.Unseen >= b.expiry || !m.Stopped {
		t.Errorf("stopped in order, and away after %v", m.Unseen)
	}
	back := b.process(nil)
	b.must(back.Join(b.ctx, me))
	still := back.beats(me)
	watcher.sees("a up", "w up")
	b.must(watcher.Drain(b.ctx, "a"))
	back.sees("a draining", "w up")
	for range 5 { // "undrain": what was drained a moment ago, too, before who is asked has heard of it
		b.must(watcher.Undrain(b.ctx, "a"))
		b.must(watcher.Drain(b.ctx, "a"))
	}
	b.must(watcher.Undrain(b.ctx, "a"))
	v := watcher.sees("a up", "w up")
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
	b.must(back.Leave(b.ctx, me))
	watcher.sees("a away", "w up")
	b.must(watcher.Forget(b.ctx, "a"))
	watcher.sees("w up")
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
	e2e.Until(t, "their keys are gone", tidied)
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

// A value that cannot be decoded is ignored: what is known stays, and who is there goes on under
// its own name.
func TestUndecodableValuesAmongTheMembers(t *testing.T) {
	b := newBench(t)
	log := new(e2e.Lines)
	watcher := b.process(slog.New(slog.NewTextHandler(log, nil)))
	b.must(watcher.Join(b.ctx, member("w")))
	watcher.beats(member("w"))
	v := watcher.sees("w up")
	next, _ := v.Next(cluster.Options{Shards: 16, Replicas: 1})
	b.must(watcher.Assign(b.ctx, v, next))
	watcher.until("the assignment", func(v *cluster.View) bool { return v.Stored })
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	for _, key := range []string{"member.x", "member.w", "assignment", "degrade", "drain.x"} {
		_, err := kv.PutString(b.ctx, key, "oops")
		b.must(err)
	}
	// An empty body with a status looked like the end of all news to the library.
	status := nats.Header{"Status": {"100"}, "Description": {"Idle"}}
	_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "$KV.TIDEMARK.member.z", Header: status})
	b.must(err)
	_, err = kv.PutString(b.ctx, "drain.w", "{}")
	b.must(err)
	v = watcher.sees("w draining")
	if v.Stored || v.Assignment.Epoch != 1 || len(v.Assignment.Held("w")) != 16 || v.Degrade != cluster.Normal {
		t.Errorf("got %+v", v)
	}
	if again, ok := v.Next(cluster.Options{Shards: 16, Replicas: 1}); !ok || again.Epoch != 2 {
		t.Errorf("what somebody wrote over is not written again: %+v", again)
	}
	if n := strings.Count(log.String(), "the value of a key is ignored"); n != 1 {
		t.Errorf("%d lines, want 1 a minute:\n%s", n, log.String())
	}
}

// A process that was cut off does not take the others for silent.
func TestCutOffIsNotSilence(t *testing.T) {
	t.Parallel()
	b := newBench(t).expiring(memberExpiry)
	a := b.joined("a")
	cut, wire := b.wired()
	b.must(cut.Join(b.ctx, member("c")))
	cut.beats(member("c"))
	cut.sees("a up", "c up")
	wire.Mute(true)
	e2e.Until(t, "it has heard nothing for long", func() bool {
		if m, _ := cut.View().Member("a"); m.Status != cluster.Up {
			t.Fatalf("a is %v, after %v of silence", m.Status, m.Unseen)
		}
		return cut.Silent() > 2*b.expiry
	})
	a.sees("a up", "c away")
	wire.Mute(false)
	a.sees("a up", "c up")
	cut.sees("a up", "c up")
}

// A bucket that goes back in time has the key of a process's own earlier session: the process
// goes on, since nobody answers in that one.
func TestMemberMeetsItsEarlierSession(t *testing.T) {
	b := newBench(t)
	a := b.process(nil)
	b.must(a.Join(b.ctx, member("a")))
	earlier := member("a")
	earlier.Session, earlier.Stopped = "earlier", true
	value, err := earlier.Encode()
	b.must(err)
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	_, err = kv.Put(b.ctx, "member.a", value)
	b.must(err)
	b.must(a.Beat(b.ctx, member("a")))
	e, err := kv.Get(b.ctx, "member.a")
	b.must(err)
	if is, err := cluster.DecodeMember("a", e.Value()); err != nil || is.Session != a.Session() {
		t.Errorf("the key is of %+v, %v", is, err)
	}
}
