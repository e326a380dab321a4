package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/recent"
	"github.com/tidemark-io/tidemark/sinks"
)

// inquiry is somebody who asks several nodes and puts their answers together: a
// dumb query.Reader, for query/spread's talks NATS and chooses by chance of its
// own. Every part is a call, and what is applied, moved and lost between two
// parts is the world's to choose.
type inquiry struct {
	w      *world
	number int
	rand   *rand.Rand  // of its own: when it goes on is not its choice
	gate   Gate        // nil: nothing is lost, and all at once
	of     *membership // by whose view it asks
	schema *pipeline.Schema
	min    pipeline.Position
	parts  int
	asOf   pipeline.Position
	cancel context.CancelFunc
	over   chan error // what it found wrong, once
}

// What becomes of a reply, of replyFates that are as likely.
const (
	replyTwice = iota
	replyLate  // it is given up, and comes after another's
	replyFates = 6
)

// triesMax is how often a part is asked for.
const triesMax = 4

func (q *inquiry) end() {
	if q != nil {
		q.cancel()
	}
}

// inquire has somebody ask for what several nodes hold.
func (w *world) inquire() error {
	of := w.processes[w.rand.IntN(len(w.processes))]
	if !of.up() {
		return nil
	}
	w.asked++
	ctx, cancel := context.WithCancel(context.Background())
	q := &inquiry{
		w: w, number: w.asked, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 0)), gate: &w.schedule,
		of: of.membership, schema: of.node.Schema(), cancel: cancel,
		over: make(chan error, 1),
	}
	if w.rand.IntN(2) == 0 {
		q.min = min(of.node.Applied(), pipeline.EndOf(w.server.State(jetlog.EventsStream).Last))
	} else if w.rand.IntN(2) == 0 {
		q.min = w.passed
	}
	what, user := w.rand.IntN(3), w.story.Users[w.rand.IntN(len(w.story.Users))]
	w.note("inquiry %d of %d for %d, at least %d", q.number, of.number, what, q.min)
	w.inquiry = q
	go func() {
		defer w.caught()
		q.over <- q.run(ctx, what, user)
	}()
	return nil
}

// inquired takes in an inquiry that is over.
func (w *world) inquired() error {
	if w.inquiry == nil {
		return nil
	}
	select {
	case err := <-w.inquiry.over:
		w.inquiry.end()
		if at := w.inquiry.asOf; at != pipeline.PositionMax {
			w.passed = max(w.passed, at)
		}
		w.inquiry = nil
		compared.Add(1)
		return err
	default:
		return nil
	}
}

// scatter asks for items, each of which lies where an id does. read asks a
// node for some of them: it returns what takes one of them in, and which of
// them the node does not answer. lost are those that nobody answers.
func (q *inquiry) scatter(ctx context.Context, ids []uint64,
	read func(n *sinks.Node, items []int) (take func(i int), missing []int, asOf pipeline.Position, err error),
) (lost []int, err error) {
	has, tried := make([]bool, len(ids)), make([][]string, len(ids))
	accept := func(items, missing []int, take func(int), asOf pipeline.Position) {
		for i, item := range items {
			if !slices.Contains(missing, i) && (!has[item] || q.w.nodeFault().twice) {
				has[item] = true
				q.asOf = min(q.asOf, asOf)
				take(i)
			}
		}
	}
	var late []func()
	for range triesMax {
		groups := map[string][]int{}
		var order []string
		for item, id := range ids {
			node := q.choose(id, tried[item])
			if has[item] || node == "" {
				continue
			}
			if groups[node] == nil {
				order = append(order, node)
			}
			groups[node] = append(groups[node], item)
			tried[item] = append(tried[item], node)
		}
		for _, node := range order {
			p, items := q.w.processNamed(node), groups[node]
			fate, err := q.pass(ctx, p)
			if err != nil {
				return nil, err
			}
			if fate.Err != nil || !p.up() || p.node.Applied() < q.min {
				continue
			}
			take, missing, asOf, err := read(p.node, items)
			if err != nil {
				continue
			}
			switch {
			case q.gate != nil && fate.Size == replyLate:
				late = append(late, func() { accept(items, missing, take, asOf) })
			case q.gate != nil && fate.Size == replyTwice:
				accept(items, missing, take, asOf)
				fallthrough
			default:
				accept(items, missing, take, asOf)
			}
		}
	}
	for _, reply := range late {
		reply()
	}
	for item := range ids {
		if !has[item] {
			lost = append(lost, item)
		}
	}
	if q.w.nodeFault().zero {
		lost = nil
	}
	return lost, nil
}

// choose is a node that holds an id as far as the asker knows; "": nobody.
func (q *inquiry) choose(id uint64, tried []string) string {
	shard := pipeline.ShardOf(id, q.w.shards)
	nodes := q.of.view.Answering(shard)
	if q.gate == nil { // the view may be of a moment ago
		nodes = nil
		for _, p := range q.w.processes {
			if p.node.Holds(shard) {
				nodes = append(nodes, p.name())
			}
		}
	}
	nodes = slices.DeleteFunc(nodes, func(node string) bool {
		return slices.Contains(tried, node)
	})
	if len(nodes) == 0 {
		return ""
	}
	return nodes[q.rand.IntN(len(nodes))]
}

// pass waits for its turn to ask a process, until that has come as far as it
// must, or is gone.
func (q *inquiry) pass(ctx context.Context, p *process) (Fate, error) {
	if q.gate == nil {
		return Fate{}, nil
	}
	q.parts++
	return q.gate.Pass(ctx, &Call{
		Process: p.number, Turn: q.number, Kind: Ask, Key: uint64(q.parts),
		Ready: func() bool { return !p.up() || p.node.Applied() >= q.min },
	})
}

func (q *inquiry) Applied() pipeline.Position { return 0 }

func (q *inquiry) WaitApplied(context.Context, pipeline.Position) error { return nil }

func (q *inquiry) Rows(ctx context.Context, counter int, columns []pipeline.Column, ids []uint64, rows *query.Rows, disk bool) (err error) {
	q.asOf = pipeline.PositionMax
	rows.Reset(len(ids), len(columns))
	rows.Missing, err = q.scatter(ctx, ids, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		some := query.Rows{Sets: rows.Sets}
		err := n.Rows(ctx, counter, columns, pickIDs(ids, items), &some, disk)
		return func(i int) {
			rows.Exist[items[i]] = some.Exist[i]
			copy(rows.Values[items[i]*len(columns):], some.Values[i*len(columns):(i+1)*len(columns)])
			copy(rows.Has[items[i]*len(rows.Sets):], some.Has[i*len(rows.Sets):(i+1)*len(rows.Sets)])
		}, some.Missing, some.AsOf, err
	})
	rows.AsOf = q.asOf
	return err
}

func pickIDs(ids []uint64, items []int) (picked []uint64) {
	for _, i := range items {
		picked = append(picked, ids[i])
	}
	return picked
}

func (q *inquiry) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, disk bool) error {
	q.asOf = pipeline.PositionMax
	c := q.w.channels()
	schema := q.schema
	counter, _ := schema.Counter("unread")
	out.Reset(len(users), len(schema.Visible(counter)), c.notices, c.dots)
	type followee struct {
		user int
		ask  query.CountAsk
	}
	var rest []followee
	var authors []uint64
	lost, err := q.scatter(ctx, users, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		var some query.Profiles
		err := n.Profiles(ctx, pickIDs(users, items), append(slices.Clone(c.notices), c.dots...), &some, disk)
		return func(i int) {
			from, to := &some.Users[i], &out.Users[items[i]]
			to.Feed = from.Feed
			copy(to.Counts, from.Counts)
			for j, name := range some.Notices {
				to.Notices[slices.Index(out.Notices, name)] = from.Notices[j]
			}
			for j, name := range some.Dots {
				to.Dots[slices.Index(out.Dots, name)] = from.Dots[j]
			}
			rest = slices.DeleteFunc(rest, func(f followee) bool { return f.user == items[i] })
			for _, f := range some.Rest[i].Followees {
				rest = append(rest, followee{items[i], query.CountAsk{Mark: some.Rest[i].Mark, Followees: []query.Followee{f}}})
			}
		}, some.Missing, some.AsOf, err
	})
	if err != nil {
		return err
	}
	// Of whom it is known when they changed, who answers may know what they posted.
	// One remembers for all who ask, whatever became of those who answered: in a world
	// nobody mends what was counted.
	if q.w.recent == nil {
		q.w.recent = recent.New(1 << 20)
	}
	known := q.w.recent
	var wanted []followee
	rest = slices.DeleteFunc(rest, func(f followee) bool {
		ask := &f.ask.Followees[0]
		if ask.Changed == 0 {
			return false
		}
		asks := []recent.Ask{{Author: ask.User, After: max(f.ask.Mark, ask.Since), Changed: ask.Changed}}
		if known.Answer(asks, 0, time.Now()); asks[0].Known {
			recently.Add(1)
			out.Users[f.user].Feed += uint64(asks[0].Posts)
		} else {
			wanted = append(wanted, f)
		}
		return true
	})
	for _, f := range wanted {
		authors = append(authors, f.ask.Followees[0].User)
	}
	unlisted, err := q.scatter(ctx, authors, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		var page query.FeedPage
		ids := pickIDs(authors, items)
		slices.Sort(ids) // several may follow one
		err := n.Posts(ctx, slices.Compact(ids), 1, pipeline.PositionMax, math.MaxInt32, &page, disk)
		if page.Missing {
			err = cmp.Or(err, query.ErrElsewhere)
		}
		return func(i int) {
			f, box := wanted[items[i]], recent.Outbox{To: page.AsOf}
			for _, post := range page.Posts {
				if post.Author == f.ask.Followees[0].User {
					box.Posts = append(box.Posts, post.Position)
				}
			}
			n, _ := box.After(max(f.ask.Mark, f.ask.Followees[0].Since))
			out.Users[f.user].Feed += uint64(n)
			known.Put(f.ask.Followees[0].User, box, 0, time.Now())
		}, nil, page.AsOf, err
	})
	if err != nil {
		return err
	}
	for _, i := range unlisted {
		lost = append(lost, wanted[i].user)
	}
	authors = nil
	for _, f := range rest {
		authors = append(authors, f.ask.Followees[0].User)
	}
	uncounted, err := q.scatter(ctx, authors, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		var asks []query.CountAsk
		for _, i := range items {
			asks = append(asks, rest[i].ask)
		}
		var counts query.Counts
		err := n.CountPosts(ctx, asks, &counts, disk)
		return func(i int) { out.Users[rest[items[i]].user].Feed += counts.Posts[i] }, counts.Missing, counts.AsOf, err
	})
	for _, i := range uncounted {
		lost = append(lost, rest[i].user)
	}
	slices.Sort(lost)
	out.Missing, out.AsOf = slices.Compact(lost), q.asOf
	return err
}

func (q *inquiry) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	q.asOf = pipeline.PositionMax
	out.Reset()
	var list query.UserPage
	var from pipeline.Position
	lost, err := q.scatter(ctx, []uint64{user}, func(n *sinks.Node, _ []int) (func(int), []int, pipeline.Position, error) {
		var page query.UserPage
		at, err := n.Followees(ctx, user, 0, math.MaxInt32, &page, disk)
		return func(int) { list, from = page, at }, nil, page.AsOf, err
	})
	if err = cmp.Or(err, whenLost(lost)); err != nil {
		return err
	}
	lost, err = q.scatter(ctx, list.Users, func(n *sinks.Node, items []int) (func(int), []int, pipeline.Position, error) {
		var page query.FeedPage
		err := n.Posts(ctx, pickIDs(list.Users, items), from, cmp.Or(before, pipeline.PositionMax), math.MaxInt32, &page, disk)
		if page.Missing {
			err = cmp.Or(err, query.ErrElsewhere)
		}
		return func(i int) {
			for _, post := range page.Posts {
				if post.Author == list.Users[items[i]] {
					out.Posts = append(out.Posts, post)
				}
			}
		}, nil, page.AsOf, err
	})
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	out.Missing, out.AsOf = len(lost) > 0, q.asOf
	return err
}

func whenLost(lost []int) error {
	if len(lost) > 0 {
		return query.ErrStopped
	}
	return nil
}

func (q *inquiry) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return q.list(ctx, user, out, func(n *sinks.Node, page *query.UserPage) error {
		return n.Following(ctx, user, after, limit, page, disk)
	})
}

func (q *inquiry) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) error {
	return q.list(ctx, user, out, func(n *sinks.Node, page *query.UserPage) error {
		return n.Followers(ctx, user, after, limit, page, disk)
	})
}

func (q *inquiry) list(ctx context.Context, user uint64, out *query.UserPage, read func(*sinks.Node, *query.UserPage) error) error {
	q.asOf = pipeline.PositionMax
	lost, err := q.scatter(ctx, []uint64{user}, func(n *sinks.Node, _ []int) (func(int), []int, pipeline.Position, error) {
		var page query.UserPage
		err := read(n, &page)
		return func(int) { *out = page }, nil, page.AsOf, err
	})
	return cmp.Or(err, whenLost(lost))
}

// channels are those that a story names, by kind.
type channels struct {
	notices, dots []string
}

func (w *world) channels() channels {
	c := channels{dots: configuration().ChannelsOf(config.KindDot)}
	for _, name := range append(configuration().ChannelsOf(config.KindNotice), w.story.Channels...) {
		if !slices.Contains(c.dots, name) && !slices.Contains(c.notices, name) {
			c.notices = append(c.notices, name)
		}
	}
	return c
}

// run asks one thing, and compares what is whole with what the model says
// between the answer's position and the end of the log.
func (q *inquiry) run(ctx context.Context, what int, user uint64) (err error) {
	switch what {
	case 0:
		err = q.checkRows(ctx)
	case 1:
		err = q.checkUnread(ctx)
	default:
		var page query.UserPage
		if err = q.Following(ctx, user, 0, limit, &page, true); errors.Is(err, query.ErrStopped) {
			return nil
		}
		if err == nil {
			err = q.between(page.AsOf, func(f facts) string {
				var want []uint64
				for other := range f[subject{"follows", user}] {
					want = append(want, other)
				}
				slices.Sort(want)
				return differs(q.w, "follows", user, "", fmt.Sprint(page.Users), fmt.Sprint(want))
			})
		}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("inquiry %d: %w", q.number, err)
	}
	return nil
}

// states are what the model says at all positions from one to the end of the
// log.
func (q *inquiry) states(asOf pipeline.Position) (all []facts, err error) {
	if asOf == pipeline.PositionMax {
		return nil, nil
	}
	if asOf < q.min {
		return nil, fmt.Errorf("an answer as of %d, and at least %d was asked for (I6)", asOf, q.min)
	}
	if err := q.upToDate(asOf); err != nil {
		return nil, err
	}
	all = append(all, q.w.knownAt(asOf))
	for _, m := range q.w.server.Held(jetlog.EventsStream) {
		if t, is := m.Tag.(*told); is {
			for line := range t.Lines() {
				if at := pipeline.At(m.Sequence, line); at > asOf {
					all = append(all, q.w.knownAt(at))
				}
			}
		}
	}
	return all, nil
}

// between says how something differs from what the model says at each of the
// positions that an answer may be of.
func (q *inquiry) between(asOf pipeline.Position, differs func(facts) string) error {
	all, err := q.states(asOf)
	if err != nil || len(all) == 0 {
		return err
	}
	first := ""
	for i, f := range all {
		diff := differs(f)
		if diff == "" {
			return nil
		}
		if i == 0 {
			first = diff
		}
	}
	return fmt.Errorf("an answer as of %d is not between what the model says there and at the end of the log:%s", asOf, first)
}

// knownAt is what the model says at a position. No message is ever lost here.
func (w *world) knownAt(at pipeline.Position) facts {
	if f, known := w.known[at]; known {
		return f
	}
	m := twin.NewModel()
	for _, s := range w.server.Held(jetlog.EventsStream) {
		if t, is := s.Tag.(*told); is && pipeline.At(s.Sequence, 0) <= at {
			m.Tell(t.Message, s.Sequence, 0, at)
		}
	}
	f := facts{}
	for fact, n := range m.Facts(w.story) {
		f.add(fact, n)
	}
	w.known[at] = f
	return f
}

func (q *inquiry) checkRows(ctx context.Context) error {
	schema := q.schema
	counter := q.rand.IntN(len(schema.Counters))
	columns := schema.Visible(counter)
	names := names(schema, columns)
	ids := slices.Concat(q.w.story.Users, q.w.story.Posts, q.w.story.Pages)
	var rows query.Rows
	if err := q.Rows(ctx, counter, columns, ids, &rows, true); err != nil {
		return err
	}
	for i, id := range ids {
		if slices.Contains(rows.Missing, i) {
			continue
		}
		if err := q.between(rows.AsOf, func(f facts) (diff string) {
			for j, name := range names {
				diff += differs(q.w, name, id, "", rows.Values[i*len(columns)+j], f.of(name, id))
			}
			return diff
		}); err != nil {
			return err
		}
	}
	return nil
}

func (q *inquiry) checkUnread(ctx context.Context) error {
	schema := q.schema
	users := q.w.story.Users
	var unread query.Unreads
	if err := q.Unread(ctx, users, nil, &unread, true); err != nil {
		return err
	}
	all, err := q.states(unread.AsOf)
	if err != nil || len(all) == 0 {
		return err
	}
	counter, _ := schema.Counter("unread")
	names := names(schema, schema.Visible(counter))
	for i, user := range users {
		if slices.Contains(unread.Missing, i) {
			continue
		}
		got := &unread.Users[i]
		if err := q.between(unread.AsOf, func(f facts) (diff string) {
			for j, name := range names {
				diff += differs(q.w, name, user, "among unread numbers", got.Counts[j], f.of(name, user))
			}
			return diff
		}); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(marks facts) bool {
			least, most := feedBetween(user, marks, all)
			return least <= got.Feed && got.Feed <= most
		}) {
			least, most := feedBetween(user, all[0], all)
			return fmt.Errorf("as of %d: %d unread posts of %d are not between what the model says there and at the end of the log: %d to %d, by what the user had read there",
				unread.AsOf, got.Feed, user, least, most)
		}
	}
	return nil
}

// feedBetween is the least and the most that can be unread in a user's feed,
// whose marks and follows are of one position, and each author's posts of any.
func feedBetween(user uint64, marks facts, all []facts) (least, most uint64) {
	for author, since := range marks[subject{"follows", user}] {
		low, high := uint64(math.MaxUint64), uint64(0)
		for _, f := range all {
			n := uint64(0)
			for _, at := range f[subject{"post", author}] {
				n += uint64(when(at > max(marks.of("mark feed", user), since), 1))
			}
			low, high = min(low, n), max(high, n)
		}
		least, most = least+low, most+high
	}
	return least, most
}

// asksAll asks all nodes together for everything, at the end: after healing everything is
// whole and equal.
func (w *world) asksAll() error {
	if !w.amongNodes() {
		return nil
	}
	of := w.processes[w.rand.IntN(len(w.processes))]
	q := &inquiry{w: w, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 0)), of: of.membership, schema: of.node.Schema()}
	// Whoever asks may not have seen yet what is held where: so as of the last word.
	diff, err := w.ask(&answers{Reader: q, schema: q.schema}, w.knownAt(of.node.Applied()))
	if err == nil && diff != "" {
		err = fmt.Errorf("not what the model says (I1, I4):%s", diff)
	}
	return err
}
