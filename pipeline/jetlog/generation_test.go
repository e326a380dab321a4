package jetlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// open opens streams for a generation in a slot.
func (b *bench) open(s jetlog.Slot, of generation.Number) (*jetlog.Streams, error) {
	b.Helper()
	o := natstest.Options()
	o.Slot, o.Generation = s, jetlog.Owner{Number: of}
	return jetlog.OpenStreams(b.ctx, b.connect(), o)
}

// other fails unless err says that DELTAS is of another generation, and names both.
func (b *bench) other(what string, err error, is, want string) {
	b.Helper()
	if !errors.Is(err, jetlog.ErrGeneration) || !strings.Contains(err.Error(), "generation "+is) || !strings.Contains(err.Error(), "generation "+want) {
		b.Errorf("%s: %v", what, err)
	}
}

// "DELTAS of a slot says in its metadata of which generation it is; a
// node of another generation neither follows nor appends to it." A node of generation 1
// that was cut off while slot 0 was cleared, and is used by generation 3, does no harm
// and takes none.
func TestDeltasOfAnotherGeneration(t *testing.T) {
	b := newBench(t)
	old := b.streams // of generation 1
	log := jetlog.NewDeltaLog(old)
	_, _, err := log.Tail(b.ctx)
	b.must(err)
	_, err = log.Append(b.ctx, 0, window(0, 10))
	b.must(err)
	followed, err := jetlog.OpenTailer(b.ctx, old, 0, jetlog.RunOptions{})
	b.must(err)
	defer followed.Close()
	_, err = followed.Next(b.ctx)
	b.must(err)

	// Nobody of another generation opens it; nothing is made or deleted.
	was := b.stream(jetlog.DeltasStream).CachedInfo().Created
	_, err = b.open(0, 3)
	b.other("opened", err, "1", "3")
	if now := b.stream(jetlog.DeltasStream).CachedInfo(); !now.Created.Equal(was) || now.State.Msgs != 1 {
		t.Fatalf("DELTAS is another: %+v", now)
	}

	b.must(bucket.Clear(b.ctx, b.js, 0, 3))
	third, err := b.open(0, 3)
	b.must(err)
	for i := range uint64(3) {
		_, err = jetlog.NewDeltaLog(third).Append(b.ctx, i, window(pipeline.Position(i), pipeline.Position(i+1)))
		b.must(err)
	}
	before := b.stream(jetlog.DeltasStream).CachedInfo()

	// All that generation 1 does with its DELTAS.
	if _, err := followed.Next(b.ctx); err == nil {
		t.Error("it reads on in the DELTAS of generation 3")
	}
	_, err = jetlog.OpenTailer(b.ctx, old, 0, jetlog.RunOptions{})
	b.other("followed", err, "3", "1")
	if _, err = log.Append(b.ctx, 1, window(10, 20)); err == nil {
		t.Error("appended as to the one before")
	}
	_, _, err = log.Tail(b.ctx)
	b.other("tail", err, "3", "1")
	_, _, err = log.First(b.ctx)
	b.other("first", err, "3", "1")
	_, err = log.At(b.ctx, 2)
	b.other("at", err, "3", "1")
	_, err = jetlog.NewDeltaLog(old).Append(b.ctx, 3, window(3, 9))
	b.other("append", err, "3", "1")
	b.other("purge", log.Purge(b.ctx, 3), "3", "1")
	b.other("delete", old.Delete(b.ctx, jetlog.DeltasStream), "3", "1")
	b.other("recreate", old.RenewAs(b.ctx, before.Created, jetlog.ErrNoWindow), "3", "1")
	b.must(old.Restore(b.ctx)) // nothing is missing
	if after := b.stream(jetlog.DeltasStream).CachedInfo(); !after.Created.Equal(before.Created) || after.State.Msgs != 3 || after.State.LastSeq != 3 {
		t.Errorf("DELTAS is another: %+v, was %+v", after.State, before.State)
	}
	attached, err := jetlog.Attach(b.ctx, b.connect(), 0, jetlog.Owner{Number: 1}, nil)
	b.must(err)
	_, err = jetlog.OpenTailer(b.ctx, attached, 0, jetlog.RunOptions{})
	b.other("followed, attached", err, "3", "1")
	if n, err := jetlog.SlotOf(b.ctx, b.js, 0); err != nil || n.Number != 3 {
		t.Errorf("slot 0 is generation %d's: %v", n.Number, err)
	}
}

// One that was cut off makes the DELTAS again that was deleted in between: the
// generation that has the slot by the record takes it, and no other does.
func TestEvict(t *testing.T) {
	b := newBench(t)
	evict := func(of generation.Number, want bool) {
		t.Helper()
		if got, err := jetlog.Evict(b.ctx, b.js.Conn(), 0, jetlog.Owner{Number: of}); err != nil || got != want {
			t.Errorf("evicted for generation %d: %v, %v", of, got, err)
		}
	}
	evict(1, false)
	b.must(bucket.Clear(b.ctx, b.js, 0, 3))
	evict(3, false) // there is none
	b.must(b.streams.Restore(b.ctx))
	_, err := b.open(0, 3)
	b.other("opened", err, "1", "3")
	b.must(bucket.NewCheckpoints(b.streams).Report(b.ctx, "a", 9))
	evict(3, true)
	if at, err := bucket.NewCheckpoints(b.streams).Lowest(b.ctx, 0); err != nil || at != 9 {
		t.Errorf("the keys are gone, which may be generation 3's: %d, %v", at, err)
	}
	_, err = b.open(0, 3)
	b.must(err)
	_, err = jetlog.Evict(b.ctx, b.js.Conn(), 0, jetlog.Owner{Number: 1})
	b.other("evicted by an earlier one", err, "3", "1")
	evict(3, false)
}

// A DELTAS that does not say whose it is, or counts by something else, is nobody's that a
// record names: it is neither followed nor kept.
func TestDeltasOfNobody(t *testing.T) {
	b := newBench(t)
	of := func(number generation.Number, by string) jetlog.StreamOptions {
		o := natstest.Options()
		o.Slot, o.Generation = 1, jetlog.Owner{Number: number, CountsBy: by}
		return o
	}
	_, err := jetlog.OpenStreams(b.ctx, b.connect(), of(2, "aa"))
	b.must(err)
	_, err = jetlog.OpenStreams(b.ctx, b.connect(), of(2, "aa"))
	b.must(err)
	_, err = jetlog.OpenStreams(b.ctx, b.connect(), of(2, "bb"))
	b.other("opened", err, "2, which counts by aa", "2, which counts by bb")
	c := b.stream(jetlog.Slot(1).Deltas()).CachedInfo().Config
	delete(c.Metadata, "tidemark-generation")
	_, err = b.js.UpdateStream(b.ctx, c)
	b.must(err)
	_, err = b.open(1, 2)
	b.other("opened", err, "0", "2")
	if got, err := jetlog.Evict(b.ctx, b.js.Conn(), 1, jetlog.Owner{Number: 2}); err != nil || !got {
		t.Errorf("what nobody can tell whose it is stays: %v, %v", got, err)
	}
}
