package twin

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// setup is everything that must not change an answer, and the ages that do.
type setup struct {
	shards, owners int
	dirtyRowsMax   int
	memory         int           // bytes for what shards hold; 0: no bound, 1: nothing clean stays
	every          time.Duration // between checkpoints
	ages           rulesOfAges
	defaults       map[string]int64
}

// windowEvents are the sizes of windows that runs are cut into.
var windowEvents = []int{1, 2, 7, 20}

// world is the real thing: a log of messages, what is derived from them, and
// a node that applies it. Sequences of events that have no id in common live
// in one world one after the other.
type world struct {
	setup
	root  string // where directories are made
	dir   string
	store *cold.Store
	node  *sinks.Node
	other query.Reader // what is asked; nil: the node

	schema  *pipeline.Schema
	rules   operators.Rules
	lanes   []*operators.Lane
	log     []pipeline.Message
	entries []pipeline.Entry // entries[i] has sequence i+1
	end     pipeline.Position
	letters int

	clock   int64 // the newest timestamp, ms
	notices []noticed
}

func newWorld(root string, s setup) (*world, error) {
	w, err := newLog(s)
	if err != nil {
		return nil, err
	}
	w.root = root
	if w.dir, err = os.MkdirTemp(root, "node"); err != nil {
		return nil, err
	}
	return w, w.open()
}

// newLog is a world without a node: a log, and what derives it.
func newLog(s setup) (*world, error) {
	w := &world{setup: s, clock: 1_700_000_000_123}
	c := Configuration()
	withSets(c, s.ages.once)
	withItems(c, s.ages.items, s.ages.itemsKept)
	w.rules = c.Rules()
	for i := range c.Counters {
		for j := range c.Counters[i].Columns {
			column := &c.Counters[i].Columns[j]
			column.Default = s.defaults[c.Counters[i].Name+"."+column.Name]
		}
	}
	var err error
	if w.schema, err = c.Schema(); err != nil {
		return nil, err
	}
	for _, events := range windowEvents {
		p, err := operators.Compile(w.schema, w.rules, s.shards, operators.Limits{Events: events, Bytes: 512 << 10})
		if err != nil {
			return nil, err
		}
		w.lanes = append(w.lanes, p.NewLane())
	}
	return w, nil
}

func (w *world) open() (err error) {
	w.store, err = cold.Open(w.dir, w.schema, cold.Options{Shards: w.shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		return err
	}
	return w.start()
}

func (w *world) start() (err error) {
	w.node, err = sinks.NewNode(w.store, w.options())
	if err != nil {
		return err
	}
	for _, e := range w.entries[w.node.Sequence():] { // what the last checkpoint has not
		if err := w.node.Hand(context.Background(), e); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) options() sinks.Options {
	return sinks.Options{
		Shards: w.shards, Owners: w.owners, CheckpointEvery: w.every, DirtyRowsMax: w.dirtyRowsMax, MemoryBytes: w.memory,
		Users:   shard.Limits{PostsMax: w.ages.postsPerAuthor, PostsKept: w.ages.postsKept, Retention: w.ages.retention, Inactive: w.ages.inactiveAfter},
		Notices: noticeChannels, Dots: dotChannels, Channels: shard.ChannelLimits{Channels: w.ages.channels, Notices: w.ages.notices},
		SequenceMax: uint64(len(w.entries)), Logger: quiet,
	}
}

// reader is what is asked.
func (w *world) reader() query.Reader {
	if w.other != nil {
		return w.other
	}
	return w.node
}

var quiet = slog.New(slog.DiscardHandler)

// close ends the world.
func (w *world) close() error {
	defer os.RemoveAll(w.dir)
	if err := w.node.Close(); err != nil {
		return err
	}
	return w.store.Close()
}

// restart closes the node, and with store the database too, and starts again.
func (w *world) restart(store bool) error {
	if err := w.node.Close(); err != nil {
		return err
	}
	if w.node.Checkpointed() != uint64(len(w.entries)) {
		return fmt.Errorf("closed after window %d, checkpointed up to %d", len(w.entries), w.node.Checkpointed())
	}
	if !store {
		return w.start()
	}
	if err := w.store.Close(); err != nil {
		return err
	}
	return w.open()
}

// crash ends the node without its last checkpoint.
func (w *world) crash() error {
	if err := w.crashOf(w.node); err != nil {
		return err
	}
	return w.start()
}

// crashOf ends a node without its last checkpoint: a window that joins on
// nowhere stops every shard (I3), and stopped shards are not checkpointed. A
// commit under way may still land, as in a real crash.
func (w *world) crashOf(n *sinks.Node) error {
	gap := pipeline.AppendWindow(nil, &pipeline.Window{
		Header:   pipeline.Header{From: math.MaxInt64 - 1, To: math.MaxInt64},
		Sections: make([][]byte, w.shards+1),
	})
	if err := n.Hand(context.Background(), pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: gap}); err != nil {
		return err
	}
	n.Close()
	if !n.Stopped() {
		return fmt.Errorf("only %d units were stopped", n.Failed())
	}
	return nil
}

// publish puts messages into the log, has them derived as one run into windows
// of a size, hands those to the node, and tells the model.
func (w *world) publish(messages []message, size int, m *model) error {
	run := len(w.log)
	refused := w.note(messages, m)
	was := w.letters
	if err := w.derive(w.log[run:], size); err != nil {
		return err
	}
	if w.letters-was != refused {
		return fmt.Errorf("%d dead letters of %d", w.letters-was, refused)
	}
	return nil
}

// note puts messages into the log, and into the model.
func (w *world) note(messages []message, m *model) (refused int) {
	for i := range messages {
		sequence := uint64(len(w.log) + 1)
		at := w.clock + messages[i].step
		if w.clock = max(w.clock, at); sequence == 1 {
			w.clock = at // log time begins where the log does
		}
		subject, data := messages[i].encode(sequence)
		w.log = append(w.log, pipeline.Message{Sequence: sequence, Time: at, Subject: subject, Data: data})
		for line, e := range messages[i].events {
			if e.junk != "" || e.kind == "follow" && e.actor == e.target {
				refused++ // "self-follow": to DEADLETTER
				continue
			}
			position := pipeline.At(sequence, line)
			m.log = append(m.log, logged{e, position, w.clock / 1000})
			if e.kind == "notice" {
				w.notices = append(w.notices, noticed{e.channel, e.notice, e.delete, position})
			}
		}
	}
	return refused
}

func (w *world) derive(run []pipeline.Message, size int) error {
	windows, err := pipeline.DeriveRun(w.lanes[size], w.end, run, nil)
	if err != nil {
		return err
	}
	for _, d := range windows {
		if d.From != w.end {
			return fmt.Errorf("a window from %d joins on to %d (I2)", d.From, w.end)
		}
		w.end = d.To
		w.letters += len(d.Letters)
		e := pipeline.Entry{Sequence: uint64(len(w.entries) + 1), Window: d.Window}
		w.entries = append(w.entries, e)
		if err := w.node.Hand(context.Background(), e); err != nil {
			return err
		}
	}
	return nil
}

// again is another world with the same log, from an empty directory.
func (w *world) again(s setup, size int) (*world, error) {
	s.ages, s.defaults = w.ages, w.defaults
	other, err := newWorld(w.root, s)
	if err != nil {
		return nil, err
	}
	other.log, other.clock, other.notices = w.log, w.clock, w.notices
	return other, other.derive(w.log, size)
}

// settle waits until everything is applied.
func (w *world) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.node.WaitApplied(ctx, w.end); err != nil {
		return fmt.Errorf("waiting for %d at %d: %w", w.end, w.node.Applied(), err)
	}
	return w.node.Err()
}

// same asks the node everything about people and compares with the model.
// pages is the size of the pages that lists are read in.
func (w *world) same(m *model, p people, page int) error {
	if err := w.settle(); err != nil {
		return err
	}
	m.now, m.notices = w.clock/1000, w.notices
	c := m.count()
	got, err := w.answers(p.users, page)
	if err != nil {
		return err
	}
	for i, user := range p.users {
		if want := m.answer(c, user); !reflect.DeepEqual(got[i], want) {
			return fmt.Errorf("user %d:\n got %+v\nwant %+v", user, got[i], want)
		}
		if err := w.sameInbox(m, c, user, page); err != nil {
			return err
		}
	}
	for _, about := range []struct {
		counter string
		columns []string
		ids     []uint64
	}{{"post", postColumns, p.posts}, {"page", []string{"view"}, p.pages}} {
		rows, err := w.rows(about.counter, about.columns, about.ids)
		if err != nil {
			return err
		}
		for i, id := range about.ids {
			for j, column := range about.columns {
				if want := m.value(c, about.counter, column, id); rows[i][j] != want {
					return fmt.Errorf("%s.%s of %d is %d, want %d", about.counter, column, id, rows[i][j], want)
				}
			}
		}
	}
	return nil
}

// sameInbox asks for all of a user's items, and for the unread ones, page by page.
func (w *world) sameInbox(m *model, c *counts, user uint64, page int) error {
	if w.ages.items == 0 {
		return nil
	}
	schema := w.node.Schema()
	ask := query.InboxAsk{User: user, Limit: page}
	for _, kind := range unreadKinds {
		column, _ := schema.Find("unread." + kind)
		ask.Columns = append(ask.Columns, column)
	}
	for _, ask.Unread = range []bool{false, true} {
		var got []inboxItem
		for ask.Before = 0; ; {
			var out query.InboxPage
			if err := w.reader().Inbox(context.Background(), &ask, &out, true); err != nil {
				return err
			}
			if out.AsOf != w.end {
				return fmt.Errorf("the inbox of user %d is as of %d, want %d", user, out.AsOf, w.end)
			}
			for _, i := range out.Items {
				got = append(got, inboxItem{schema.Columns[i.Column].Name, i.Position, i.Second, i.Actor, i.Post, i.Read})
				ask.Before = i.Position
			}
			if !out.More {
				break
			}
		}
		if want := m.inbox(c, user, ask.Unread); !slices.Equal(got, want) {
			return fmt.Errorf("inbox of user %d, unread ones alone %v:\n got %+v\nwant %+v", user, ask.Unread, got, want)
		}
	}
	return nil
}

func (w *world) rows(counter string, columns []string, ids []uint64) ([][]int64, error) {
	schema := w.node.Schema()
	number, _ := schema.Counter(counter)
	var numbers []pipeline.Column
	for _, name := range columns {
		column, _ := schema.Find(counter + "." + name)
		numbers = append(numbers, column)
	}
	var rows query.Rows
	if err := w.reader().Rows(context.Background(), number, numbers, ids, &rows, true); err != nil {
		return nil, err
	}
	if len(rows.Missing) > 0 || rows.AsOf != w.end {
		return nil, fmt.Errorf("rows as of %d, want %d; missing %v", rows.AsOf, w.end, rows.Missing)
	}
	var out [][]int64
	for i := range ids {
		row := slices.Clone(rows.Values[i*len(columns) : (i+1)*len(columns)])
		if !rows.Exist[i] {
			for j, column := range numbers {
				row[j] = schema.Columns[column].Default
			}
		}
		out = append(out, row)
	}
	return out, nil
}

// answers asks about users.
func (w *world) answers(users []uint64, page int) ([]answer, error) {
	rows, err := w.rows("user", userColumns, users)
	if err != nil {
		return nil, err
	}
	var unread query.Unreads
	if err := w.reader().Unread(context.Background(), users, nil, &unread, true); err != nil {
		return nil, err
	}
	if len(unread.Missing) > 0 || unread.AsOf != w.end {
		return nil, fmt.Errorf("unread as of %d, want %d; missing %v", unread.AsOf, w.end, unread.Missing)
	}
	if err := w.askedChannels(users, &unread); err != nil {
		return nil, err
	}
	var out []answer
	for i, user := range users {
		u := &unread.Users[i]
		a := answer{Row: rows[i], Feed: u.Feed, Unread: map[string]int64{}, Channels: map[string]uint64{}, Dots: map[string]bool{}}
		for j, kind := range unreadKinds {
			a.Unread[kind] = u.Counts[j]
		}
		for j, name := range unread.Notices {
			a.Channels[name] = u.Notices[j]
		}
		for j, name := range unread.Dots {
			a.Dots[name] = u.Dots[j]
		}
		if a.Posts, err = w.feed(user, page); err != nil {
			return nil, err
		}
		if a.Following, err = w.list(w.reader().Following, user, page); err != nil {
			return nil, err
		}
		if a.Followers, err = w.list(w.reader().Followers, user, page); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// askedChannels compares the answers for some channels alone, from the last to
// the first, and one that never was, with those for all.
func (w *world) askedChannels(users []uint64, all *query.Unreads) error {
	var some []string
	for _, names := range [][]string{all.Dots, all.Notices} {
		for i := len(names) - 1; i >= 0; i -= 2 {
			some = append(some, names[i])
		}
	}
	for _, asked := range [][]string{{}, some, append(some, "nobody-ever")} {
		var got query.Unreads
		if err := w.reader().Unread(context.Background(), users, asked, &got, true); err != nil {
			return err
		}
		same := len(got.Missing) == 0 && got.AsOf == all.AsOf && len(got.Notices)+len(got.Dots) == len(asked)
		for i := range users {
			u, whole := &got.Users[i], &all.Users[i]
			same = same && u.Feed == whole.Feed && slices.Equal(u.Counts, whole.Counts)
			for j, name := range got.Notices {
				at := slices.Index(all.Notices, name)
				same = same && (at < 0 && u.Notices[j] == 0 || at >= 0 && u.Notices[j] == whole.Notices[at])
			}
			for j, name := range got.Dots {
				same = same && u.Dots[j] == whole.Dots[slices.Index(all.Dots, name)]
			}
		}
		if !same {
			return fmt.Errorf("unread of %v, of channels %q: %+v, of all it is %+v", users, asked, got, all)
		}
	}
	return nil
}

// feed reads a feed page by page.
func (w *world) feed(user uint64, limit int) (posts []feedPost, err error) {
	var page query.FeedPage
	before := pipeline.Position(0)
	for {
		if err := w.reader().Feed(context.Background(), user, before, limit, &page, true); err != nil {
			return nil, err
		}
		if page.Missing || page.AsOf != w.end || len(page.Posts) > limit || page.More && len(page.Posts) < limit {
			return nil, fmt.Errorf("a page of %d of the feed of %d: %+v", limit, user, page)
		}
		for _, p := range page.Posts {
			posts = append(posts, feedPost(p))
		}
		if !page.More {
			return posts, nil
		}
		before = page.Posts[limit-1].Position
	}
}

// list reads a list of users page by page.
func (w *world) list(read func(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error, user uint64, limit int) (users []uint64, err error) {
	var page query.UserPage
	after := uint64(0)
	for {
		if err := read(context.Background(), user, after, limit, &page, true); err != nil {
			return nil, err
		}
		if page.AsOf != w.end || len(page.Users) > limit || page.More && len(page.Users) < limit {
			return nil, fmt.Errorf("a page of %d of a list of %d: %+v", limit, user, page)
		}
		users = append(users, page.Users...)
		if !page.More {
			return users, nil
		}
		after = page.Users[limit-1]
	}
}

// runsOf gives what is left of a log, a few at a time, and then the error that it ends
// with; without one it waits.
type runsOf[T any] struct {
	rest []T
	most int
	end  error
}

func (s *runsOf[T]) Next(ctx context.Context) ([]T, error) {
	if len(s.rest) == 0 && s.end == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if len(s.rest) == 0 {
		return nil, s.end
	}
	run := s.rest[:min(s.most, len(s.rest))]
	s.rest = s.rest[len(run):]
	return run, nil
}

func (s *runsOf[T]) Close() error { return nil }
