// Package querytest is what the tests of the service, the client and spread share: a real
// NATS server in the process, a Reader that is a map, a Publisher that is a list.
// world.go has a World, of which a Holder answers for some shards, sets.go what both
// answer about sets.
package querytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// Schema has suffixes, a default, hidden columns, the 1:1 counters and a
// counter that is all hidden.
func Schema(t testing.TB) *pipeline.Schema {
	t.Helper()
	return schemaOf(t, names, columns)
}

// SetsSchema is Schema with sets: post.like has one of ids, and the counter item one of
// each shape, and a column without.
func SetsSchema(t testing.TB) *pipeline.Schema {
	t.Helper()
	all := slices.Clone(columns)
	all[2].Set.Members, all[2].Set.Actor = pipeline.MembersIDs, pipeline.WordA
	item := len(names)
	return schemaOf(t, append(slices.Clone(names), "item"), append(all,
		pipeline.ColumnSpec{Counter: item, Name: "fan", Suffix: "cntfan", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
		pipeline.ColumnSpec{Counter: item, Name: "liked", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersPairs}},
		pipeline.ColumnSpec{Counter: item, Name: "view", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersTokens, Keep: 86_400}},
		pipeline.ColumnSpec{Counter: item, Name: "plain", Bits: 8, Max: 63},
		pipeline.ColumnSpec{Counter: item, Name: "balance", Bits: 8, Max: 8, Signed: true},
	))
}

var (
	names   = []string{"post", "user", "unread", "gone"}
	columns = []pipeline.ColumnSpec{
		{Counter: 0, Name: "repost", Suffix: "cntrn", Bits: 16, Max: 63},
		{Counter: 0, Name: "comment", Suffix: "cntcm", Bits: 16, Max: 63},
		{Counter: 0, Name: "like", Suffix: "cntan", Bits: 8, Max: 63},
		{Counter: 0, Name: "old", Suffix: "cntold", Bits: 8, Max: 63, Hidden: true},
		{Counter: 1, Name: "post", Suffix: "cntup", Bits: 16, Max: 63},
		{Counter: 1, Name: "score", Bits: 16, Max: 63, Default: 100},
		{Counter: 2, Name: "comment", Suffix: "cntuc", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs, Keep: 90 * 86_400, Items: 1000}},
		{Counter: 2, Name: "old", Bits: 8, Max: 63, Hidden: true},
		{Counter: 2, Name: "mention", Bits: 8, Max: 63},
		{Counter: 3, Name: "old", Suffix: "cntgo", Bits: 8, Max: 63, Hidden: true},
	}
)

func schemaOf(t testing.TB, names []string, columns []pipeline.ColumnSpec) *pipeline.Schema {
	t.Helper()
	schema, err := pipeline.NewSchema(names, columns)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// Server runs a NATS server until the test ends; with a store directory it
// has JetStream.
func Server(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoSigs, o.NoLog = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// Connect connects until the test ends.
func Connect(t testing.TB, s *server.Server, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Reader is a Holder of all of a World of its own, which changes while it is asked.
type Reader struct {
	query.Reader
	// Before, if set, runs at the start of every answer. Set it before the
	// first request.
	Before func()
	// Disk, if set, runs for each id that is read from disk, with the context of who
	// asks. Set it before the first request.
	Disk func(context.Context)

	of *Holder // the same
}

// NewReader is empty, at position 0.
func NewReader(schema *pipeline.Schema) *Reader {
	h := NewHolder(NewWorld(schema, pipeline.ShardsMax, 0), "all", func(pipeline.Shard) bool { return true })
	h.not = query.ErrStopped
	r := &Reader{Reader: h, of: h}
	h.Before = func(context.Context) error {
		if r.Before != nil {
			r.Before()
		}
		return nil
	}
	h.Disk = func(ctx context.Context) {
		if r.Disk != nil {
			r.Disk(ctx)
		}
	}
	return r
}

// Use has the world count by another schema, before anything is in it.
func (r *Reader) Use(schema *pipeline.Schema) { r.of.Schema = schema }

// change locks the world until what it returns is called.
func (r *Reader) change() (w *World, unlock func()) {
	r.of.World.mu.Lock()
	return r.of.World, r.of.World.mu.Unlock
}

// Set sets one cell.
func (r *Reader) Set(counter int, column pipeline.Column, id uint64, value int64) {
	w, unlock := r.change()
	defer unlock()
	if w.Rows[counter] == nil {
		w.Rows[counter] = map[uint64][]int64{}
	}
	if w.Rows[counter][id] == nil {
		w.Rows[counter][id] = make([]int64, w.Schema.Counters[counter].Count)
	}
	w.Rows[counter][id][column-w.Schema.Counters[counter].First] = value
}

// AddMembers puts members into the set of a column's row.
func (r *Reader) AddMembers(column pipeline.Column, id uint64, members ...pipeline.Member) {
	w, unlock := r.change()
	defer unlock()
	w.Sets.Add(column, id, members...)
}

// AddItem puts the newest item into a user's list.
func (r *Reader) AddItem(user uint64, item query.InboxItem) {
	w, unlock := r.change()
	defer unlock()
	if w.Items == nil {
		w.Items = map[uint64][]query.InboxItem{}
	}
	w.Items[user] = append(w.Items[user], item)
}

// StopShardOf makes an id unreadable.
func (r *Reader) StopShardOf(id uint64) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.lost[id] = true
}

// Cool puts everything of an id on disk, for good: reading it does not warm it.
func (r *Reader) Cool(id uint64) { r.of.Cool(id) }

// StopAll makes every answer an error that wraps query.ErrStopped.
func (r *Reader) StopAll() { r.Fail(fmt.Errorf("shard 7: %w", query.ErrStopped)) }

// Fail makes every answer fail.
func (r *Reader) Fail(err error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.err = err
}

// Apply moves on to p.
func (r *Reader) Apply(p pipeline.Position) { r.of.Lag(p) }

// Waiting is how many callers are in WaitApplied.
func (r *Reader) Waiting() int { return r.of.Waiting() }

// Channels names the channels, in order.
func (r *Reader) Channels(notices, dots []string) {
	w, unlock := r.change()
	defer unlock()
	for _, name := range notices {
		w.Notices[name] = map[uint64]uint64{}
	}
	for _, name := range dots {
		w.Dots[name] = map[uint64]bool{}
	}
}

// SetUnread sets what one user has not read.
func (r *Reader) SetUnread(user uint64, u query.UserUnread) {
	w, unlock := r.change()
	w.Feeds[user] = u.Feed
	notices, dots := w.channels(nil)
	for i, n := range u.Notices {
		w.Notices[notices[i]][user] = n
	}
	for i, dot := range u.Dots {
		w.Dots[dots[i]][user] = dot
	}
	unlock()
	counter, _ := w.Schema.Counter("unread")
	for i, column := range w.Schema.Visible(counter)[:len(u.Counts)] {
		r.Set(counter, column, user, u.Counts[i])
	}
}

// Follow makes one user follow another.
func (r *Reader) Follow(who, whom uint64) {
	w, unlock := r.change()
	defer unlock()
	if w.Follows[who] == nil {
		w.Follows[who] = map[uint64]pipeline.Position{}
	}
	w.Follows[who][whom] = 0
}

// Post lists a post.
func (r *Reader) Post(author, post uint64, at pipeline.Position) {
	w, unlock := r.change()
	defer unlock()
	w.Posts[author] = append(w.Posts[author], query.FeedPost{Post: post, Author: author, Position: at})
}

// Publish is a Publisher that is a function.
type Publish func(ctx context.Context, event []byte) (pipeline.Position, error)

// Publish is query.Publisher's.
func (f Publish) Publish(ctx context.Context, event []byte) (pipeline.Position, error) {
	return f(ctx, event)
}

// Log is a Publisher that keeps its events in a list.
type Log struct {
	mu     sync.Mutex
	events []string

	// Before, if set, runs at the start of every Publish; its error is
	// Publish's. Set it before the first request.
	Before func(context.Context) error
	// Stored, if set, gets every event's position.
	Stored func(pipeline.Position)
}

// Publish is query.Publisher's: events get the sequences 1, 2, …
func (l *Log) Publish(ctx context.Context, event []byte) (pipeline.Position, error) {
	if l.Before != nil {
		if err := l.Before(ctx); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, string(event))
	at := pipeline.At(uint64(len(l.events)), 0)
	if l.Stored != nil {
		l.Stored(at)
	}
	return at, nil
}

// Events lists what was published.
func (l *Log) Events() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}
