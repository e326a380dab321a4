package jetlog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// "so that no sequence is used twice" (I10)
func TestFastForward(t *testing.T) {
	b := newBench(t)
	b.publish(3)
	b.must(b.events().FastForward(b.ctx, 2)) // nothing to do
	b.must(b.events().FastForward(b.ctx, 9000))
	b.must(b.events().FastForward(b.ctx, 9000))
	state, err := b.streams.State(b.ctx, jetlog.EventsStream)
	if b.must(err); state.Last != 9000 {
		t.Errorf("last is %d, want 9000", state.Last)
	}
	fillers := b.read(b.source(0, jetlog.RunOptions{}), 9000)[3:]
	for _, m := range fillers {
		if m.Subject != jetlog.FillerSubject || len(m.Data) != 0 || m.Header[jetlog.HeaderFiller][0] != "1" {
			t.Fatalf("got %+v", m)
		}
	}
	if err := b.events().FastForward(b.ctx, 1<<40); !errors.Is(err, jetlog.ErrFillers) {
		t.Errorf("a trillion fillers: %v", err)
	}
}

// "so that no sequence is used twice" (I10): what was stored at used sequences
// comes once more behind the end, and only once; nothing is deleted.
func TestReclaim(t *testing.T) {
	b := newBench(t)
	b.publish(3)
	stream, err := b.js.Stream(b.ctx, jetlog.EventsStream)
	b.must(err)
	third, err := stream.GetMsg(b.ctx, 3)
	b.must(err)
	at := third.Time.UnixMilli()
	time.Sleep(5 * time.Millisecond)
	b.publish(4) // 4 to 7: say that 4 and 5 were used before, and read at a time before these
	reclaim := func(counted uint64, at int64, want int) {
		t.Helper()
		if moved, err := b.events().Reclaim(b.ctx, counted, at); err != nil || moved != want {
			t.Errorf("%d moved, %v, want %d", moved, err, want)
		}
	}
	reads := func(want ...string) {
		t.Helper()
		var got []string
		run, err := b.source(0, jetlog.RunOptions{Linger: 100 * time.Millisecond}).Next(b.ctx)
		b.must(err)
		for i, m := range run {
			switch {
			case m.Sequence != uint64(i+1):
				t.Errorf("message %d has sequence %d", i+1, m.Sequence)
			case m.Subject == jetlog.FillerSubject && len(m.Header[jetlog.HeaderFiller]) > 0 && len(m.Data) == 0:
				got = append(got, "-")
			default:
				got = append(got, m.Subject+" "+string(m.Data))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	time.Sleep(5 * time.Millisecond)
	reclaim(5, at, 2)
	reclaim(5, at, 0)
	b.must(b.js.DeleteKeyValue(b.ctx, jetlog.Bucket)) // where the last one finished is noted
	b.must(b.streams.Restore(b.ctx))
	reclaim(5, at, 0)
	like := func(n int) string { return fmt.Sprint("events.like ", n) }
	want := []string{like(1), like(2), like(3), "-", "-", like(6), like(7), like(4), like(5)}
	reads(want...)

	// A copy that comes late, of what has one, means nothing; nor does one that
	// stands at a used sequence itself, once it is moved: 8 to 10 were used.
	m := &nats.Msg{Data: []byte("5"), Header: nats.Header{}}
	fifth, err := stream.GetMsg(b.ctx, 5)
	b.must(err)
	under := strings.TrimSuffix(stream.CachedInfo().Config.Subjects[1], ">")
	m.Subject = jetlog.MarkAsCopy(under, "events.like", m.Header, jetlog.Original{Sequence: 5, Nanos: fifth.Time.UnixNano()})
	_, err = b.js.PublishMsg(b.ctx, m)
	b.must(err)
	seventh, err := stream.GetMsg(b.ctx, 7)
	b.must(err)
	reads(append(want, "-")...)
	reclaim(9, seventh.Time.UnixMilli(), 2)
	reclaim(9, seventh.Time.UnixMilli(), 0)
	reads(append(want[:7:7], "-", "-", "-", like(4), like(5))...)

	// Nothing is younger than what was read: nothing is moved.
	reclaim(12, time.Now().UnixMilli(), 0)
}
