package sinks

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

// Standing is how a shard held stands.
type Standing struct {
	Shard   pipeline.Shard
	Applied pipeline.Position
	Answers bool  // it has come as far as the node, and has not stopped
	Warmed  bool  // it is loaded as far as the budget allows
	Err     error // why it has stopped; nil: it goes on
}

// Standings are those of all shards held, by number.
func (n *Node) Standings() (all []Standing) {
	h := n.held.Load()
	for _, s := range h.shards {
		err := s.Err()
		all = append(all, Standing{
			Shard: s.Number, Applied: s.State().Applied, Warmed: s.Warmed(),
			Answers: err == nil && h.answers[s.Number] != nil, Err: err,
		})
	}
	return all
}

// Holds implements [query.Holder]. A shard that has stopped is not ready.
func (n *Node) Holds(number pipeline.Shard) bool {
	answers := n.held.Load().answers
	return int(number) < len(answers) && answers[number] != nil && answers[number].Err() == nil
}

// Whole says whether every shard that there is answers here.
func (n *Node) Whole() bool { return n.held.Load().whole }

// Profiles implements [query.Holder].
func (n *Node) Profiles(ctx context.Context, users []uint64, channels []string, out *query.Profiles, disk bool) error {
	if cap(out.Rest) < len(users) {
		out.Rest = make([]query.CountAsk, len(users))
	}
	out.Rest = out.Rest[:len(users)]
	for i := range out.Rest {
		out.Rest[i] = query.CountAsk{Followees: out.Rest[i].Followees[:0]}
	}
	return n.profiles(ctx, users, channels, &out.Unreads, out.Rest, disk)
}

// CountPosts implements [query.Holder].
func (n *Node) CountPosts(ctx context.Context, asks []query.CountAsk, out *query.Counts, disk bool) error {
	*out = query.Counts{Posts: grown(out.Posts, len(asks)), Missing: out.Missing[:0], AsOf: n.Applied()}
	clear(out.Posts)
	g := n.gather(ctx, disk)
	defer g.put()
	var reach reach
	for i := range asks {
		if err := ctx.Err(); err != nil { // there may be many, of many followees each
			return err
		}
		posts, err := g.count(&asks[i], &reach)
		switch {
		case n.cold(err, g.leave):
			return query.ErrCold
		case givenUp(err):
			return err
		case err != nil:
			out.Missing = append(out.Missing, i)
		default:
			out.Posts[i] = posts
		}
	}
	out.AsOf, out.Cost = reach.or(out.AsOf), cost(&g.disk)
	return nil
}

func (g *gather) count(ask *query.CountAsk, reach *reach) (posts uint64, err error) {
	g.pairs = g.pairs[:0]
	for _, f := range ask.Followees {
		if _, err := g.held.of(f.User); err != nil {
			return 0, err
		}
		g.pairs = append(g.pairs, hot.Pair{A: f.User, B: uint64(f.Since)})
	}
	posts, applied, err := g.held.timeline.CountPosts(g.pairs, ask.Mark, &g.gathering, &g.disk)
	if err == nil && len(g.pairs) > 0 {
		reach.add(applied)
	}
	return posts, err
}

// Followees implements [query.Holder].
func (n *Node) Followees(ctx context.Context, user, after uint64, limit int, out *query.UserPage, disk bool) (from pipeline.Position, err error) {
	from = n.feedFrom()
	return from, n.page(ctx, user, after, limit, out, disk, (*tier.Shard).Followees)
}

// Posts implements [query.Holder]. before 0: from the newest.
func (n *Node) Posts(ctx context.Context, followees []uint64, from, before pipeline.Position, limit int, out *query.FeedPage, disk bool) error {
	out.Reset()
	g := n.gather(ctx, disk)
	defer g.put()
	g.ids = append(g.ids[:0], followees...)
	return n.posts(ctx, g, from, before, limit, out, new(reach))
}
