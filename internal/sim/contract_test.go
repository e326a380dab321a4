package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// later is a moment after all that is stored, and before all that will be.
func (c *contract) later() (millis int64) {
	for millis = time.Now().UnixMilli(); time.Now().UnixMilli() == millis; {
		time.Sleep(100 * time.Microsecond)
	}
	return millis
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
// constructors that a node relies on.
var contractTests = map[string]func(c *contract){
	"a message is read as the stream holds it, by an owner of its own, and a message id is stored once": func(c *contract) {
		before := time.Now().Add(-time.Second).UnixMilli()
		c.publish("events.post", "", map[string][]string{"Trace": {"a", "b"}}, []byte(`{"post":1}`))
		c.publish("events.like", "", nil, nil)
		first := c.publish("events.like", "x", nil, []byte("1"))
		if again := c.publish("events.like", "x", nil, []byte("2")); again != first {
			c.Errorf("stored as %d and %d", first, again)
		}
		for range 2 { // the second reader gets nothing of what the first one has done to it
			got := c.read(c.open(0, jetlog.RunOptions{}), 3)
			m := &got[0]
			if m.Sequence != 1 || m.Subject != "events.post" || string(m.Data) != `{"post":1}` || !slices.Equal(m.Header["Trace"], []string{"a", "b"}) {
				c.Errorf("got %+v", m)
			}
			if m.Time < before || m.Time > time.Now().Add(time.Second).UnixMilli() {
				c.Errorf("time %d is not now in milliseconds", m.Time)
			}
			if m := got[1]; m.Header != nil || len(m.Data) != 0 || m.Time < got[0].Time {
				c.Errorf("got %+v", m)
			}
			copy(m.Data, "XXXX")
			m.Header["Trace"] = []string{"X"}
		}
	},
	"a source begins with the message that from.Next names, and refuses what does not join": func(c *contract) {
		c.events(10)
		c.purge(jetlog.EventsStream, 5)
		for _, w := range []struct {
			from  pipeline.Position
			first uint64
			want  error
		}{
			{0, 0, pipeline.ErrGap},
			{pipeline.EndOf(3), 0, pipeline.ErrGap},
			{pipeline.EndOf(4), 5, nil},
			{pipeline.At(5, 3), 5, nil},
			{pipeline.EndOf(9), 10, nil},
			{pipeline.At(11, 0), 0, jetlog.ErrTail},
			{pipeline.EndOf(11), 0, jetlog.ErrTail},
		} {
			s, err := c.source(c.ctx, w.from, jetlog.RunOptions{})
			c.is(err, w.want, "from %d.%d", w.from.Sequence(), w.from.Line())
			if err == nil {
				if got := c.read(s, 1)[0].Sequence; got != w.first {
					c.Errorf("from %d.%d: begins at %d, want %d", w.from.Sequence(), w.from.Line(), got, w.first)
				}
				_ = s.Close()
			}
		}
		end := c.open(pipeline.EndOf(10), jetlog.RunOptions{})
		c.events(2)
		c.reads(end, 11, 12)
	},
	"messages that are missing between others are damage, and a deleted end is passed over": func(c *contract) {
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
		_, err = c.source(c.ctx, 0, jetlog.RunOptions{})
		c.is(err, pipeline.ErrGap, "the front is deleted") // told from one never stored only between first and last
		s = c.open(pipeline.EndOf(4), jetlog.RunOptions{MessagesMax: 1})
		c.reads(s, 5)
		c.deleteMessage(jetlog.EventsStream, 6)
		late := c.open(pipeline.EndOf(6), jetlog.RunOptions{})
		c.events(2)
		c.reads(late, 7, 8)
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
	"Next waits for a message, ends with its context, loses nothing by it, and its runs are bounded": func(c *contract) {
		s := c.open(0, jetlog.RunOptions{})
		_, err := s.Next(c.within(50 * time.Millisecond))
		c.is(err, context.DeadlineExceeded, "nothing there")
		got := make(chan []pipeline.Message)
		go func() {
			run, _ := s.Next(c.ctx)
			got <- run
		}()
		c.events(1)
		if run := <-got; len(run) != 1 {
			c.Errorf("got %v", run)
		}
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		_, err = s.Next(ended)
		c.is(err, context.Canceled, "ended before")
		c.events(2)
		c.reads(s, 2, 3)
		c.many(50)
		for _, bound := range []struct {
			jetlog.RunOptions
			run int
		}{{jetlog.RunOptions{MessagesMax: 7, Linger: time.Second}, 7}, {jetlog.RunOptions{BytesMax: 9, Linger: time.Second}, 1}} {
			if run, err := c.open(0, bound.RunOptions).Next(c.ctx); err != nil || len(run) != bound.run {
				c.Errorf("a run of %d, %v, want %d", len(run), err, bound.run)
			}
		}
		c.must(s.Close())
		c.must(s.Close())
		if _, err := s.Next(c.ctx); err == nil {
			c.Error("a closed reader reads")
		}
	},
	"an EVENTS recreated is another one": func(c *contract) {
		e := c.guarded()
		c.events(2)
		s := c.open(0, jetlog.RunOptions{Heartbeat: 200 * time.Millisecond})
		c.reads(s, 1, 2)
		c.recreate(jetlog.EventsStream)
		ends(c, s, jetlog.ErrTail)
		_, err := c.source(c.ctx, 0, jetlog.RunOptions{})
		c.is(err, jetlog.ErrTail, "opened again")
		c.is(e.Holds(c.ctx, 0, 0), jetlog.ErrTail, "holds")
	},

	"a tailer follows in order, and refuses what does not join": func(c *contract) {
		c.append(3)
		t, err := c.tailer(c.ctx, 1)
		c.must(err)
		defer t.Close()
		for i := 0; i < 4; {
			if i == 2 {
				c.append(2)
			}
			run, err := t.Next(c.ctx)
			c.must(err)
			for _, e := range run {
				want := windowOf(pipeline.Position(i+1), pipeline.Position(i+2))
				if i++; e.Sequence != uint64(i+1) || !bytes.Equal(e.Window, want) || e.Time == 0 {
					c.Errorf("entry %d: %+v", i, e)
				}
			}
		}
		c.purge(jetlog.DeltasStream, 4)
		for after, want := range map[uint64]error{0: pipeline.ErrGap, 2: pipeline.ErrGap, 3: nil, 5: nil, 6: jetlog.ErrTail} {
			t, err := c.tailer(c.ctx, after)
			c.is(err, want, "after %d", after)
			if err == nil {
				_ = t.Close()
			}
		}
	},
	"an append is a compare-and-set, which keeps no window": func(c *contract) {
		first, second, window := c.log(), c.log(), windowOf(0, 10)
		h, last, err := first.Tail(c.ctx)
		if c.must(err); h != (pipeline.Header{}) || last != 0 {
			c.Errorf("a new log's tail is %+v, %d", h, last)
		}
		got, err := first.Append(c.ctx, 0, window)
		if c.must(err); got != 1 {
			c.Errorf("sequence %d", got)
		}
		clear(window)
		_, err = second.Append(c.ctx, 0, windowOf(0, 99))
		c.is(err, pipeline.ErrFenced, "the second writer")
		_, err = second.Append(c.ctx, 5, windowOf(10, 99))
		c.is(err, pipeline.ErrFenced, "beyond the end")
		ended, cancel := context.WithCancel(c.ctx)
		cancel()
		_, err = second.Append(ended, 1, windowOf(10, 20))
		c.is(err, context.Canceled, "append after its context has ended")
		_, _, err = second.Tail(ended)
		c.is(err, context.Canceled, "tail")
		h, last, err = second.Tail(c.ctx)
		if c.must(err); last != 1 || h != (pipeline.Header{From: 0, To: 10, Rules: 7, Events: 1}) {
			c.Errorf("tail %+v at %d", h, last)
		}
	},
	"a log without its last window is made anew, and who follows is told": func(c *contract) {
		for _, harm := range []func(){
			func() { c.deleteMessage(jetlog.DeltasStream, 2) },
			func() { c.intrude(append(windowOf(2, 3), 0)) },
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
		c.append(2)
		c.intrude([]byte("oops"))
		t, err := c.tailer(c.ctx, 0)
		c.must(err)
		defer t.Close()
		if n := ends(c, t, jetlog.ErrNoWindow); n != 2 {
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
		first := func(from, to pipeline.Position, sequence uint64) {
			c.Helper()
			h, oldest, err := c.log().First(c.ctx)
			if c.must(err); h.From != from || h.To != to || oldest != sequence {
				c.Errorf("%+v at %d, want %d to %d at %d", h, oldest, from, to, sequence)
			}
		}
		first(0, 0, 0)
		c.append(5)
		first(0, 1, 1)
		c.purge(jetlog.DeltasStream, 4)
		first(3, 4, 4)
		if h, err := c.log().At(c.ctx, 5); err != nil || h.From != 4 || h.To != 5 {
			c.Errorf("window 5 is %+v, %v", h, err)
		}
		for _, gone := range []uint64{3, 6} {
			if h, err := c.log().At(c.ctx, gone); err == nil {
				c.Errorf("window %d is %+v", gone, h)
			}
		}
		c.purge(jetlog.DeltasStream, 6)
		first(0, 0, 0)
	},

	"a lost tail is noticed": func(c *contract) {
		e := c.guarded()
		c.events(3)
		at := c.later()
		c.events(3)
		for _, tail := range []struct {
			counted uint64
			at      int64
			lost    bool
		}{{0, 0, false}, {3, at, false}, {6, c.later(), false}, {7, 0, true}, {4, at, true}, {4, 0, false}} {
			if err := e.Holds(c.ctx, tail.counted, tail.at); errors.Is(err, pipeline.ErrLostTail) != tail.lost || err != nil && !tail.lost {
				c.Errorf("%+v: %v", tail, err)
			}
		}
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

	"the lease has one holder, until it is released, its context ends, or its owner starts anew": func(c *contract) {
		acquire := func(ctx context.Context, owner string) (context.Context, func()) {
			c.Helper()
			held, release, err := c.lease(owner).Acquire(ctx)
			c.must(err)
			return held, release
		}
		refused := func(what string) {
			c.Helper()
			_, _, err := c.lease("b").Acquire(c.within(100 * time.Millisecond))
			c.is(err, context.DeadlineExceeded, "%s", what)
		}
		old, oldRelease := acquire(c.ctx, "a")
		refused("another")
		held, release := acquire(c.ctx, "a")
		<-old.Done()
		c.is(context.Cause(old), bucket.ErrLeaseLost, "the one before the restart")
		oldRelease()
		refused("another, after the old one's release")
		c.is(held.Err(), nil, "the holder")
		release()
		release()
		c.is(context.Cause(held), context.Canceled, "released")
		ctx, cancel := context.WithCancel(c.ctx)
		held, release = acquire(ctx, "b")
		cancel()
		<-held.Done()
		_, _, err := c.lease("a").Acquire(ctx)
		c.is(err, context.Canceled, "ended before")
		release()
		_, release = acquire(c.ctx, "a")
		release()
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
	"readers end where the stream is not what they read, or ends before, and appends go on behind what is left": func(c *contract) {
		c.events(4)
		c.append(2)
		c.keep()
		c.events(4)
		c.append(2)
		var sources []pipeline.Source
		var tailers []pipeline.Tailer
		for range 2 {
			s := c.open(0, jetlog.RunOptions{})
			c.reads(s, 1, 2, 3, 4, 5, 6, 7, 8)
			t, err := c.tailer(c.ctx, 3)
			c.must(err)
			defer t.Close()
			_, err = t.Next(c.ctx)
			c.must(err)
			sources, tailers = append(sources, s), append(tailers, t)
		}
		c.cut()
		ends(c, sources[0], jetlog.ErrTail)
		ends(c, tailers[0], jetlog.ErrTail)
		_, err := c.source(c.ctx, pipeline.EndOf(8), jetlog.RunOptions{})
		c.is(err, jetlog.ErrTail, "opened past the end")
		c.reads(c.open(pipeline.EndOf(2), jetlog.RunOptions{}), 3, 4)
		h, last, err := c.log().Tail(c.ctx)
		if c.must(err); last != 2 || h.To != 2 {
			c.Errorf("tail %+v at %d", h, last)
		}
		_, err = c.log().Append(c.ctx, 4, windowOf(4, 5))
		c.is(err, pipeline.ErrFenced, "an append behind what was lost")
		c.events(8)
		c.append(4)
		ends(c, sources[1], jetlog.ErrTail)
		ends(c, tailers[1], jetlog.ErrTail)
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
