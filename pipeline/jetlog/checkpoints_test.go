package jetlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func TestLowestCheckpoint(t *testing.T) {
	b := newBench(t)
	c := jetlog.NewCheckpoints(b.streams)
	lowest := func(silentFor time.Duration, want uint64) {
		t.Helper()
		got, err := c.Lowest(b.ctx, silentFor)
		if b.must(err); got != want {
			t.Errorf("lowest %d, want %d", got, want)
		}
	}
	lowest(time.Hour, 0)
	b.must(c.Report(b.ctx, "slow", 10))
	time.Sleep(60 * time.Millisecond)
	b.must(c.Report(b.ctx, "fast", 90))
	b.must(c.Report(b.ctx, "fast", 100))
	lowest(time.Hour, 10)
	lowest(50*time.Millisecond, 100) // slow is silent
	b.must(c.Report(b.ctx, "slow", 20))
	lowest(time.Hour, 20)
	b.must(c.Forget(b.ctx, "slow"))
	lowest(time.Hour, 100)
	if err := c.Report(b.ctx, "a.b c", 1); err == nil {
		t.Error("an impossible node name is accepted")
	}
}

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
// comes once more behind the end, and only once.
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
	var moved []*jetstream.RawStreamMsg
	for _, seq := range []uint64{4, 5} {
		m, err := stream.GetMsg(b.ctx, seq)
		b.must(err)
		moved = append(moved, m)
	}
	for range 2 {
		moved, err := b.events().Reclaim(b.ctx, 5, at)
		b.must(err)
		t.Logf("%d moved", moved)
	}
	info, err := stream.Info(b.ctx)
	if b.must(err); info.State.LastSeq != 9 {
		t.Errorf("the stream ends at %d, want 9", info.State.LastSeq)
	}
	for i := range moved {
		was := moved[i]
		if _, err := stream.GetMsg(b.ctx, was.Sequence); !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("message %d is still there: %v", was.Sequence, err)
		}
		is, err := stream.GetMsg(b.ctx, uint64(8+i))
		if b.must(err); string(was.Data) != string(is.Data) || was.Subject != is.Subject {
			t.Errorf("message %d: %s %s, want %s %s", 8+i, is.Subject, is.Data, was.Subject, was.Data)
		}
	}
	// Those that were moved by another meanwhile hide none of those before them.
	at = time.Now().UnixMilli()
	time.Sleep(5 * time.Millisecond)
	b.publish(4) // 10 to 13
	for _, gone := range []uint64{11, 13} {
		b.must(stream.DeleteMsg(b.ctx, gone))
	}
	if moved, err := b.events().Reclaim(b.ctx, 13, at); moved != 2 || err != nil {
		t.Errorf("%d moved, %v, want 10 and 12", moved, err)
	}
	// Nothing is younger than what was read: nothing is moved.
	if moved, err := b.events().Reclaim(b.ctx, 15, time.Now().UnixMilli()); moved != 0 || err != nil {
		t.Errorf("%d moved, %v", moved, err)
	}
}
