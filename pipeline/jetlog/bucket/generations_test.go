package bucket_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

const recordKey = "generations"

// begun is the record once the first rebuild has begun.
func begun(t *testing.T) generation.Set {
	t.Helper()
	s, err := generation.Start([]byte(`{"now":1}`))
	if err == nil {
		s, err = s.Begin([]byte(`{"next":"<&>"}`), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Epoch = 1
	return s
}

// records opens the record, on streams that were opened, or attached.
func (b *bench) records(s *jetlog.Streams) *bucket.Generations {
	b.Helper()
	g, err := bucket.OpenGenerations(b.ctx, s, natstest.Log(b))
	b.must(err)
	b.Cleanup(g.Close)
	return g
}

// sees waits until what is seen is so.
func (b *bench) seesRecord(g *bucket.Generations, what string, is func(generation.Set, error) bool) {
	b.Helper()
	for {
		changed := g.Changed()
		s, err := g.Seen()
		if is(s, err) {
			return
		}
		select {
		case <-changed:
		case <-b.ctx.Done():
			b.Fatalf("%s is not seen; it is %+v, %v", what, s, err)
		}
	}
}

func (b *bench) seesEpoch(g *bucket.Generations, epoch uint64) {
	b.Helper()
	b.seesRecord(g, fmt.Sprint("epoch ", epoch), func(s generation.Set, err error) bool { return err == nil && s.Epoch == epoch })
}

// "Which generations there are is one record: the key `generations` of
// the bucket, changed by compare-and-set." All that watch see it, nodes and others.
func TestGenerations(t *testing.T) {
	b := newBench(t)
	g := b.records(b.streams)
	attached, err := jetlog.Attach(b.ctx, b.connect(), 0, jetlog.Owner{}, nil)
	b.must(err)
	other := b.records(attached)
	if s, err := g.Seen(); err != nil || s.Epoch != 0 || !g.Written().IsZero() {
		t.Errorf("at first there is %+v, %v", s, err)
	}
	if s, err := g.Load(b.ctx); err != nil || s.Epoch != 0 {
		t.Errorf("at first there is %+v, %v", s, err)
	}

	first := begun(t)
	before := b.now()
	b.must(g.Write(b.ctx, generation.Set{}, first))
	for _, g := range []*bucket.Generations{g, other} {
		b.seesEpoch(g, 1)
		if s, _ := g.Seen(); !s.Equal(first) {
			t.Errorf("seen %+v, written %+v", s, first)
		}
		if at := g.Written(); at.Before(before) || at.After(b.now()) {
			t.Errorf("written at %v, not between %v and %v", at, before, b.now())
		}
	}
	if s, err := other.Load(b.ctx); err != nil || !s.Equal(first) {
		t.Errorf("loaded %+v, %v", s, err)
	}

	// Whoever does not know of it changes nothing, nor who knows something else.
	aborted, err := first.Abort("why")
	b.must(err)
	accepted, err := first.Accepted()
	b.must(err)
	for name, from := range map[string]generation.Set{"none": {}, "the next": aborted} {
		if err := other.Write(b.ctx, from, accepted); !errors.Is(err, bucket.ErrDecided) {
			t.Errorf("written from %s: %v", name, err)
		}
	}
	b.must(other.Write(b.ctx, first, accepted))
	if err := g.Write(b.ctx, first, aborted); !errors.Is(err, bucket.ErrDecided) {
		t.Errorf("written twice from the same: %v", err)
	}
	b.seesEpoch(g, 2)
	faulty := accepted
	faulty.Newest = 0
	if err := g.Write(b.ctx, accepted, faulty); err == nil {
		t.Error("one with a fault was written")
	}
}

func (b *bench) now() time.Time {
	b.Helper()
	state, err := b.streams.State(b.ctx, jetlog.BucketStream)
	b.must(err)
	return state.Now
}

// A record that is written all the time for a while, or seems to be, since it is read
// from a server that lags, is put back once that is over.
func TestGenerationsRestoreTriesAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	g := b.records(b.streams)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				if _, err := bucket.Put(b.ctx, recordKey, []byte("oops")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	b.seesRecord(g, "what is written", func(_ generation.Set, err error) bool { return err != nil })
	if restored, err := g.Restore(b.ctx, begun(t)); !restored || err != nil {
		t.Errorf("%t, %v", restored, err)
	}
	writers.Wait()
}

// "A record of generations that is deleted, malformed or older than
// what a node knows is not obeyed, is reported and is replaced by the node's copy."
func TestGenerationsRestore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	g := b.records(b.streams)
	old := begun(t)
	own, err := old.Accepted()
	b.must(err)
	encode := func(s generation.Set) []byte {
		text, err := json.Marshal(s)
		b.must(err)
		return text
	}
	absent := func(s generation.Set, err error) bool { return err == nil && s.Epoch == 0 }
	malformed := func(words string) func(generation.Set, error) bool {
		return func(s generation.Set, err error) bool {
			return errors.Is(err, generation.ErrMalformed) && strings.Contains(err.Error(), words) && s.Epoch == 0
		}
	}
	faulty, huge := own, own
	faulty.Kept = 7
	huge.Why = strings.Repeat("x", generation.BytesMax)
	put := func(value []byte) func() {
		return func() {
			_, err := bucket.Put(b.ctx, recordKey, value)
			b.must(err)
		}
	}
	for _, c := range []struct {
		name string
		harm func()
		seen func(generation.Set, error) bool
	}{
		{"never there", func() {}, absent},
		{"deleted", func() { b.must(bucket.Delete(b.ctx, recordKey)) }, absent},
		{"purged without a mark", func() {
			b.must(b.stream(jetlog.BucketStream).Purge(b.ctx, jetstream.WithPurgeSubject("$KV.TIDEMARK."+recordKey)))
		}, absent},
		{"the bucket deleted", func() {
			b.must(b.js.DeleteStream(b.ctx, jetlog.BucketStream))
			b.must(b.streams.Restore(b.ctx))
		}, absent},
		{"no JSON", put([]byte("oops")), malformed("malformed")},
		{"a fault", put(encode(faulty)), malformed("generations 2 and 7 are both beside 1")},
		{"too long", put(encode(huge)), malformed("at most")},
		{"an older one", put(encode(old)), func(s generation.Set, err error) bool { return err == nil && s.Epoch == 1 }},
	} {
		c.harm()
		b.seesRecord(g, c.name, c.seen)
		if strings.Contains(c.name, "fault") {
			if _, err := g.Load(b.ctx); !errors.Is(err, generation.ErrMalformed) {
				t.Errorf("%s: loaded, %v", c.name, err)
			}
			if err := g.Write(b.ctx, own, own); !errors.Is(err, generation.ErrMalformed) {
				t.Errorf("%s: written over, %v", c.name, err)
			}
		}
		if restored, err := g.Restore(b.ctx, own); err != nil || !restored {
			t.Fatalf("%s: restored %v, %v", c.name, restored, err)
		}
		b.seesEpoch(g, 2)
		if s, err := g.Load(b.ctx); err != nil || !s.Equal(own) {
			t.Errorf("%s: then there is %+v, %v", c.name, s, err)
		}
		if restored, err := g.Restore(b.ctx, own); err != nil || restored {
			t.Errorf("%s: what is there was restored: %v, %v", c.name, restored, err)
		}
	}

	// What is newer stays.
	if restored, err := g.Restore(b.ctx, old); err != nil || restored {
		t.Errorf("an old copy was put in the place of a newer one: %v, %v", restored, err)
	}
	if s, _ := g.Seen(); s.Epoch != 2 {
		t.Errorf("then it is at epoch %d", s.Epoch)
	}
}

// A record of the largest configurations fits a server with the default limits, and the
// error of one with less says what to raise.
func TestGenerationsOfLargeConfigurations(t *testing.T) {
	b := newBench(t)
	g := b.records(b.streams)
	large := func(n int) []byte {
		return []byte(`"` + strings.Repeat("<", n-2) + `"`)
	}
	s, err := generation.Start(large(generation.ConfigBytesMax))
	b.must(err)
	s, err = s.Begin(large(generation.ConfigBytesMax), false)
	b.must(err)
	b.must(g.Write(b.ctx, generation.Set{}, s))
	b.seesEpoch(g, 2)
	if seen, _ := g.Seen(); !seen.Equal(s) {
		t.Error("it came back as another one")
	}
	if _, err := generation.Start(large(generation.ConfigBytesMax + 1)); err == nil {
		t.Error("a configuration beyond the bound was taken")
	}
}

// What watches goes on when its connection is lost and there again.
func TestGenerationsWatchesOnAfterALostConnection(t *testing.T) {
	b := newBench(t)
	streams, wire := b.streamsOnAWire()
	far := b.records(streams)
	near := b.records(b.streams)
	wire.Mute(true)
	first := begun(t)
	b.must(near.Write(b.ctx, generation.Set{}, first))
	b.seesEpoch(near, 1)
	wire.Mute(false)
	b.seesEpoch(far, 1)
}
