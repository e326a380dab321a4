// Package querytest is what the tests of the service, the client and spread share: a real
// NATS server in the process, a Reader that is a map, a Publisher that is a list.
// world.go has a World, of which a Holder answers for some shards, sets.go what both
// answer about sets.
package querytest

import (
	"cmp"
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
	all[2].Set.Members = pipeline.MembersIDs
	item := len(names)
	return schemaOf(t, append(slices.Clone(names), "item"), append(all,
		pipeline.ColumnSpec{Counter: item, Name: "fan", Suffix: "cntfan", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersIDs}},
		pipeline.ColumnSpec{Counter: item, Name: "liked", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersPairs}},
		pipeline.ColumnSpec{Counter: item, Name: "view", Bits: 8, Max: 63, Set: pipeline.SetSpec{Members: pipeline.MembersTokens, Keep: 86_400}},
		pipeline.ColumnSpec{Counter: item, Name: "plain", Bits: 8, Max: 63},
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
		{Counter: 2, Name: "comment", Suffix: "cntuc", Bits: 8, Max: 63},
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

// Reader is the dumb twin of the state: maps and lists under one lock.
type Reader struct {
	// Before, if set, runs at the start of every answer. Set it before the
	// first request.
	Before func()
	// Disk, if set, runs whenever the disk is read, without the lock. Set it
	// before the first request.
	Disk func()

	mu       sync.Mutex
	applied  pipeline.Position
	moved    chan struct{} // closed when applied moves
	waiting  int           // in WaitApplied
	rows     map[cell]int64
	exist    map[row]bool
	stopped  map[uint64]bool // ids whose shard is stopped
	cold     map[uint64]bool // ids of which everything is on disk
	err      error
	notices  []string
	dots     []string
	unread   map[uint64]query.UserUnread
	follows  map[[2]uint64]bool // follower, followee
	posts    []query.FeedPost
	columns  int // of counter unread
	allStops bool

	sets Sets
}

type (
	row struct {
		counter int
		id      uint64
	}
	cell struct {
		column pipeline.Column
		id     uint64
	}
)

// NewReader is empty, at position 0.
func NewReader() *Reader {
	return &Reader{
		moved: make(chan struct{}), rows: map[cell]int64{}, exist: map[row]bool{}, stopped: map[uint64]bool{}, cold: map[uint64]bool{},
		unread: map[uint64]query.UserUnread{}, follows: map[[2]uint64]bool{}, columns: 2,
		sets: Sets{},
	}
}

// Set sets one cell.
func (r *Reader) Set(counter int, column pipeline.Column, id uint64, value int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[cell{column, id}] = value
	r.exist[row{counter, id}] = true
}

// StopShardOf makes an id unreadable.
func (r *Reader) StopShardOf(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped[id] = true
}

// Cool puts everything of an id on disk, for good: reading it does not warm it.
func (r *Reader) Cool(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cold[id] = true
}

// StopAll makes every answer an error that wraps query.ErrStopped.
func (r *Reader) StopAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allStops = true
}

// Channels names the channels.
func (r *Reader) Channels(notices, dots []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notices, r.dots = notices, dots
}

// SetUnread sets what one user has not read.
func (r *Reader) SetUnread(user uint64, u query.UserUnread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread[user] = u
}

// NoUnreadCounter is for a schema without one.
func (r *Reader) NoUnreadCounter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.columns = 0
}

// Follow makes one user follow another.
func (r *Reader) Follow(who, whom uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follows[[2]uint64{who, whom}] = true
}

// Post lists a post.
func (r *Reader) Post(author, post uint64, at pipeline.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, query.FeedPost{Post: post, Author: author, Position: at})
}

// Fail makes every answer fail.
func (r *Reader) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Apply moves on to p.
func (r *Reader) Apply(p pipeline.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = p
	close(r.moved)
	r.moved = make(chan struct{})
}

// Applied is query.Reader's.
func (r *Reader) Applied() pipeline.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// WaitApplied is query.Reader's.
func (r *Reader) WaitApplied(ctx context.Context, p pipeline.Position) error {
	r.waits(1)
	defer r.waits(-1)
	for {
		r.mu.Lock()
		applied, moved := r.applied, r.moved
		r.mu.Unlock()
		if applied >= p {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Reader) waits(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting += by
}

// Waiting is how many callers are in WaitApplied.
func (r *Reader) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// enter begins an answer about ids; the caller unlocks.
func (r *Reader) enter(ctx context.Context, disk bool, ids ...uint64) (cost query.Cost, err error) {
	if r.Before != nil {
		r.Before()
	}
	cost, err = r.warm(ctx, disk, ids)
	r.mu.Lock()
	switch {
	case err != nil:
		return cost, err
	case r.allStops:
		return cost, fmt.Errorf("shard 7: %w", query.ErrStopped)
	}
	return cost, r.err
}

// warm goes to the disk for those of ids that are there.
func (r *Reader) warm(ctx context.Context, disk bool, ids []uint64) (cost query.Cost, err error) {
	r.mu.Lock()
	for _, id := range ids {
		if r.cold[id] {
			cost.Cold++
		}
	}
	r.mu.Unlock()
	switch {
	case cost.Cold == 0:
		return cost, nil
	case !disk:
		return query.Cost{}, fmt.Errorf("shard 7: %w", query.ErrCold)
	}
	since := time.Now()
	for range cost.Cold {
		if err := ctx.Err(); err != nil {
			return cost, err
		}
		if r.Disk != nil {
			r.Disk()
		}
	}
	cost.Disk = time.Since(since)
	return cost, nil
}

// Rows is query.Reader's.
func (r *Reader) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) error {
	cost, err := r.enter(ctx, disk, ids...)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	rows.Reset(len(ids), len(columns))
	rows.AsOf, rows.Cost = r.applied, cost
	for i, id := range ids {
		if r.stopped[id] {
			rows.Missing = append(rows.Missing, i)
			continue
		}
		rows.Exist[i] = r.exist[row{counter, id}]
		for j, column := range columns {
			rows.Values[i*len(columns)+j] = r.rows[cell{column, id}]
		}
		r.sets.has(rows.Sets, id, rows.Has[i*len(rows.Sets):])
	}
	slices.Reverse(rows.Missing) // in any order
	return nil
}

// Unread is query.Reader's.
func (r *Reader) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	cost, err := r.enter(ctx, disk, users...)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	notices, dots := r.notices, r.dots
	if channels != nil {
		notices, dots = nil, nil
		for _, name := range channels {
			if slices.Contains(r.dots, name) {
				dots = append(dots, name)
			} else {
				notices = append(notices, name)
			}
		}
	}
	if err := out.Fits(notices, dots); err != nil {
		return err
	}
	out.Reset(len(users), r.columns, notices, dots)
	out.AsOf, out.Cost = r.applied, cost
	for i, user := range users {
		if r.stopped[user] {
			out.Missing = append(out.Missing, i)
		}
		u := r.unread[user]
		out.Users[i].Feed = u.Feed
		copy(out.Users[i].Counts, u.Counts)
		for j, name := range notices {
			if at := slices.Index(r.notices, name); at >= 0 && at < len(u.Notices) {
				out.Users[i].Notices[j] = u.Notices[at]
			}
		}
		for j, name := range dots {
			if at := slices.Index(r.dots, name); at < len(u.Dots) {
				out.Users[i].Dots[j] = u.Dots[at]
			}
		}
	}
	slices.Reverse(out.Missing)
	return nil
}

// Feed is query.Reader's.
func (r *Reader) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	cost, err := r.enter(ctx, disk, user)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	if r.stopped[user] {
		return fmt.Errorf("user %d: %w", user, query.ErrStopped)
	}
	out.Reset()
	out.AsOf, out.Cost = r.applied, cost
	for _, p := range r.posts {
		switch {
		case !r.follows[[2]uint64{user, p.Author}] || before > 0 && p.Position >= before:
		case r.stopped[p.Author]:
			out.Missing = true
		default:
			out.Posts = append(out.Posts, p)
		}
	}
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	if out.More = len(out.Posts) > limit; out.More {
		out.Posts = out.Posts[:limit]
	}
	return nil
}

// Following is query.Reader's.
func (r *Reader) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return r.users(ctx, user, after, limit, out, disk, 0)
}

// Followers is query.Reader's.
func (r *Reader) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return r.users(ctx, user, after, limit, out, disk, 1)
}

func (r *Reader) users(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool, side int) error {
	cost, err := r.enter(ctx, disk, user)
	defer r.mu.Unlock()
	if err != nil {
		return err
	}
	if r.stopped[user] {
		return fmt.Errorf("user %d: %w", user, query.ErrStopped)
	}
	out.Reset()
	out.AsOf, out.Cost = r.applied, cost
	for pair := range r.follows {
		if pair[side] == user && pair[1-side] > after {
			out.Users = append(out.Users, pair[1-side])
		}
	}
	slices.Sort(out.Users)
	if out.More = len(out.Users) > limit; out.More {
		out.Users = out.Users[:limit]
	}
	return nil
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
