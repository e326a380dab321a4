package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// feedOf is a slice of Higgs as messages, one line or a pack each, and what
// must be answered after each of them. One publisher sends them one after the
// other, so message i has sequence i + 1.
type feedOf struct {
	messages []message
	lines    [][]byte
	ledger   *ledger
	users    []uint64
	posts    []uint64
	actors   []uint64 // of each message, of its last line
	imported int      // of the messages

	sent  atomic.Uint64 // messages that may be in the log
	acked atomic.Uint64 // messages that are
}

type message struct {
	subject string
	data    []byte
}

// newFeed takes the lines as messages: now single events, now packs of up to
// packMost.
func newFeed(t *testing.T, lines [][]byte, packMost int, random *rand.Rand) *feedOf {
	t.Helper()
	return newImportedFeed(t, lines, 0, packMost, random)
}

// importPack is how many lines 'tidemark import' puts into a message.
const importPack = 256

// newImportedFeed has so many of the lines in the packs in which they are imported;
// all others are published, as newFeed's.
func newImportedFeed(t *testing.T, lines [][]byte, imported, packMost int, random *rand.Rand) *feedOf {
	t.Helper()
	f := &feedOf{lines: lines, ledger: newLedger()}
	for at := 0; at < len(lines); {
		n := 1
		switch {
		case at < imported:
			n = min(importPack, imported-at)
		case random.IntN(2) == 0:
			n = min(1+random.IntN(packMost), len(lines)-at)
		}
		m, actor := message{subject: "events.pack"}, uint64(0)
		for i, line := range lines[at : at+n] {
			actor = f.ledger.add(t, pipeline.At(uint64(len(f.messages)+1), i), line)
			m.data = append(append(m.data, line...), '\n')
		}
		if n == 1 {
			m.subject = "events." + typeOf(lines[at])
		}
		f.messages, f.actors = append(f.messages, m), append(f.actors, actor)
		if at += n; at == imported {
			f.imported = len(f.messages)
		}
	}
	users, posts := map[uint64]bool{}, map[uint64]bool{}
	for c := range f.ledger.rows {
		if strings.HasPrefix(c.column, "post.") {
			posts[c.id] = true
		} else {
			users[c.id] = true
		}
	}
	f.posts, f.users = slices.Sorted(maps.Keys(posts)), slices.Sorted(maps.Keys(users))
	return f
}

func typeOf(line []byte) string {
	var event struct{ Type string }
	if err := json.Unmarshal(line, &event); err != nil {
		panic(err)
	}
	return event.Type
}

// recentMax is how far back recent looks.
const recentMax = 500

// recent is somebody of the messages that were sent last.
func (f *feedOf) recent(random *rand.Rand) uint64 {
	i := int(f.sent.Load()) - random.IntN(recentMax)
	return f.actors[min(max(i, 0), len(f.actors)-1)]
}

// publish sends the messages up to one, evenly over a time.
func (f *feedOf) publish(t *testing.T, nc *nats.Conn, to int, over time.Duration) {
	js, err := jetstream.New(nc)
	if err != nil {
		t.Error(err)
		return
	}
	from := int(f.acked.Load())
	begun := time.Now()
	for i := from; i < to; i++ {
		f.sent.Store(uint64(i + 1))
		m := f.messages[i]
		ack, err := publishOnce(js, m.subject, fmt.Sprint("message ", i), m.data)
		if t.Context().Err() != nil { // the test has failed
			return
		}
		if err != nil || ack.Sequence != uint64(i+1) {
			t.Errorf("message %d is published as %+v: %v", i, ack, err)
			return
		}
		f.acked.Store(ack.Sequence)
		time.Sleep(time.Until(begun.Add(over * time.Duration(i-from) / time.Duration(to-from)))) // the pace
	}
}

// publishOnce publishes a message until it is acknowledged.
func publishOnce(js jetstream.JetStream, subject, id string, data []byte) (ack *jetstream.PubAck, err error) {
	for deadline := time.Now().Add(e2e.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		ack, err = js.Publish(ctx, subject, data, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			return ack, nil
		}
	}
	return nil, err
}

// checker asks again and again, and holds each answer between the ledger's at
// its as_of and at the newest position then.
type checker struct {
	t      *testing.T
	feed   *feedOf
	nc     *nats.Conn
	shards int

	// down are the shards that nobody may have now; empty: every answer must be whole.
	down atomic.Pointer[map[pipeline.Shard]bool]
	// lossy: requests go by servers that are killed as well, so one may be lost on its
	// way, or not be whole. Each whole answer is held all the same.
	lossy bool
	// kills counts who was killed of those who answer alone: a request that was under
	// way then may be lost, or not be whole.
	kills atomic.Int64
	// patience is how long a position may take; 0: checkWithin.
	patience time.Duration

	answers, unanswered, missing, faults atomic.Int64
	longest                              atomic.Int64 // ns
}

const (
	checkers = 4
	// checkEvery is how long each waits between an answer and its next question.
	checkEvery = 50 * time.Millisecond
	// checkWithin is how long a position may take while others take over.
	checkWithin = 20 * time.Second
	faultsMax   = 10 // are shown
)

// newChecker is one of whom no answer may lack anything.
func newChecker(t *testing.T, feed *feedOf, nc *nats.Conn, shards int) *checker {
	c := &checker{t: t, feed: feed, nc: nc, shards: shards}
	c.down.Store(&map[pipeline.Shard]bool{})
	return c
}

// begin asks until the function that it returns is called.
func (c *checker) begin(seed uint64) (end func()) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	for i := range checkers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(checkEvery):
				}
				switch i % 3 {
				case 0:
					c.rows("post", c.feed.posts, random)
				case 1:
					c.rows("user", c.feed.users, random)
				case 2:
					c.unread(random)
				}
			}
		})
	}
	ends := sync.OnceFunc(func() {
		close(stop)
		work.Wait()
	})
	c.t.Cleanup(ends)
	return func() {
		ends()
		c.t.Logf("%d answers held between as_of and newest, the longest took %v; %d ids were missing while nobody had them, %d requests were not answered then",
			c.answers.Load(), time.Duration(c.longest.Load()).Round(time.Millisecond), c.missing.Load(), c.unanswered.Load())
	}
}

// fault reports what is wrong with an answer.
func (c *checker) fault(format string, args ...any) {
	if c.faults.Add(1) <= faultsMax {
		c.t.Errorf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
	}
}

func some(ids []uint64, n int, random *rand.Rand) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = ids[random.IntN(len(ids))]
	}
	return out
}

// ask does a request, and says what it must reach and what may be in it. gone are
// the shards that nobody may have had meanwhile.
func (c *checker) ask(what string, do func(at client.Position) (asOf client.Position, err error)) (newest client.Position, gone map[pipeline.Shard]bool, ok bool) {
	at, begun, kills := client.Acked(c.feed.acked.Load()), time.Now(), c.kills.Load()
	gone = *c.down.Load()
	asOf, err := do(at)
	took := time.Since(begun)
	switch now := *c.down.Load(); {
	case c.kills.Load() != kills:
		gone = everyShard(c.shards)
	case len(gone) == 0:
		gone = now
	}
	for was := c.longest.Load(); int64(took) > was && !c.longest.CompareAndSwap(was, int64(took)); was = c.longest.Load() {
	}
	newest = client.Acked(c.feed.sent.Load())
	switch {
	case c.t.Context().Err() != nil: // the test has failed
		return 0, nil, false
	case err != nil && (len(gone) > 0 || c.lossy):
		c.unanswered.Add(1)
		return 0, nil, false
	case err != nil:
		c.fault("%s, min_position %v, asked %v ago: %v", what, at, took, err)
		return 0, nil, false
	case asOf < at || asOf > newest:
		c.fault("%s: as of %v, asked with min_position %v, the newest is %v", what, asOf, at, newest)
		return 0, nil, false
	}
	c.answers.Add(1)
	return newest, gone, true
}

// within is how long an answer may take. One that is lost with a server is not
// waited for that long.
func (c *checker) within() time.Duration {
	switch {
	case c.patience > 0:
		return c.patience
	case c.lossy:
		return checkWithin / 4
	}
	return checkWithin
}

// everyShard is what nobody has when all are down.
func everyShard(shards int) map[pipeline.Shard]bool {
	all := map[pipeline.Shard]bool{}
	for s := range pipeline.Shard(shards) {
		all[s] = true
	}
	return all
}

func (c *checker) rows(counter string, of []uint64, random *rand.Rand) {
	ids := some(of, 1+random.IntN(200), random)
	for i := range len(ids) / 2 {
		if counter == "user" {
			ids[i] = c.feed.recent(random)
		}
	}
	var got client.GetReply
	newest, gone, ok := c.ask(counter, func(at client.Position) (_ client.Position, err error) {
		got, err = client.New(c.nc).Get(c.t.Context(), client.GetRequest{Counter: counter, IDs: ids, MinPosition: at, Timeout: c.within()})
		return got.AsOf, err
	})
	if !ok {
		return
	}
	for i, row := range got.Rows {
		if row.Values == nil {
			if c.missing.Add(1); !gone[pipeline.ShardOf(ids[i], c.shards)] && !c.lossy {
				c.fault("%s %d of shard %d is missing", counter, ids[i], pipeline.ShardOf(ids[i], c.shards))
			}
			continue
		}
		for j, column := range got.Columns {
			low, high := c.feed.ledger.between(counter+"."+column, ids[i], got.AsOf, newest)
			if v := row.Values[j]; v < low || v > high {
				c.fault("%s.%s of %d is %d, must be %d to %d as of %v to %v", counter, column, ids[i], v, low, high, got.AsOf, newest)
			}
		}
	}
}

func (c *checker) unread(random *rand.Rand) {
	users := some(c.feed.users, 1+random.IntN(40), random)
	for i := range len(users) / 2 { // who was there a moment ago
		users[i] = c.feed.recent(random)
	}
	var got client.UnreadReply
	newest, gone, ok := c.ask("unread", func(at client.Position) (_ client.Position, err error) {
		got, err = client.New(c.nc).UnreadMany(c.t.Context(), client.UnreadRequest{Users: users, MinPosition: at, Timeout: c.within()})
		return got.AsOf, err
	})
	if !ok {
		return
	}
	for i, user := range got.Users {
		if user.Missing {
			if c.missing.Add(1); len(gone) == 0 && !c.lossy {
				c.fault("unread of %d is missing", users[i])
			}
			continue
		}
		low, high := c.feed.ledger.feed(users[i], got.AsOf, newest)
		if v := int64(user.Feed); v < low || v > high {
			c.fault("the feed of %d has %d unread, must have %d to %d as of %v to %v", users[i], v, low, high, got.AsOf, newest)
		}
		for _, column := range ledgerColumns["unread."] {
			low, high := c.feed.ledger.between("unread."+column, users[i], got.AsOf, newest)
			if v := user.Counts[column]; v < low || v > high {
				c.fault("unread.%s of %d is %d, must be %d to %d as of %v to %v", column, users[i], v, low, high, got.AsOf, newest)
			}
		}
	}
}
