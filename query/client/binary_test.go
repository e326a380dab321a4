package client_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

// twins are two clients of one service, which speak one form each.
func (r *room) twins(t testing.TB) (inJSON, inBinary *client.Client) {
	t.Helper()
	inJSON, inBinary = client.New(querytest.Connect(t, r.server)), client.New(querytest.Connect(t, r.server))
	inJSON.Speak(false)
	inBinary.Speak(true)
	return inJSON, inBinary
}

// The binary form answers what JSON answers: values, order, repeats, defaults, what
// is missing, and every error.
func TestBinaryTwin(t *testing.T) {
	r := start(t)
	r.reader.Channels([]string{"news", "system"}, []string{"games", "lamp"})
	random := rand.New(rand.NewPCG(3, 4))
	ids := []uint64{0, 1, 2, 255, 256, 1 << 32, 1<<53 + 1, 1 << 63, math.MaxUint64}
	for range 40 {
		ids = append(ids, random.Uint64()>>random.IntN(64))
	}
	for i, id := range ids {
		if i%3 == 0 {
			continue // has no row
		}
		for column := range 3 {
			r.reader.Set(0, pipeline.Column(column), id, int64(random.Uint64())>>random.IntN(64)) // below zero too
		}
		r.reader.Set(1, 5, id, int64(i))
		r.reader.SetUnread(id, query.UserUnread{
			Feed: random.Uint64() >> random.IntN(64), Counts: []int64{int64(random.Uint64()), int64(i)},
			Notices: []uint64{random.Uint64(), uint64(i)}, Dots: []bool{i%2 == 0, i%4 == 0},
		})
		if i%11 == 1 {
			r.reader.StopShardOf(id)
		}
		if i%7 == 1 {
			r.reader.Cool(id)
		}
	}
	r.reader.Apply(2048)
	inJSON, inBinary := r.twins(t)
	same := func(t interface{ Fatalf(string, ...any) }, ask func(*client.Client) (any, error), what any) {
		want, wantErr := ask(inJSON)
		got, err := ask(inBinary)
		if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%+v\nbinary %+v %v\nJSON   %+v %v", what, got, err, want, wantErr)
		}
		if !inBinary.SpeaksBinary() || inJSON.SpeaksBinary() {
			t.Fatalf("the twins are no twins any more")
		}
	}
	position := rapid.SampledFrom([]client.Position{0, 0, 0, 1, 2048, 2049, 1 << 62})
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom(ids[rapid.SampledFrom([]int{0, 1, 1, 1}).Draw(t, "from"):]), 0, 30).Draw(t, "ids")
		get := client.GetRequest{
			IDs: some, MinPosition: position.Draw(t, "position"), Timeout: time.Millisecond,
			Counter: rapid.SampledFrom([]string{"post", "post", "user", "unread", "gone", "", "pots", `p"`, "\xff"}).Draw(t, "counter"),
			Columns: rapid.SliceOfN(rapid.SampledFrom([]string{"like", "cntan", "repost", "score", "old", "", "cntup", "é\n", "\xff"}), 0, 3).Draw(t, "columns"),
		}
		same(t, func(c *client.Client) (any, error) { return c.Get(context.Background(), get) }, get)
		unread := client.UnreadRequest{Users: some, MinPosition: get.MinPosition, Timeout: time.Millisecond}
		if rapid.Bool().Draw(t, "some channels") {
			unread.Channels = rapid.SliceOfN(rapid.SampledFrom([]string{"system", "games", "lamp", "new", "news", "A", ""}), 0, 4).Draw(t, "channels")
		}
		same(t, func(c *client.Client) (any, error) { return c.UnreadMany(context.Background(), unread) }, unread)
	})

	// docs/contract.md: "At most 10,000 ids (or users) a request."
	many := make([]uint64, 10_001)
	for i := range many {
		many[i] = uint64(i) + 1
	}
	var channels []string
	for i := range 129 {
		channels = append(channels, fmt.Sprint("c", i))
	}
	for _, ids := range [][]uint64{many, many[:10_000], many[:1001], many[:100], {}} {
		same(t, func(c *client.Client) (any, error) {
			return c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: ids})
		}, len(ids))
		same(t, func(c *client.Client) (any, error) { return c.Unread(t.Context(), ids...) }, len(ids))
	}
	same(t, func(c *client.Client) (any, error) {
		return c.UnreadMany(t.Context(), client.UnreadRequest{Users: many[:1], Channels: channels})
	}, "129 channels")
	r.reader.Fail(fmt.Errorf("the disk\nis gone"))
	same(t, func(c *client.Client) (any, error) { return c.Unread(t.Context(), 7) }, "a fault")
	r.reader.Fail(nil)
	r.reader.StopAll()
	same(t, func(c *client.Client) (any, error) {
		return c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: many[:3]})
	}, "all shards are stopped")
	same(t, func(c *client.Client) (any, error) { return c.Unread(t.Context(), many[:3]...) }, "all shards are stopped")
}

// older answers in the queue group of a service as a version without the binary form
// does: such a body is one that is no JSON to it, and headers tell it nothing.
func older(t testing.TB, s *server.Server, real *nats.Conn) (asked, inBinary *atomic.Int64) {
	t.Helper()
	asked, inBinary = new(atomic.Int64), new(atomic.Int64)
	nc := querytest.Connect(t, s)
	for _, subject := range []string{"tidemark.get", "tidemark.unread"} {
		_, err := nc.QueueSubscribe(subject, "q", func(m *nats.Msg) {
			asked.Add(1)
			body := append([]byte(nil), m.Data...)
			if strings.HasPrefix(string(body), "TMQ") {
				inBinary.Add(1)
				body[0] = 'X'
			}
			reply, err := real.Request(subject, body, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			reply.Subject = m.Reply
			if err := m.RespondMsg(&nats.Msg{Header: reply.Header, Data: reply.Data}); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return asked, inBinary
}

// A client falls back to JSON by itself, without an error to its caller.
func TestAnOldServer(t *testing.T) {
	r := start(t) // answers for the old one
	r.reader.Set(0, 2, 42, 3)
	s := querytest.Server(t, &server.Options{})
	asked, inBinary := older(t, s, r.client.Conn())
	c, err := client.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(n int) {
		t.Helper()
		for range n {
			reply, err := c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{42}, Columns: []string{"like"}})
			if err != nil || reply.Rows[0].Values[0] != 3 {
				t.Fatal(reply, err)
			}
			if got, err := c.Unread(t.Context(), 7); err != nil || got.Users[0].Missing {
				t.Fatal(got, err)
			}
		}
	}
	ask(50)
	if asked.Load() != 100 || inBinary.Load() != 0 {
		t.Errorf("%d requests for 100 questions, %d in binary form", asked.Load(), inBinary.Load())
	}
	// One that knew it is replaced by one that does not: one question is asked twice.
	c.Speak(true)
	ask(50)
	if asked.Load() != 201 || inBinary.Load() != 1 {
		t.Errorf("%d requests for 200 questions, %d in binary form", asked.Load(), inBinary.Load())
	}
	// Its own errors come through.
	if _, err := c.Get(t.Context(), client.GetRequest{Counter: "pots", IDs: []uint64{42}}); !has(err, 404) {
		t.Error(err)
	}
	c.Speak(true)
	if _, err := c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{0}}); !has(err, 400, "ids[0]: 0 is not an id") {
		t.Error(err)
	}
}

// A client that talks to new nodes asks one question in JSON.
func TestTheBinaryFormIsUsed(t *testing.T) {
	r := start(t)
	tap, err := r.client.Conn().SubscribeSync("tidemark.*")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.client.Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{42}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Unread(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		m, err := tap.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if isBinary := strings.HasPrefix(string(m.Data), "TMQ\x01"); isBinary != (i > 0) || (len(m.Header) > 0) != (i == 0) {
			t.Errorf("question %d: %q %v", i, m.Data, m.Header)
		}
	}
}
