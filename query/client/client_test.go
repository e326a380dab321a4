package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
	"github.com/tidemark-io/tidemark/query/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is a server with the stream EVENTS and the service on it.
type room struct {
	server *server.Server
	reader *querytest.Reader
	client *client.Client
	stream jetstream.Stream
	fail   atomic.Pointer[error] // of the publisher
}

func start(t testing.TB, options ...func(*server.Options)) *room {
	t.Helper()
	o := &server.Options{JetStream: true, StoreDir: t.TempDir()}
	for _, change := range options {
		change(o)
	}
	r := &room{server: querytest.Server(t, o), reader: querytest.NewReader(querytest.SetsSchema(t))}
	nc := querytest.Connect(t, r.server)
	service, err := service.New(nc, service.Options{
		Schema: querytest.SetsSchema(t), Reader: r.reader, Shards: 64, Version: "1.2.3",
		Publisher: querytest.Publish(func(ctx context.Context, event []byte) (pipeline.Position, error) {
			if fail := r.fail.Load(); fail != nil {
				return 0, *fail
			}
			reply, err := nc.RequestWithContext(ctx, "events.read", event)
			if err != nil {
				return 0, err
			}
			var ack jetstream.PubAck
			if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Sequence == 0 {
				return 0, fmt.Errorf("no acknowledgement: %s", reply.Data)
			}
			return pipeline.At(ack.Sequence, 0), nil
		}),
		Stats:  func() map[string]any { return map[string]any{"applied": uint64(math.MaxUint64)} },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if r.client, err = client.Connect(r.server.ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	r.stream = events(t, r.client.Conn())
	return r
}

func events(t testing.TB, nc *nats.Conn) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// stored is the log's content, one string a line.
func (r *room) stored(t testing.TB) (lines []string) {
	t.Helper()
	info, err := r.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := r.stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(m.Data), "\n")...)
	}
	return lines
}

// docs/contract.md: "Producers publish to JetStream stream `EVENTS`, subject
// `events.<type>`; the body is one JSON object"
func TestEvents(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	base := client.Post(1, 2) // two events made from one do not write over each other
	one, other := base.With("x", 1), base.With("x", 2).With("y", 3)
	for want, e := range map[string]client.Event{
		`{"type":"post","actor":1,"post":18446744073709551615}`:                                   client.Post(1, math.MaxUint64),
		`{"type":"post","actor":1,"post":2,"repost_of":3,"author":4}`:                             client.Repost(1, 2, 3, 4),
		`{"type":"comment","actor":1,"post":2,"author":3}`:                                        client.Comment(1, 2, 3),
		`{"type":"like","actor":1,"post":2,"author":3,"at":1700000000123,"delete":true}`:          client.Like(1, 2, 3).Undo().At(at),
		`{"type":"mention","actor":1,"target":2,"post":3}`:                                        client.Mention(1, 2).WithID("post", 3),
		`{"type":"follow","actor":1,"target":2}`:                                                  client.Follow(1, 2),
		`{"type":"message","actor":1,"target":2}`:                                                 client.Message(1, 2),
		`{"type":"notice","channel":"games","notice":2}`:                                          client.Notice("games", 2),
		`{"type":"read","actor":1,"what":["comment","feed"],"seen":{"comment":3},"as_of":"1024"}`: client.Read(1, "comment", "feed").Seen(map[string]int64{"comment": 3}).AsOf(1024),
		`{"type":"adjust","counter":"post","id":42,"column":"like","add":-3}`:                     client.AdjustAdd("post", 42, "like", -3),
		`{"type":"adjust","counter":"post","id":42,"column":"like","set":987654}`:                 client.AdjustSet("post", 42, "like", 987654),
		`{"type":"adjust","counter":"post","id":42,"del":true}`:                                   client.AdjustDel("post", 42),
		`{"type":"gift","from":1,"to":2,"by":-5}`:                                                 client.Custom("gift", map[string]uint64{"to": 2, "from": 1}).By(-5),
		`{"type":"post","actor":1,"post":2}`:                                                      base, `{"type":"post","actor":1,"post":2,"x":1}`: one, `{"type":"post","actor":1,"post":2,"x":2,"y":3}`: other,
		`{"type":"gift","n":-1,"user":9}`: client.Custom("gift", map[string]int64{"n": -1}).WithID("user", 9),
	} {
		got, err := e.AppendJSON(nil)
		if err != nil || string(got) != want {
			t.Errorf("got  %s %v\nwant %s", got, err, want)
		}
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	for want, e := range map[string]client.Event{
		"post: post is 0, which is not an id":     client.Post(1, 0),
		"user 7 cannot follow themself":           client.Follow(7, 7),
		"read: of what?":                          client.Read(7),
		"notice: channel is empty":                client.Notice("", 1),
		`"a.b" is not an event type`:              client.Custom("a.b", map[string]int64{}),
		`"pack" is not an event type`:             client.Custom("pack", map[string]int64{}),
		`"" is not an event type`:                 {},
		`gift: a field cannot be called "delete"`: client.Custom("gift", map[string]int64{"delete": 1}),
		"invalid UTF-8":                           client.Custom("gift", map[string]int64{"\xff": 1}),
	} {
		if _, err := e.AppendJSON(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// docs/contract.md: "`Nats-Msg-Id` gives JetStream's own duplicate suppression."
func TestPublish(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	first, err := r.client.Publish(ctx, client.Like(7, 42, 9).ID("once"))
	if err != nil || first != pipeline.At(1, 0) {
		t.Fatalf("%v %v", first, err)
	}
	again, err := r.client.Publish(ctx, client.Like(7, 42, 9).ID("once"))
	if err != nil || again != first {
		t.Errorf("the same id again: %v %v", again, err)
	}
	next, err := r.client.Publish(ctx, client.Follow(7, 9))
	if err != nil || next != pipeline.At(2, 0) {
		t.Errorf("%v %v", next, err)
	}
	m, err := r.stream.GetMsg(ctx, 1)
	if err != nil || m.Subject != "events.like" || string(m.Data) != `{"type":"like","actor":7,"post":42,"author":9}` {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := r.client.Publish(ctx, client.Like(0, 1, 2)); err == nil {
		t.Error("user 0 likes")
	}
}

func TestPublishWithoutStream(t *testing.T) {
	s := querytest.Server(t, &server.Options{})
	nc := querytest.Connect(t, s)
	c := client.New(nc)
	_, err := c.Publish(t.Context(), client.Post(1, 2))
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != 503 || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("no stream: %v", err)
	}
	_, err = c.Get(t.Context(), client.GetRequest{Counter: "post", IDs: []uint64{1}})
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != 503 {
		t.Errorf("no service: %v", err)
	}
	// Something takes it and never answers.
	sub, err := nc.SubscribeSync("events.>")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Publish(ctx, client.Post(1, 2)); !errors.Is(err, client.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no acknowledgement: %v", err)
	}
	sent := 0
	e2e.Until(t, "it was sent", func() bool { sent, _, _ = sub.Pending(); return sent > 0 })
	if sent != 1 {
		t.Errorf("without an id it was sent %d times", sent)
	}
}

func TestGet(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.reader.Set(0, 2, 42, 3)
	r.reader.Set(0, 0, math.MaxUint64, math.MaxInt64)
	r.reader.StopShardOf(43)
	r.reader.Apply(2048)

	reply, err := r.client.Get(ctx, client.GetRequest{Counter: "post", IDs: []uint64{43, 42, math.MaxUint64, 42}, Columns: []string{"like", "cntrn"}})
	if err != nil {
		t.Fatal(err)
	}
	want := client.GetReply{
		Columns:  []string{"like", "cntrn"},
		Rows:     []client.Row{{ID: 43}, {ID: 42, Values: []int64{3, 0}}, {ID: math.MaxUint64, Values: []int64{0, math.MaxInt64}}, {ID: 42, Values: []int64{3, 0}}},
		AsOf:     2048,
		Degraded: true,
		Missing:  []uint64{43},
	}
	if fmt.Sprint(reply) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", reply, want)
	}
	if v, ok := reply.Value(1, "like"); v != 3 || !ok {
		t.Errorf("value %d %v", v, ok)
	}
	if _, ok := reply.Value(0, "like"); ok || reply.Map(0) != nil {
		t.Error("a missing id has a value")
	}
	if reply, err := r.client.Get(ctx, client.GetRequest{IDs: []uint64{42}, Columns: []string{"cntan"}}); err != nil || reply.Rows[0].Values[0] != 3 {
		t.Errorf("by suffix alone: %v %v", reply, err)
	}
	if reply, err := r.client.Get(ctx, client.GetRequest{Counter: "post"}); err != nil || len(reply.Rows) != 0 {
		t.Errorf("no ids: %v %v", reply, err)
	}

	counts, asOf, err := r.client.Counts(ctx, "post", 42, client.Wait(2048))
	if err != nil || asOf != 2048 || fmt.Sprint(counts) != "map[comment:0 like:3 repost:0]" {
		t.Errorf("counts: %v %v %v", counts, asOf, err)
	}
	if _, _, err := r.client.Counts(ctx, "post", 43); err == nil {
		t.Error("counts of a stopped shard")
	}
}

func TestGetMany(t *testing.T) {
	r := start(t, func(o *server.Options) { o.MaxPayload = 130_000 })
	ids := make([]uint64, 12_345)
	for i := range ids {
		ids[i] = uint64(i)*7 + 1
		r.reader.Set(0, 2, ids[i], int64(i))
	}
	r.reader.StopShardOf(ids[0])
	ids[12_000] = ids[0] // missing twice, in two parts
	r.reader.Apply(5)
	// 5,000 rows of three columns do not fit into 130,000 bytes: halves do.
	reply, err := r.client.GetMany(t.Context(), client.GetRequest{Counter: "post", IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Rows) != len(ids) || reply.AsOf != 5 || !slices.Equal(reply.Missing, ids[:1]) || !reply.Degraded {
		t.Fatalf("%d rows as of %d, missing %v", len(reply.Rows), reply.AsOf, reply.Missing)
	}
	for i, row := range reply.Rows {
		if row.ID != ids[i] {
			t.Fatalf("row %d is of %d, want %d", i, row.ID, ids[i])
		}
		if v, ok := reply.Value(i, "like"); ok && v != int64(i) {
			t.Fatalf("row %d is %d", i, v)
		}
	}
	ids[9000] = 0
	_, err = r.client.GetMany(t.Context(), client.GetRequest{Counter: "post", IDs: ids})
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != 400 || !strings.Contains(e.Message, "ids[9000]") {
		t.Errorf("0 among many: %v", err)
	}
}

func TestStatsAndSchema(t *testing.T) {
	r := start(t)
	stats, err := r.client.Stats(t.Context(), client.Wait(0))
	if err != nil || stats["applied"] != json.Number("18446744073709551615") {
		t.Errorf("stats: %v %v", stats, err)
	}
	if _, err := r.client.Stats(t.Context(), client.Wait(9), client.Within(time.Millisecond)); err == nil {
		t.Error("stats did not wait")
	}
	schema, err := r.client.Schema(t.Context())
	if err != nil || schema.Shards != 64 || schema.Counters["post"].Columns[2] != (client.ColumnSchema{Name: "like", Suffix: "cntan", Bits: 8, Max: 63, Set: "ids"}) {
		t.Errorf("schema: %+v %v", schema, err)
	}
}

// docs/contract.md: "or up to 1,024 of them, one a line (NDJSON): a *pack*"
func TestPacker(t *testing.T) {
	r := start(t)
	var acks []client.Ack
	p, err := r.client.NewPacker(client.PackOptions{LinesMax: 100, Delay: -1, InFlightMax: 4, IDPrefix: "run", OnAck: func(a client.Ack) { acks = append(acks, a) }})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range uint64(1050) {
		e := client.Like(i+1, 42, 9)
		line, _ := e.AppendJSON(nil)
		want = append(want, string(line))
		if i%2 == 0 {
			err = p.Add(e)
		} else {
			err = p.AddLine(append(line, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.stored(t); !slices.Equal(got, want) {
		t.Errorf("%d lines are stored, not the %d that were added, in that order", len(got), len(want))
	}
	if len(acks) != 11 || acks[0] != (client.Ack{ID: "run-1", Lines: 100, First: 1 << 10, Last: 1<<10 | 99}) || p.Position() != 11<<10|49 {
		t.Errorf("%d acks, first %+v, position %d", len(acks), acks[0], p.Position())
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Add(client.Post(1, 2)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("add after close: %v", err)
	}
	if err := p.Close(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("close after close: %v", err)
	}

	// The same run again, with the same ids, stores nothing twice.
	p, err = r.client.NewPacker(client.PackOptions{LinesMax: 100, Delay: -1, IDPrefix: "run"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(1050) {
		if err := p.Add(client.Like(i+1, 42, 9)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.stored(t); len(got) != len(want) || p.Position() != 11<<10|49 {
		t.Errorf("%d lines after the second run, position %d", len(got), p.Position())
	}
}

func TestPackerBounds(t *testing.T) {
	r := start(t)
	p, err := r.client.NewPacker(client.PackOptions{LinesMax: 5000, BytesMax: 100, Delay: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	if err := p.AddLine(bytes.Repeat([]byte{'x'}, 100)); err == nil {
		t.Error("a line larger than a message")
	}
	if err := p.AddLine([]byte("{}\n{}")); err == nil {
		t.Error("two lines as one")
	}
	if err := p.AddLine([]byte(" \n")); err == nil {
		t.Error("no line")
	}
	if err := p.Add(client.Post(0, 1)); err == nil {
		t.Error("user 0 posts")
	}
	for range 5 { // 40 bytes each: two a message
		if err := p.Add(client.Post(1_000_000, 1_000_000)); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Until(t, "the last goes out by itself", func() bool { return p.Position() == pipeline.At(3, 0) })
	if got := r.stored(t); len(got) != 5 {
		t.Errorf("stored %q", got)
	}
}

// Acknowledgements that get lost: each pack is stored once, nothing is lost.
func TestPackerLosesAcknowledgements(t *testing.T) {
	r := start(t)
	// A stand-in between the client and the stream: it passes packs on and
	// swallows every second acknowledgement.
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	inner := r.client.Conn()
	var n atomic.Int64
	_, err := nc.Subscribe("events.pack", func(m *nats.Msg) {
		ack, err := inner.RequestMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, 5*time.Second)
		if err == nil && n.Add(1)%2 == 0 {
			_ = m.Respond(ack.Data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := client.New(nc)
	c.SetAckTimeout(30 * time.Millisecond)
	duplicates := 0
	p, err := c.NewPacker(client.PackOptions{LinesMax: 2, InFlightMax: 3, OnAck: func(a client.Ack) {
		if a.Duplicate {
			duplicates++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range uint64(20) {
		line, _ := client.Post(i+1, 1).AppendJSON(nil)
		want = append(want, string(line))
		if err := p.AddLine(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := r.stored(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || duplicates == 0 {
		t.Errorf("%d lines are stored instead of %d; %d duplicates", len(got), len(want), duplicates)
	}
}

// Errors are reported with all that is needed to go on, and not swallowed.
func TestPackerReportsFailures(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	var refuse atomic.Bool
	var seq atomic.Uint64
	if _, err := nc.Subscribe("events.pack", func(m *nats.Msg) {
		if refuse.Load() {
			_ = m.Respond([]byte(`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`))
			return
		}
		_ = m.Respond(fmt.Appendf(nil, `{"stream":"EVENTS","seq":%d}`, seq.Add(1)))
	}); err != nil {
		t.Fatal(err)
	}
	p, err := client.New(nc).NewPacker(client.PackOptions{LinesMax: 2, Delay: -1, IDPrefix: "x"})
	if err != nil {
		t.Fatal(err)
	}
	refuse.Store(true)
	for i := range uint64(2) {
		if err := p.Add(client.Post(i+1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Until(t, "the next Add tells", func() bool { return p.AddLine([]byte(`{"type":"post","actor":9,"post":9}`)) != nil })
	refuse.Store(false)
	err = p.Flush(t.Context())
	failed, ok := errors.AsType[*client.PackError](err)
	if !ok || failed.ID != "x-1" || failed.Lines != 2 || errors.Is(err, client.ErrUncertain) ||
		string(failed.Body) != `{"type":"post","actor":1,"post":1}`+"\n"+`{"type":"post","actor":2,"post":1}` {
		t.Errorf("%#v", err)
	}
	if err := p.Add(client.Post(3, 1)); err != nil {
		t.Errorf("after Flush it goes on: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nobody there: it waits, in bounds, and says at the end what is uncertain.
func TestPackerWithoutStream(t *testing.T) {
	nc := querytest.Connect(t, querytest.Server(t, &server.Options{}))
	packerOf := func(patience time.Duration) *client.Packer {
		p, err := client.New(nc).NewPacker(client.PackOptions{LinesMax: 1, InFlightMax: 2, Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Add(client.Post(1, 1)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	err := packerOf(100 * time.Millisecond).Flush(t.Context())
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != 503 {
		t.Errorf("flush: %v", err)
	}
	if _, err := nc.SubscribeSync("events.>"); err != nil { // takes all, answers nothing
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = packerOf(time.Hour).Close(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUncertain) {
		t.Errorf("close: %v", err)
	}
}

func TestPackerConcurrently(t *testing.T) {
	r := start(t)
	p, err := r.client.NewPacker(client.PackOptions{LinesMax: 7, InFlightMax: 3, Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var producers sync.WaitGroup
	for range 8 {
		producers.Go(func() {
			for i := range uint64(200) {
				if err := p.Add(client.Post(i+1, 1)); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := p.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	producers.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.stored(t); len(got) != 1600 {
		t.Errorf("%d lines are stored", len(got))
	}
}

// docs/degradation.md: "producers: an error instead of the acknowledgement": at once,
// also where it would be tried again.
func TestPublishWhileRefused(t *testing.T) {
	r := start(t)
	config := r.stream.CachedInfo().Config
	config.MaxMsgs, config.Discard = 1, jetstream.DiscardNew
	js, err := jetstream.New(r.client.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Publish(t.Context(), client.Like(7, 42, 9)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Publish(t.Context(), client.Like(8, 42, 9).ID("once")); !errors.Is(err, client.ErrRefused) {
		t.Errorf("published: %v", err)
	}
	p, err := r.client.NewPacker(client.PackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(client.Like(9, 42, 9)); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); !errors.Is(err, client.ErrRefused) {
		t.Errorf("packed: %v", err)
	}
	if err := p.Close(t.Context()); err != nil && !errors.Is(err, client.ErrRefused) {
		t.Error(err)
	}
}
