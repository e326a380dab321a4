package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks"
)

// facts are what a twin.Model says of a node, of each shard as of where that
// stands: by kind and id, with Other by what it says.
type facts map[subject]map[uint64]int64

type subject struct {
	what string
	id   uint64
}

func (f facts) add(fact twin.Fact, n int64) {
	s := subject{fact.What, fact.ID}
	if f[s] == nil {
		f[s] = map[uint64]int64{}
	}
	f[s][fact.Other] = n
}

// of is the one number that a kind has of an id.
func (f facts) of(what string, id uint64) int64 { return f[subject{what, id}][0] }

// nowhere is where a shard stands that has stopped.
const nowhere = pipeline.PositionMax

// stands is where each shard of a node stands, and what every node holds, last.
// A reading tells, of an id in the shard; of one that has stopped, nothing.
func (w *world) stands(n *sinks.Node) ([]pipeline.Position, error) {
	var all []pipeline.Position
	var rows query.Rows
	for shard := range w.shards {
		id := uint64(1)
		for pipeline.ShardOf(id, w.shards) != pipeline.Shard(shard) {
			id++
		}
		if err := n.Rows(context.Background(), 0, []pipeline.Column{0}, []uint64{id}, &rows, true); err != nil {
			return nil, err
		}
		if len(rows.Missing) > 0 {
			rows.AsOf = nowhere
		}
		all = append(all, rows.AsOf)
	}
	var unread query.Unreads
	if err := n.Unread(context.Background(), nil, nil, &unread, true); err != nil {
		return nil, err
	}
	return append(all, unread.AsOf), nil
}

// answers are a node's, or those of several put together. Where they are partial,
// something may be missing.
type answers struct {
	query.Reader
	schema  *pipeline.Schema
	partial bool
}

// ask asks for everything about a story's people, and says where the
// answers are not what follows from the facts. What a shard that has stopped is
// needed for may be missing, and nothing else.
func (w *world) ask(n *answers, f facts) (diff string, err error) {
	for _, ask := range []func(*answers, facts) (string, error){w.askRows, w.askUnread, w.askFeeds, w.askLists} {
		d, err := ask(n, f)
		if err != nil {
			return "", err
		}
		diff += d
	}
	return diff, nil
}

func (w *world) askRows(n *answers, f facts) (diff string, err error) {
	ids := slices.Concat(w.story.Users, w.story.Posts, w.story.Pages)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var rows query.Rows
	for counter := range n.schema.Counters {
		columns := n.schema.Visible(counter)
		names := names(n.schema, columns)
		if err := n.Rows(context.Background(), counter, columns, ids, &rows, true); err != nil {
			return "", err
		}
		if len(rows.Missing) > 0 && !n.partial {
			return "", fmt.Errorf("rows %v are missing", rows.Missing)
		}
		for i, id := range ids {
			if slices.Contains(rows.Missing, i) {
				continue
			}
			for j, name := range names {
				diff += differs(w, name, id, "", rows.Values[i*len(columns)+j], f.of(name, id))
			}
		}
	}
	return diff, nil
}

// "unread = live notices after the user's cursor", docs/contract.md: "live posts by
// people the user follows, after max(user's feed mark, that follow)"
func (w *world) askUnread(n *answers, f facts) (diff string, err error) {
	var unread query.Unreads
	if err := n.Unread(context.Background(), w.story.Users, nil, &unread, true); err != nil {
		return "", err
	}
	if len(unread.Missing) > 0 && !n.partial {
		return "", fmt.Errorf("unread numbers of users %v are missing", unread.Missing)
	}
	counter, _ := n.schema.Counter("unread")
	names := names(n.schema, n.schema.Visible(counter))
	for i, user := range w.story.Users {
		if slices.Contains(unread.Missing, i) {
			continue
		}
		got := &unread.Users[i]
		for j, name := range names {
			diff += differs(w, name, user, "among unread numbers", got.Counts[j], f.of(name, user))
		}
		posts := int64(0)
		for author, since := range f[subject{"follows", user}] {
			for _, at := range f[subject{"post", author}] {
				posts += int64(when(at > max(f.of("mark feed", user), since), 1))
			}
		}
		diff += differs(w, "unread posts", user, "", int64(got.Feed), posts)
		for j, channel := range unread.Notices {
			want := int64(0) // of who has never read anything
			if f.of("first read", user) != 0 {
				want = f.notices(user, channel)
			}
			diff += differs(w, "unread notices", user, channel, int64(got.Notices[j]), want)
		}
		for j, channel := range unread.Dots {
			diff += differs(w, "dot", user, channel, got.Dots[j], f.notices(user, channel) > 0)
		}
	}
	return diff, nil
}

// notices counts those of a channel after a user's cursor.
func (f facts) notices(user uint64, channel string) (n int64) {
	cursor := max(f.of("mark channel:"+channel, user), f.of("first read", user))
	for at := range f[subject{"notice " + channel, 0}] {
		n += int64(when(int64(at) > cursor, 1))
	}
	return n
}

// limit is more than any list has.
const limit = math.MaxInt32

func (w *world) askFeeds(n *answers, f facts) (diff string, err error) {
	var page query.FeedPage
	for _, user := range w.story.Users {
		if err := n.Feed(context.Background(), user, 0, limit, &page, true); n.partial && err != nil {
			continue
		} else if err != nil {
			return "", err
		}
		if page.Missing && n.partial {
			continue
		}
		var want []query.FeedPost
		for author := range f[subject{"follows", user}] {
			for post, at := range f[subject{"post", author}] {
				want = append(want, query.FeedPost{Post: post, Author: author, Position: pipeline.Position(at)})
			}
		}
		slices.SortFunc(want, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
		diff += differs(w, "feed", user, "", fmt.Sprint(page.Posts), fmt.Sprint(want))
	}
	return diff, nil
}

func (w *world) askLists(n *answers, f facts) (diff string, err error) {
	var page query.UserPage
	for _, user := range w.story.Users {
		for _, list := range []struct {
			what string
			read func(context.Context, uint64, uint64, int, *query.UserPage, bool) error
		}{{"follows", n.Following}, {"followed", n.Followers}} {
			if err := list.read(context.Background(), user, 0, limit, &page, true); n.partial && err != nil {
				continue
			} else if err != nil {
				return "", err
			}
			var want []uint64
			for other := range f[subject{list.what, user}] {
				want = append(want, other)
			}
			slices.Sort(want)
			diff += differs(w, list.what, user, "", fmt.Sprint(page.Users), fmt.Sprint(want))
		}
	}
	return diff, nil
}

// differs compares a number of an answer with the model's. The net holds what is answered.
func differs[T comparable](w *world, what string, id uint64, of string, got, want T) string {
	w.net.answer(what, id, of, got)
	if got == want {
		return ""
	}
	return fmt.Sprintf("\n    %s of %d %s: %v, want %v", what, id, of, got, want)
}

func names(s *pipeline.Schema, columns []pipeline.Column) (names []string) {
	for _, c := range columns {
		names = append(names, s.FullName(c))
	}
	return names
}
