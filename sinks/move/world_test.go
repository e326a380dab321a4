package move_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	worldShards = 4
	worldIDs    = 60
)

var (
	bg      = context.Background()
	quiet   = slog.New(slog.DiscardHandler)
	columns = []string{"post.like", "user.following", "user.follower", "user.friend", "user.post", "unread.follower", "unread.like"}
)

func schema(t testing.TB) *pipeline.Schema {
	t.Helper()
	counters := []string{"post", "user", "unread"}
	specs := []pipeline.ColumnSpec{{Counter: 0, Name: "like", Bits: 16, Max: 63}}
	for _, name := range []string{"following", "follower", "friend", "post"} {
		specs = append(specs, pipeline.ColumnSpec{Counter: 1, Name: name, Bits: 16, Max: 63})
	}
	for _, name := range []string{"follower", "like"} {
		specs = append(specs, pipeline.ColumnSpec{Counter: 2, Name: name, Bits: 16, Max: 63})
	}
	s, err := pipeline.NewSchema(counters, specs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openStore(t testing.TB, shards int) *cold.Store {
	t.Helper()
	s, err := cold.Open(t.TempDir(), schema(t), cold.Options{Shards: shards, Node: "n", MemTableBytes: 8 << 20, BlockCache: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newNode(t testing.TB, store *cold.Store) *sinks.Node {
	t.Helper()
	n, err := sinks.NewNode(store, sinks.Options{
		Shards: worldShards, Owners: 2, CheckpointEvery: 10 * time.Millisecond, DirtyRowsMax: 1000, SequenceMax: 1 << 40, Logger: quiet,
		Users:   shard.Limits{PostsMax: 10, PostsKept: 20, Retention: 1e6, Inactive: 1e7},
		Notices: []string{"system"}, Dots: []string{"shop"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// log is windows of everything there is.
type log struct {
	*rand.Rand
	entries []pipeline.Entry
	end     pipeline.Position
}

func (l *log) id() uint64 { return 1 + l.Uint64N(worldIDs) }

func (l *log) window() pipeline.Entry {
	w := &pipeline.Window{Header: pipeline.Header{From: l.end, Time: int64(len(l.entries)) * 1000}, Columns: columns, Sections: make([][]byte, worldShards+1)}
	of := func(id uint64) *[]byte { return &w.Sections[pipeline.ShardOf(id, worldShards)] }
	seen := map[uint64]bool{}
	for range 20 {
		if id := l.id(); !seen[id] {
			s := of(id)
			*s = pipeline.AppendChange(*s, []int{0, 6}[l.IntN(2)], id, []pipeline.Delta{pipeline.Add(1), pipeline.Take(2), pipeline.Set(l.Int64N(9))}[l.IntN(3)])
			seen[id] = true
		}
	}
	at := l.end
	add := func(to *[]byte, o pipeline.Operation) {
		o.Position = at
		*to = pipeline.AppendOperation(*to, l.end, &o)
	}
	for range 15 {
		at++
		a, b := l.id(), l.id()
		switch l.IntN(6) {
		case 0, 1:
			if a != b {
				add(of(a), pipeline.Operation{Op: pipeline.OpFollow, ID: a, Other: b})
				add(of(b), pipeline.Operation{Op: pipeline.OpFollowed, ID: b, Other: a})
			}
		case 2:
			add(of(a), pipeline.Operation{Op: pipeline.OpUnfollow, ID: a, Other: b})
			add(of(b), pipeline.Operation{Op: pipeline.OpUnfollowed, ID: b, Other: a})
		case 3:
			add(of(a), pipeline.Operation{Op: pipeline.OpPost, ID: a, Other: uint64(at)})
		case 4:
			o := pipeline.Operation{Op: pipeline.OpRead, ID: a, Mark: at, Looked: pipeline.LookedFeed}
			if l.IntN(2) == 0 {
				o.Looked, o.Channels = 0, []string{[]string{"system", "shop"}[l.IntN(2)]}
			}
			add(of(a), o)
		default:
			o := pipeline.Operation{Op: pipeline.OpNotice, ID: uint64(at), Channels: []string{[]string{"system", "shop"}[l.IntN(2)]}}
			add(&w.Sections[worldShards], o)
		}
	}
	w.To = at + 1
	w.Marks = []pipeline.TimeMark{{Second: int64(len(l.entries)), Position: l.end + 1}}
	l.end = w.To
	l.entries = append(l.entries, pipeline.Entry{Sequence: uint64(len(l.entries) + 1), Window: pipeline.AppendWindow(nil, w)})
	return l.entries[len(l.entries)-1]
}

// hand gives a node the windows that it lacks, and waits until they are applied.
func (l *log) hand(t testing.TB, n *sinks.Node) {
	t.Helper()
	for _, e := range l.entries[n.Sequence():] {
		if err := n.Hand(bg, e); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(bg, 2*time.Minute)
	defer cancel()
	if err := n.WaitApplied(ctx, l.end); err != nil {
		t.Fatalf("at %d of %d: %v, %v", n.Applied(), l.end, err, n.Err())
	}
}

// answers is everything that a node says.
func answers(t testing.TB, n *sinks.Node) (out []string) {
	t.Helper()
	var ids []uint64
	for id := uint64(1); id <= worldIDs; id++ {
		ids = append(ids, id)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	say := func(x ...any) { out = append(out, fmt.Sprint(x...)) }
	for counter, c := range n.Schema().Counters {
		var rows query.Rows
		var list []pipeline.Column
		for i := range c.Count {
			list = append(list, c.First+pipeline.Column(i))
		}
		must(n.Rows(bg, counter, list, ids, &rows, true))
		say("rows of ", c.Name, ": ", rows.Values, rows.Exist, rows.Missing, rows.AsOf)
	}
	var unread query.Unreads
	must(n.Unread(bg, ids, nil, &unread, true))
	say("unread: ", unread.Notices, unread.Dots, unread.Users, unread.Missing, unread.AsOf)
	for _, id := range ids {
		var feed query.FeedPage
		must(n.Feed(bg, id, 0, 7, &feed, true))
		say("feed of ", id, ": ", feed.Posts, feed.More, feed.Missing)
		var page query.UserPage
		must(n.Following(bg, id, 0, 1000, &page, true))
		say(id, " follows ", page.Users)
		must(n.Followers(bg, id, 0, 1000, &page, true))
		say(id, " is followed by ", page.Users)
	}
	return out
}

func sameAnswers(t testing.TB, a, b *sinks.Node) {
	t.Helper()
	x, y := answers(t, a), answers(t, b)
	if i := slices.IndexFunc(x, func(s string) bool { return len(y) == 0 || s != y[slices.Index(x, s)] }); i >= 0 {
		t.Fatalf("the node that the shards came from: %s\nthe one they moved to: %s", x[i], y[i])
	}
}
