package acceptance_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/query/client"
)

// ledger knows what every number was after every event, worked out by the
// definitions of docs/contract.md the slow way: what is
// answered while more comes in is somewhere between two positions.
type ledger struct {
	rows    map[cell][]entry
	follows map[uint64]map[uint64]client.Position // follower: followed: since
	posts   map[uint64][]client.Position          // author
	marks   map[uint64][]client.Position          // reads of the feed
	refused []client.Position                     // what belongs in DEADLETTER
}

// cell is one number: a column with its counter, and a row.
type cell struct {
	column string
	id     uint64
}

// entry is what a number is from a position on.
type entry struct {
	at    client.Position
	value int64
}

// higgsEvent are the fields that Higgs events have.
type higgsEvent struct {
	Type     string   `json:"type"`
	Actor    uint64   `json:"actor"`
	Target   uint64   `json:"target"`
	Post     uint64   `json:"post"`
	Author   uint64   `json:"author"`
	RepostOf uint64   `json:"repost_of"`
	What     []string `json:"what"`
	Delete   bool     `json:"delete"`
}

// nonsense is a type of events that nobody has heard of.
const nonsense = "nonsense"

func newLedger() *ledger {
	return &ledger{
		rows: map[cell][]entry{}, follows: map[uint64]map[uint64]client.Position{},
		posts: map[uint64][]client.Position{}, marks: map[uint64][]client.Position{},
	}
}

// add takes an event in, and says whose it is. They come in the order of their
// positions. Also what only the columns of [moreColumns] count.
func (l *ledger) add(t *testing.T, at client.Position, line []byte) (actor uint64) {
	t.Helper()
	var e higgsEvent
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatal(err)
	}
	if e.Delete {
		t.Fatalf("the ledger knows no deletions: %s", line)
	}
	about := func(kind, counted string) { // somebody's post, comment, like or mention of another
		l.count(at, "user."+counted, cmp.Or(e.Author, e.Target))
		if cmp.Or(e.Author, e.Target) != e.Actor {
			l.count(at, "unread."+kind, cmp.Or(e.Author, e.Target))
		}
	}
	switch e.Type {
	case "post":
		l.count(at, "user.post", e.Actor)
		if e.RepostOf == 0 {
			l.count(at, "user.original", e.Actor)
		} else {
			l.count(at, "post.repost", e.RepostOf)
			l.count(at, "post.touched", e.RepostOf)
			about("repost", "reposted")
		}
		l.posts[e.Actor] = append(l.posts[e.Actor], at)
	case "comment":
		l.count(at, "post.comment", e.Post)
		l.count(at, "post.touched", e.Post)
		about("comment", "commented")
		if e.Author != e.Actor {
			l.count(at, "user.replied_to", e.Author)
		}
	case "like":
		l.count(at, "post.like", e.Post)
		l.count(at, "post.touched", e.Post)
		about("like", "liked")
	case "mention":
		about("mention", "mentioned")
	case "follow":
		if e.Actor == e.Target {
			l.refused = append(l.refused, at)
		}
		l.follow(at, e.Actor, e.Target)
	case nonsense:
		l.refused = append(l.refused, at)
	case "read":
		for _, kind := range ledgerColumns["unread."] {
			if c := (cell{"unread." + kind, e.Actor}); len(l.rows[c]) > 0 && (slices.Contains(e.What, "all") || slices.Contains(e.What, kind)) {
				l.rows[c] = append(l.rows[c], entry{at, 0})
			}
		}
		if slices.Contains(e.What, "all") || slices.Contains(e.What, "feed") {
			l.marks[e.Actor] = append(l.marks[e.Actor], at)
		}
	default:
		t.Fatalf("the ledger does not know %s", line)
	}
	return e.Actor
}

func (l *ledger) follow(at client.Position, actor, target uint64) {
	if _, have := l.follows[actor][target]; have || actor == target {
		return
	}
	if l.follows[actor] == nil {
		l.follows[actor] = map[uint64]client.Position{}
	}
	l.follows[actor][target] = at
	l.count(at, "user.following", actor)
	l.count(at, "user.follower", target)
	l.count(at, "unread.follower", target)
	if _, back := l.follows[target][actor]; back {
		l.count(at, "user.friend", actor)
		l.count(at, "user.friend", target)
	}
}

func (l *ledger) count(at client.Position, column string, id uint64) {
	c := cell{column, id}
	value := int64(1)
	if row := l.rows[c]; len(row) > 0 {
		value += row[len(row)-1].value
	}
	l.rows[c] = append(l.rows[c], entry{at, value})
}

var ledgerColumns = map[string][]string{
	"unread.": {"repost", "comment", "mention", "like", "follower"},
}

// between is what a number may be as of any position from one to another.
func (l *ledger) between(column string, id uint64, from, to client.Position) (low, high int64) {
	row := l.rows[cell{column, id}]
	i := sort.Search(len(row), func(i int) bool { return row[i].at > from })
	if i > 0 {
		low = row[i-1].value
	}
	high = low
	for ; i < len(row) && row[i].at <= to; i++ {
		low, high = min(low, row[i].value), max(high, row[i].value)
	}
	return low, high
}

// feed is what a user's unread posts may be when each author's are counted as of
// some position from one to another, and the user is as of another such position.
func (l *ledger) feed(user uint64, from, to client.Position) (low, high int64) {
	markFrom, markTo := last(l.marks[user], from), last(l.marks[user], to)
	for target, since := range l.follows[user] {
		if since <= from {
			low += max(upTo(l.posts[target], from)-upTo(l.posts[target], max(since, markTo)), 0)
		}
		if since <= to {
			high += max(upTo(l.posts[target], to)-upTo(l.posts[target], max(since, markFrom)), 0)
		}
	}
	return low, high
}

func upTo(sorted []client.Position, at client.Position) int64 {
	return int64(sort.Search(len(sorted), func(i int) bool { return sorted[i] > at }))
}

func last(sorted []client.Position, at client.Position) client.Position {
	if n := upTo(sorted, at); n > 0 {
		return sorted[n-1]
	}
	return 0
}

// The ledger and the oracle agree about the end.
func TestLedger(t *testing.T) {
	path, lines := slice(t, follows-2_000, follows+5_000)
	dir, l := oracle(t, path), newLedger()
	for i, line := range lines {
		l.add(t, client.Acked(uint64(i+1)), line)
	}
	end := client.Acked(uint64(len(lines)))
	expected := map[string]table{
		"user.": readTable(t, dir+"/expected_users.tsv.gz", userColumns), "post.": readTable(t, dir+"/expected_posts.tsv.gz", postColumns),
	}
	for counter, want := range expected {
		for i, id := range want.ids {
			for j, column := range want.columns {
				name := counter + column
				if strings.HasPrefix(column, "unread.") {
					name = column
				}
				low, high := l.between(name, id, end, end)
				if column == "feed" {
					low, high = l.feed(id, end, end)
				}
				if low != high || low != want.rows[i][j] {
					t.Fatalf("%s of %d is %d to %d, the oracle's %d", name, id, low, high, want.rows[i][j])
				}
			}
		}
	}
}
