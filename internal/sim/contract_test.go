package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// bench is a log under test: what happens to it, and the roles on it.
type bench interface {
	// publish stores a message in EVENTS and returns its sequence. A message
	// id may be "".
	publish(subject, id string, header map[string][]string, data []byte) uint64
	// many stores so many messages at once.
	many(n int)
	deleteMessage(stream string, sequence uint64)
	purge(stream string, below uint64)
	recreate(stream string)
	// intrude stores in DELTAS what is no router's.
	intrude(data []byte)

	source(ctx context.Context, from pipeline.Position, o jetlog.RunOptions) (pipeline.Source, error)
	tailer(ctx context.Context, after uint64) (pipeline.Tailer, error)
	guarded() pipeline.Events
	log() pipeline.Log
	letters() pipeline.DeadLetters
	kept() []pipeline.Position // letters in DEADLETTER
	lease(owner string) pipeline.Lease

	// unacknowledged appends on a connection that hears nothing from the
	// server: the request arrives, the acknowledgement does not.
	unacknowledged(ctx context.Context, last uint64, window []byte) error
	// keep remembers how the streams stand; cut is a power cut after which
	// they stand like that again, and returns when clients are connected.
	keep()
	cut()
}

// contract is a test of the roles, for whatever implements them.
type contract struct {
	*testing.T
	bench
	ctx context.Context
}

func (c *contract) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *contract) is(err, want error, format string, args ...any) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, want)
	}
}

// events stores n messages, one after the other.
func (c *contract) events(n int) {
	c.Helper()
	for i := range n {
		c.publish("events.like", "", nil, fmt.Append(nil, i))
	}
}

func (c *contract) open(from pipeline.Position, o jetlog.RunOptions) pipeline.Source {
	c.Helper()
	s, err := c.source(c.ctx, from, o)
	c.must(err)
	c.Cleanup(func() { _ = s.Close() })
	return s
}

// read takes messages until n have come.
func (c *contract) read(s pipeline.Source, n int) (all []pipeline.Message) {
	c.Helper()
	for len(all) < n {
		run, err := s.Next(c.ctx)
		c.must(err)
		if len(run) == 0 {
			c.Fatal("an empty run")
		}
		all = append(all, run...)
	}
	return all
}

func sequencesOf(messages []pipeline.Message) (all []uint64) {
	for _, m := range messages {
		all = append(all, m.Sequence)
	}
	return all
}

func (c *contract) reads(s pipeline.Source, want ...uint64) {
	c.Helper()
	if got := sequencesOf(c.read(s, len(want))); !slices.Equal(got, want) {
		c.Errorf("got %v, want %v", got, want)
	}
}

func (c *contract) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	c.Cleanup(cancel)
	return ctx
}

// windowOf is a window of no changes.
func windowOf(from, to pipeline.Position) []byte {
	return pipeline.AppendWindow(nil, &pipeline.Window{Header: pipeline.Header{From: from, To: to, Rules: 7, Events: 1}})
}

// append appends n windows, each of one position.
func (c *contract) append(n int) {
	c.Helper()
	h, last, err := c.log().Tail(c.ctx)
	c.must(err)
	for range n {
		last, err = c.log().Append(c.ctx, last, windowOf(h.To, h.To+1))
		c.must(err)
		h.To++
	}
}

// next is what a source or tailer answers.
type next[T any] interface {
	Next(ctx context.Context) ([]T, error)
}

// ends reads until there is an error, which must last.
func ends[T any](c *contract, s next[T], want error) (read int) {
	c.Helper()
	for {
		run, err := s.Next(c.ctx)
		if err == nil {
			read += len(run)
			continue
		}
		c.is(err, want, "after %d", read)
		_, err = s.Next(c.ctx)
		c.is(err, want, "once more")
		return read
	}
}

// contractTests hold the sentences of pipeline/roles.go, and those of jetlog's
// constructors that a node relies on. The names of the sentences are the
// tests'.
var contractTests = map[string]func(c *contract){
	"a message as the stream holds it": func(c *contract) {
		before := time.Now().Add(-time.Second).UnixMilli()
		c.publish("events.post", "", map[string][]string{"Trace": {"a", "b"}}, []byte(`{"post":1}`))
		c.publish("events.like", "", nil, nil)
		got := c.read(c.open(0, jetlog.RunOptions{}), 2)
		m := got[0]
		if m.Sequence != 1 || m.Subject != "events.post" || string(m.Data) != `{"post":1}` || !slices.Equal(m.Header["Trace"], []string{"a", "b"}) {
			c.Errorf("got %+v", m)
		}
		if m.Time < before || m.Time > time.Now().Add(time.Second).UnixMilli() {
			c.Errorf("time %d is not now in milliseconds", m.Time)
		}
		if m := got[1]; m.Header != nil || len(m.Data) != 0 || m.Time < got[0].Time {
			c.Errorf("got %+v", m)
		}
	},
	"data is owned by the receiver": func(c *contract) {
		c.publish("events.like", "", map[string][]string{"A": {"b"}}, []byte("body"))
		m := c.read(c.open(0, jetlog.RunOptions{}), 1)[0]
		copy(m.Data, "XXXX")
		m.Header["A"] = []string{"X"}
		if m := c.read(c.open(0, jetlog.RunOptions{}), 1)[0]; string(m.Data) != "body" || m.Header["A"][0] != "b" {
			c.Errorf("another reader gets %q %v", m.Data, m.Header)
		}
	},
	"a message id is stored once": func(c *contract) {
		first := c.publish("events.like", "x", nil, []byte("1"))
		if again := c.publish("events.like", "x", nil, []byte("2")); again != first {
			c.Errorf("stored as %d and %d", first, again)
		}
		if second := c.publish("events.like", "y", nil, nil); second != first+1 {
			c.Errorf("the next one is %d", second)
		}
	},
	"the message that from.Next names comes first": func(c *contract) {
		c.events(10)
		for from, want := range map[pipeline.Position]uint64{
			0: 1, pipeline.EndOf(4): 5, pipeline.At(4, 3): 4, pipeline.EndOf(9): 10,
		} {
			if got := c.read(c.open(from, jetlog.RunOptions{}), 1)[0].Sequence; got != want {
				c.Errorf("from %d.%d: begins at %d, want %d", from.Sequence(), from.Line(), got, want)
			}
		}
		end := c.open(pipeline.EndOf(10), jetlog.RunOptions{})
		c.events(2)
		c.reads(end, 11, 12)
	},
	"a source refuses what does not join": func(c *contract) {
		c.events(10)
		c.purge(jetlog.EventsStream, 5)
		for _, w := range []struct {
			from pipeline.Position
			want error
		}{
			{0, pipeline.ErrGap},
			{pipeline.EndOf(3), pipeline.ErrGap},
			{pipeline.EndOf(4), nil},
			{pipeline.At(5, 3), nil},
			{pipeline.EndOf(10), nil},
			{pipeline.At(11, 0), jetlog.ErrTail},
			{pipeline.EndOf(11), jetlog.ErrTail},
		} {
			s, err := c.source(c.ctx, w.from, jetlog.RunOptions{})
			c.is(err, w.want, "from %d.%d", w.from.Sequence(), w.from.Line())
			if err == nil {
				_ = s.Close()
			}
		}
	},
	"messages that are missing between others are damage": func(c *contract) {
		c.events(6)
		for _, gone := range []uint64{1, 3, 4} {
			c.deleteMessage(jetlog.EventsStream, gone)
		}
		s := c.open(pipeline.EndOf(1), jetlog.RunOptions{})
		c.reads(s, 2)
		_, err := s.Next(c.ctx)
		if damage, is := errors.AsType[*pipeline.Hole](err); !is || *damage != (pipeline.Hole{First: 3, Last: 4}) {
			c.Errorf("3 and 4 are missing: %v", err)
		}
		c.reads(c.open(pipeline.EndOf(4), jetlog.RunOptions{}), 5, 6)
		_, err = c.source(c.ctx, 0, jetlog.RunOptions{})
		c.is(err, pipeline.ErrGap, "the front is deleted") // told from one never stored only between first and last
	},
	"a deleted end is passed over": func(c *contract) {
		c.events(4)
		s := c.open(pipeline.EndOf(2), jetlog.RunOptions{MessagesMax: 1})
		c.reads(s, 3)
		c.deleteMessage(jetlog.EventsStream, 4)
		late := c.open(pipeline.EndOf(4), jetlog.RunOptions{})
		c.events(2)
		c.reads(late, 5, 6)
	},
	"what leaves the front before it was read is a gap": func(c *contract) {
		const far = 30_000 // more than is taken off the wire ahead
		c.many(far)
		s := c.open(0, jetlog.RunOptions{MessagesMax: 100})
		read := len(c.read(s, 100))
		c.purge(jetlog.EventsStream, far-10)
		if read += ends(c, s, pipeline.ErrGap); read >= far-11 {
			c.Errorf("%d of %d were read", read, far)
		}
	},
	"Next ends with its context, and loses nothing": func(c *contract) {
		s := c.open(0, jetlog.RunOptions{})
		_, err := s.Next(c.within(50 * time.Millisecond))
		c.is(err, context.DeadlineExceeded, "nothing there")
		c.events(2)
		c.reads(s, 1, 2)
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		_, err = s.Next(ended)
		c.is(err, context.Canceled, "ended before")
		c.events(2)
		c.reads(s, 3, 4)
	},
	"Next blocks until there is a message": func(c *contract) {
		s := c.open(0, jetlog.RunOptions{})
		got := make(chan []pipeline.Message)
		go func() {
			run, _ := s.Next(c.ctx)
			got <- run
		}()
		select {
		case run := <-got:
			c.Fatalf("got %v of an empty stream", run)
		case <-time.After(30 * time.Millisecond):
		}
		c.publish("events.like", "", nil, nil)
		if run := <-got; len(run) != 1 {
			c.Errorf("got %v", run)
		}
	},
	"runs are bounded": func(c *contract) {
		c.many(50)
		if run, err := c.open(0, jetlog.RunOptions{MessagesMax: 7, Linger: time.Second}).Next(c.ctx); err != nil || len(run) != 7 {
			c.Errorf("a run of %d, %v", len(run), err)
		}
		if run, err := c.open(0, jetlog.RunOptions{BytesMax: 9, Linger: time.Second}).Next(c.ctx); err != nil || len(run) != 1 {
			c.Errorf("by bytes, a run of %d, %v", len(run), err)
		}
	},
	"a closed reader reads no more": func(c *contract) {
		c.events(2)
		s := c.open(0, jetlog.RunOptions{})
		c.must(s.Close())
		c.must(s.Close())
		if _, err := s.Next(c.ctx); err == nil {
			c.Error("it does")
		}
	},
	"a source ends with a stream recreated": func(c *contract) {
		c.events(2)
		s := c.open(0, jetlog.RunOptions{Heartbeat: 200 * time.Millisecond})
		c.reads(s, 1, 2)
		c.recreate(jetlog.EventsStream)
		ends(c, s, jetlog.ErrTail)
		_, err := c.source(c.ctx, 0, jetlog.RunOptions{})
		c.is(err, jetlog.ErrTail, "opened again")
	},

	"a tailer follows in order": func(c *contract) {
		c.append(3)
		t, err := c.tailer(c.ctx, 1)
		c.must(err)
		defer t.Close()
		var got []pipeline.Entry
		for len(got) < 4 {
			if len(got) == 2 {
				c.append(2)
			}
			run, err := t.Next(c.ctx)
			c.must(err)
			got = append(got, run...)
		}
		for i, e := range got {
			want := windowOf(pipeline.Position(i+1), pipeline.Position(i+2))
			if e.Sequence != uint64(i+2) || !bytes.Equal(e.Window, want) || e.Time == 0 {
				c.Errorf("entry %d: %+v", i, e)
			}
		}
	},
	"a tailer refuses what does not join": func(c *contract) {
		c.append(5)
		c.purge(jetlog.DeltasStream, 4)
		for after, want := range map[uint64]error{0: pipeline.ErrGap, 2: pipeline.ErrGap, 3: nil, 5: nil, 6: jetlog.ErrTail} {
			t, err := c.tailer(c.ctx, after)
			c.is(err, want, "after %d", after)
			if err == nil {
				_ = t.Close()
			}
		}
	},

	"a new log's tail is zero": func(c *contract) {
		h, last, err := c.log().Tail(c.ctx)
		if c.must(err); h != (pipeline.Header{}) || last != 0 {
			c.Errorf("got %+v, %d", h, last)
		}
	},
	"an append is a compare-and-set": func(c *contract) {
		first, second := c.log(), c.log()
		got, err := first.Append(c.ctx, 0, windowOf(0, 10))
		if c.must(err); got != 1 {
			c.Errorf("sequence %d", got)
		}
		_, err = second.Append(c.ctx, 0, windowOf(0, 99))
		c.is(err, pipeline.ErrFenced, "the second writer")
		_, err = second.Append(c.ctx, 5, windowOf(10, 99))
		c.is(err, pipeline.ErrFenced, "beyond the end")
		h, last, err := second.Tail(c.ctx)
		if c.must(err); last != 1 || h != (pipeline.Header{From: 0, To: 10, Rules: 7, Events: 1}) {
			c.Errorf("tail %+v at %d", h, last)
		}
	},
	"a window is not kept": func(c *contract) {
		w := windowOf(0, 10)
		_, err := c.log().Append(c.ctx, 0, w)
		c.must(err)
		clear(w)
		h, _, err := c.log().Tail(c.ctx)
		if c.must(err); h.To != 10 {
			c.Errorf("tail %+v", h)
		}
	},
	"of two appenders each sequence is one's": func(c *contract) {
		const windows = 60
		var stored, fenced atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			log := c.log()
			wg.Go(func() {
				for {
					h, last, err := log.Tail(c.ctx)
					if err != nil || last >= windows {
						return
					}
					switch _, err := log.Append(c.ctx, last, windowOf(h.To, h.To+1)); {
					case err == nil:
						stored.Add(1)
					case errors.Is(err, pipeline.ErrFenced):
						fenced.Add(1)
					default:
						c.Error(err)
					}
				}
			})
		}
		wg.Wait()
		h, last, err := c.log().Tail(c.ctx)
		if c.must(err); int64(last) != stored.Load() || uint64(h.To) != last {
			c.Errorf("%d stored, %d fenced, and the tail is %+v at %d", stored.Load(), fenced.Load(), h, last)
		}
	},
	"an unknown append is not ErrFenced": func(c *contract) {
		err := c.unacknowledged(c.within(300*time.Millisecond), 0, windowOf(0, 10))
		if err == nil || errors.Is(err, pipeline.ErrFenced) {
			c.Fatalf("got %v, want neither success nor ErrFenced", err)
		}
		h, last, err := c.log().Tail(c.ctx)
		if c.must(err); last != 1 || h.To != 10 {
			c.Errorf("the window was stored, but the tail is %+v at %d", h, last)
		}
		_, err = c.log().Append(c.ctx, 0, windowOf(0, 10))
		c.is(err, pipeline.ErrFenced, "a blind retry")
	},
	"an append after its context has ended": func(c *contract) {
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		_, err := c.log().Append(ended, 0, windowOf(0, 10))
		c.is(err, context.Canceled, "append")
		_, _, err = c.log().Tail(ended)
		c.is(err, context.Canceled, "tail")
	},
	"a log without its last window is recreated": func(c *contract) {
		for _, harm := range []func(){
			func() { c.deleteMessage(jetlog.DeltasStream, 2) },
			func() { c.purge(jetlog.DeltasStream, 3) },
			func() { c.intrude([]byte("oops")) },
			func() { c.intrude(windowOf(2, 3)) },
		} {
			c.append(2)
			before := c.log()
			_, _, err := before.Tail(c.ctx)
			c.must(err)
			harm()
			log := c.log()
			if h, last, err := log.Tail(c.ctx); err != nil || last != 0 || h != (pipeline.Header{}) {
				c.Fatalf("tail %+v at %d, %v", h, last, err)
			}
			if got, err := before.Append(c.ctx, 2, windowOf(2, 3)); err == nil {
				c.Errorf("appended behind what is gone: %d", got)
			}
			if got, err := log.Append(c.ctx, 0, windowOf(2, 3)); err != nil || got != 1 {
				c.Errorf("its sequences begin again: %d, %v", got, err)
			}
			c.recreate(jetlog.DeltasStream)
		}
	},
	"who follows is told of what is no router's, behind what is": func(c *contract) {
		c.append(2)
		c.intrude([]byte("oops"))
		t, err := c.tailer(c.ctx, 0)
		c.must(err)
		defer t.Close()
		if n := ends(c, t, jetlog.ErrForeign); n != 2 {
			c.Errorf("%d windows, want 2", n)
		}
	},
	"a log recreated is another one": func(c *contract) {
		c.append(1)
		log := c.log()
		_, last, err := log.Tail(c.ctx)
		if c.must(err); last != 1 {
			c.Fatalf("the log ends with %d", last)
		}
		t, err := c.tailer(c.ctx, 0)
		c.must(err)
		defer t.Close()
		_, err = t.Next(c.ctx)
		c.must(err)
		c.recreate(jetlog.DeltasStream)
		c.append(1)
		if got, err := log.Append(c.ctx, 1, windowOf(1, 2)); err == nil {
			c.Errorf("appended to another log: %d", got)
		}
		if _, err := t.Next(c.ctx); err == nil {
			c.Error("the reader goes on in another log")
		}
		if h, last, err := log.Tail(c.ctx); err != nil || last != 1 || h.To != 1 {
			c.Errorf("tail %+v at %d, %v", h, last, err)
		}
	},

	"the oldest window is where the log takes over": func(c *contract) {
		first := func(header pipeline.Header, sequence uint64) {
			c.Helper()
			h, oldest, err := c.log().First(c.ctx)
			if c.must(err); h.From != header.From || h.To != header.To || oldest != sequence {
				c.Errorf("%+v at %d, want %+v at %d", h, oldest, header, sequence)
			}
		}
		first(pipeline.Header{}, 0)
		c.append(5)
		first(pipeline.Header{To: 1}, 1)
		c.purge(jetlog.DeltasStream, 4)
		first(pipeline.Header{From: 3, To: 4}, 4)
		if h, err := c.log().At(c.ctx, 5); err != nil || h.From != 4 || h.To != 5 {
			c.Errorf("window 5 is %+v, %v", h, err)
		}
		for _, gone := range []uint64{3, 6} {
			if h, err := c.log().At(c.ctx, gone); err == nil {
				c.Errorf("window %d is %+v", gone, h)
			}
		}
		c.purge(jetlog.DeltasStream, 6)
		first(pipeline.Header{}, 0)
	},

	"what is passed over means nothing": func(c *contract) {
		e := c.guarded()
		last := func(want uint64) {
			c.Helper()
			if got, err := e.Last(c.ctx); err != nil || got != want {
				c.Errorf("EVENTS ends at %d, %v, want %d", got, err, want)
			}
		}
		last(0)
		c.events(3)
		for _, past := range []uint64{2, 6, 6} {
			c.must(e.FastForward(c.ctx, past))
			last(max(3, past))
		}
		for _, m := range c.read(c.open(pipeline.EndOf(3), jetlog.RunOptions{}), 3) {
			if m.Subject != jetlog.FillerSubject || len(m.Data) != 0 || len(m.Header[jetlog.HeaderFiller]) == 0 {
				c.Errorf("got %+v", m)
			}
		}
	},
	"what is younger than what was counted is moved behind it, once": func(c *contract) {
		e := c.guarded()
		c.events(3)
		time.Sleep(5 * time.Millisecond)
		at := time.Now().UnixMilli()
		time.Sleep(5 * time.Millisecond)
		for i := range 4 { // 4 to 7, of which 6 were counted
			c.publish("events.like", "", map[string][]string{"A": {"b"}}, fmt.Append(nil, "new ", i))
		}
		for _, want := range []int{3, 0} {
			if moved, err := e.Reclaim(c.ctx, 6, at); err != nil || moved != want {
				c.Errorf("%d moved, %v, want %d", moved, err, want)
			}
		}
		got := c.read(c.open(0, jetlog.RunOptions{}), 10)
		if sequences := sequencesOf(got); !slices.Equal(sequences, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
			c.Fatalf("EVENTS holds %v", sequences)
		}
		for _, m := range got[3:6] {
			if m.Subject != jetlog.FillerSubject || len(m.Data) != 0 || len(m.Header[jetlog.HeaderFiller]) == 0 {
				c.Errorf("where something was moved from stands %+v", m)
			}
		}
		for i, want := range []string{"new 0", "new 1", "new 2"} {
			if m := got[7+i]; string(m.Data) != want || m.Subject != "events.like" || m.Time <= at {
				c.Errorf("moved: %+v, want %s", m, want)
			}
		}
		if moved, err := e.Reclaim(c.ctx, 10, time.Now().UnixMilli()); err != nil || moved != 0 {
			c.Errorf("%d moved, %v, and nothing is younger", moved, err)
		}
	},
	"an EVENTS recreated is another one": func(c *contract) {
		e := c.guarded()
		c.events(2)
		c.recreate(jetlog.EventsStream)
		_, err := e.Last(c.ctx)
		c.is(err, jetlog.ErrTail, "last")
	},

	"a letter is kept once": func(c *contract) {
		var letters []pipeline.DeadLetter
		var want []pipeline.Position
		for i := range 300 {
			letters = append(letters, pipeline.DeadLetter{
				Position: pipeline.At(uint64(i+1), i%3), Reason: pipeline.ReasonJSON, Detail: "no", Data: []byte("x"),
			})
			want = append(want, letters[i].Position)
		}
		other := letters[7]
		other.Data = []byte("another event, which has the position now")
		letters, want = append(letters, other), append(want, other.Position)
		slices.Sort(want)
		c.must(c.letters().Keep(c.ctx, letters[:200]))
		c.must(c.letters().Keep(c.ctx, letters))
		got := c.kept()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			c.Errorf("%d letters, want %d", len(got), len(want))
		}
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		c.is(c.letters().Keep(ended, letters), context.Canceled, "ended before")
	},

	"the lease has one holder": func(c *contract) {
		held, release, err := c.lease("a").Acquire(c.ctx)
		c.must(err)
		defer release()
		_, _, err = c.lease("b").Acquire(c.within(100 * time.Millisecond))
		c.is(err, context.DeadlineExceeded, "another")
		c.is(held.Err(), nil, "the holder")
	},
	"a released lease is taken at once": func(c *contract) {
		held, release, err := c.lease("a").Acquire(c.ctx)
		c.must(err)
		release()
		release()
		c.is(context.Cause(held), context.Canceled, "released")
		_, again, err := c.lease("b").Acquire(c.ctx)
		c.must(err)
		again()
	},
	"a restarted owner takes its lease at once": func(c *contract) {
		old, oldRelease, err := c.lease("a").Acquire(c.ctx)
		c.must(err)
		held, release, err := c.lease("a").Acquire(c.ctx)
		c.must(err)
		defer release()
		<-old.Done()
		c.is(context.Cause(old), bucket.ErrLeaseLost, "the old one")
		oldRelease()
		c.is(held.Err(), nil, "the new one")
		_, _, err = c.lease("b").Acquire(c.within(100 * time.Millisecond))
		c.is(err, context.DeadlineExceeded, "another, after the old one's release")
	},
	"the lease ends with its context": func(c *contract) {
		ctx, cancel := context.WithCancel(c.ctx)
		held, release, err := c.lease("a").Acquire(ctx)
		c.must(err)
		cancel()
		<-held.Done()
		_, _, err = c.lease("b").Acquire(ctx)
		c.is(err, context.Canceled, "ended before")
		release()
		_, again, err := c.lease("b").Acquire(c.ctx)
		c.must(err)
		again()
	},

	// What a power cut leaves: streams that end earlier (I10).
	"readers go on where the stream still is what they read": func(c *contract) {
		c.events(4)
		c.append(2)
		s := c.open(0, jetlog.RunOptions{MessagesMax: 1})
		c.reads(s, 1, 2, 3)
		t, err := c.tailer(c.ctx, 0)
		c.must(err)
		defer t.Close()
		for n := 0; n < 2; {
			run, err := t.Next(c.ctx)
			c.must(err)
			n += len(run)
		}
		c.keep()
		c.cut()
		c.events(2)
		c.append(1)
		c.reads(s, 4, 5, 6)
		if run, err := t.Next(c.ctx); err != nil || len(run) != 1 || run[0].Sequence != 3 {
			c.Errorf("the tailer gets %v, %v", run, err)
		}
	},
	"readers end where the stream ends before what they read": func(c *contract) {
		c.events(4)
		c.append(2)
		c.keep()
		c.events(4)
		c.append(2)
		s := c.open(0, jetlog.RunOptions{})
		c.reads(s, 1, 2, 3, 4, 5, 6, 7, 8)
		t, err := c.tailer(c.ctx, 3)
		c.must(err)
		defer t.Close()
		_, err = t.Next(c.ctx)
		c.must(err)
		c.cut()
		ends(c, s, jetlog.ErrTail)
		ends(c, t, jetlog.ErrTail)
		_, err = c.source(c.ctx, pipeline.EndOf(8), jetlog.RunOptions{})
		c.is(err, jetlog.ErrTail, "opened past the end")
		c.reads(c.open(pipeline.EndOf(2), jetlog.RunOptions{}), 3, 4)
	},
	"readers end where another message has what they read's sequence": func(c *contract) {
		c.events(4)
		c.append(2)
		c.keep()
		c.events(4)
		c.append(2)
		s := c.open(0, jetlog.RunOptions{})
		c.reads(s, 1, 2, 3, 4, 5, 6, 7, 8)
		t, err := c.tailer(c.ctx, 3)
		c.must(err)
		defer t.Close()
		_, err = t.Next(c.ctx)
		c.must(err)
		c.cut()
		c.events(8)
		c.append(4)
		ends(c, s, jetlog.ErrTail)
		ends(c, t, jetlog.ErrTail)
	},
	"the log's tail is what is left of it": func(c *contract) {
		c.append(2)
		c.keep()
		c.append(3)
		c.cut()
		h, last, err := c.log().Tail(c.ctx)
		if c.must(err); last != 2 || h.To != 2 {
			c.Errorf("tail %+v at %d", h, last)
		}
		_, err = c.log().Append(c.ctx, 5, windowOf(5, 6))
		c.is(err, pipeline.ErrFenced, "an append behind what was lost")
		if got, err := c.log().Append(c.ctx, 2, windowOf(2, 3)); err != nil || got != 3 {
			c.Errorf("an append behind what is left: %d, %v", got, err)
		}
	},
}

// holdContract runs every test of the contract on a bench of its own.
func holdContract(t *testing.T, newBench func(t *testing.T) bench) {
	for _, name := range slices.Sorted(maps.Keys(contractTests)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			t.Cleanup(cancel)
			contractTests[name](&contract{t, newBench(t), ctx})
		})
	}
}
