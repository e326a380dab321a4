package backup

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

// suspend does to the lock what suspending the process does: it is not renewed.
func suspend(p Place) {
	h := p.(*bucket).held.Load()
	close(h.end)
	<-h.over
	h.end = make(chan struct{}) // for unlock
}

// theBucket is the object store, as a process of its own opens it.
func theBucket(t *testing.T, nc *nats.Conn) Place {
	t.Helper()
	p, err := OpenPlace(t.Context(), "nats:BACKUPS", nc, true)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// silently are options of a backup that nobody reads about.
func silently(keep int) Options {
	return Options{Shards: 1, Keep: keep, Generations: firstRecord, Logger: slog.New(slog.DiscardHandler)}
}

// later has a process find that the server's clock is an hour ahead: locks that are not written
// have expired.
func later(p Place) {
	b := p.(*bucket)
	b.js = wrongClock{b.js, time.Hour}
}

// A backup to an object store is suspended when all its objects are read back, just
// before its manifest, and another one is made meanwhile, which prunes: the first one
// writes no manifest of what is gone.
func TestSuspendedBeforeTheManifest(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	a, b := theBucket(t, nc), theBucket(t, nc)
	later(b)
	o := silently(1)
	o.Progress = func(done, of int) {
		if done < of {
			return
		}
		suspend(a)
		m, err := Make(t.Context(), b, &exports{runs: [][]byte{[]byte("of the second")}, reads: -1}, silently(1))
		if err != nil {
			t.Error(err)
			return
		}
		if err := Verify(t.Context(), b, m); err != nil {
			t.Error(err)
		}
	}
	if _, err := Make(t.Context(), a, &exports{runs: [][]byte{[]byte("of the first")}, reads: -1}, o); !errors.Is(err, ErrInUse) {
		t.Errorf("the first one: %v", err)
	}
	all, err := List(t.Context(), b)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d backups, %v", len(all), err)
	}
	if err := Verify(t.Context(), b, all[0]); err != nil {
		t.Errorf("a backup that is listed: %v", err)
	}
}

// One that is suspended while it prunes removes nothing that the other one has come to
// use meanwhile.
func TestSuspendedAmidPruning(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	place, other := theBucket(t, nc), theBucket(t, nc)
	later(other)
	o := silently(1)
	kept := &exports{runs: [][]byte{[]byte("kept")}, reads: -1}
	if _, err := Make(t.Context(), place, kept, o); err != nil {
		t.Fatal(err)
	}
	// The next one does not name the run, which is to go. One that does is made before.
	paused := &pausing{Place: place, before: func() {
		suspend(place)
		m, err := Make(t.Context(), other, kept, o)
		if err != nil {
			t.Error(err)
			return
		}
		if err := Verify(t.Context(), other, m); err != nil {
			t.Error(err)
		}
	}}
	if _, err := Make(t.Context(), paused, &exports{runs: [][]byte{[]byte("next")}, reads: -1}, o); err != nil {
		t.Fatal(err)
	}
	all, err := List(t.Context(), other)
	if err != nil || len(all) == 0 || paused.before != nil {
		t.Fatalf("%d backups, %v", len(all), err)
	}
	for _, m := range all {
		if err := Verify(t.Context(), other, m); err != nil {
			t.Errorf("a backup that is listed: %v", err)
		}
	}
}

// unanswered stores what is said of objects, and loses the answers.
type unanswered struct{ jetstream.JetStream }

func (u unanswered) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := u.JetStream.PublishMsg(ctx, m, o...)
	var info jetstream.ObjectInfo
	if err == nil && json.Unmarshal(m.Data, &info) == nil && info.Name != lockName {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

// The server stores a manifest and its answer is lost: the backup fails, and what is
// listed is whole, else no backup would be removed any more.
func TestManifestUnanswered(t *testing.T) {
	t.Parallel()
	place := theBucket(t, natstest.Connect(t, natstest.Server(t)))
	b := place.(*bucket)
	b.js = unanswered{b.js}
	if _, err := Make(t.Context(), place, &exports{runs: [][]byte{[]byte("run")}, reads: -1}, silently(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("made: %v", err)
	}
	all, err := List(t.Context(), place)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d backups, %v", len(all), err)
	}
	if err := Verify(t.Context(), place, all[0]); err != nil {
		t.Error(err)
	}
}

// A server that does not know the condition says that it is too old, not that the lock is
// lost. One whose version says nothing is tried.
func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{
		"1.4.1": true, "2.9.25": true, "2.10.29": true, "2.11.0": false, "2.11.0-preview.2": false, "2.15.2": false, "3.0.0": false, "": false, "dev": false,
	} {
		if err := tooOld(version); (err != nil) != want {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// unheard stores messages of the lock, and loses the answers of all but the first.
type unheard struct {
	jetstream.JetStream
	locked bool
}

func (u *unheard) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := u.JetStream.PublishMsg(ctx, m, o...)
	var info jetstream.ObjectInfo
	if err != nil || json.Unmarshal(m.Data, &info) != nil || info.Name != lockName {
		return ack, err
	}
	if !u.locked {
		u.locked = true
		return ack, nil
	}
	return nil, context.DeadlineExceeded
}

// lagging is a server that answers the next look at the lock from a copy that lags.
type lagging struct {
	jetstream.JetStream
	shows atomic.Pointer[jetstream.RawStreamMsg]
}

func (l *lagging) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := l.JetStream.Stream(ctx, name)
	return &laggingStream{stream, l}, err
}

type laggingStream struct {
	jetstream.Stream
	of *lagging
}

func (l *laggingStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if before := l.of.shows.Swap(nil); before != nil {
		return before, nil
	}
	return l.Stream.GetLastMsgForSubject(ctx, subject)
}

// The server renews a lock and its answer is lost: the lock is this process's still. So it is
// where a copy of the bucket that lags shows the lock of the process that had it before.
func TestRenewalUnanswered(t *testing.T) {
	t.Parallel()
	place := theBucket(t, natstest.Connect(t, natstest.Server(t)))
	b := place.(*bucket)
	before, err := place.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before()
	stream, err := b.js.Stream(t.Context(), "OBJ_BACKUPS")
	if err != nil {
		t.Fatal(err)
	}
	others, err := stream.GetLastMsgForSubject(t.Context(), b.meta(lockName))
	if err != nil {
		t.Fatal(err)
	}
	lags := &lagging{JetStream: b.js}
	b.js = &unheard{JetStream: lags}
	unlock, err := place.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for name, shows := range map[string]*jetstream.RawStreamMsg{"a": nil, "b": nil, "c": others} {
		for range 2 {
			if err := b.held.Load().write(t.Context(), false); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		lags.shows.Store(shows)
		if err := place.Put(t.Context(), manifestPrefix+name, strings.NewReader("of this process")); err != nil {
			t.Errorf("put %s after a renewal that was not answered: %v", name, err)
		}
	}
}

// wrongClock is a server whose clock was set since the lock was written.
type wrongClock struct {
	jetstream.JetStream
	by time.Duration
}

func (c wrongClock) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := c.JetStream.Stream(ctx, name)
	return wrongClockStream{stream, c.by}, err
}

type wrongClockStream struct {
	jetstream.Stream
	by time.Duration
}

func (c wrongClockStream) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := c.Stream.Info(ctx, o...)
	if err == nil {
		info.TimeStamp = info.TimeStamp.Add(c.by)
	}
	return info, err
}

// The lock of a process that is gone expires, whatever the server's clock does.
func TestLockExpiresWithTheClockSetBack(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	gone, next := theBucket(t, nc), theBucket(t, nc)
	unlock, err := gone.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	b := next.(*bucket)
	b.js = wrongClock{b.js, -time.Hour}
	if _, err := next.Lock(t.Context()); !errors.Is(err, ErrInUse) {
		t.Errorf("the lock of a process that renews it: %v", err)
	}
	suspend(gone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := next.Lock(ctx)
	if err != nil {
		t.Fatalf("the lock of a process that is gone: %v", err)
	}
	again()
}

// pausing does something once, before its first Delete.
type pausing struct {
	Place
	before func()
}

func (p *pausing) Delete(ctx context.Context, name string) error {
	if before := p.before; before != nil {
		p.before = nil
		before()
	}
	return p.Place.Delete(ctx, name)
}
