package spread

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/recent"
	"github.com/tidemark-io/tidemark/query/wire"
)

const (
	// recentBytes is the memory for the posts of authors whom other nodes hold, where
	// Options do not say.
	recentBytes = 16 << 20
	// recentAtOnce is how many posts one answer lists: what is older is counted by its
	// holder.
	recentAtOnce = recent.PostsMax * recentAuthors
	// recentAuthors is of how many authors: where not all their posts are listed, one of
	// them has more than are remembered, and is not asked for together with others again.
	recentAuthors = 32
	// recentKeep is how many asks and authors memory is kept for.
	recentKeep = 1 << 14
)

// recentQuestion counts the posts of followees with a known last change:
// by what is remembered of them; else it asks for their newest posts, and remembers
// those. Whose posts after the mark are too many for that is left to a countQuestion.
// An item is an author who is asked for.
type recentQuestion struct {
	*unreads
	epoch uint64 // of the view as of which it asks
	now   time.Time

	asks  []recent.Ask
	users []countAsk // of each ask

	authors []uint64            // who is asked for
	after   []pipeline.Position // of each: whose posts after that are wanted
	found   map[uint64]recent.Outbox

	list wire.CountAsks // memory to work in
	some []query.Followee
}

var recentQuestions = sync.Pool{New: func() any { return new(recentQuestion) }}

// recently begins a question; put ends it.
func (u *unreads) recently() *recentQuestion {
	q := recentQuestions.Get().(*recentQuestion)
	q.unreads, q.epoch, q.now = u, u.dir.View().Epoch, time.Now()
	q.asks, q.users, q.found = q.asks[:0], q.users[:0], nil
	return q
}

// put gives its memory back.
func (q *recentQuestion) put() {
	q.unreads, q.found = nil, nil
	if max(cap(q.asks), cap(q.authors), q.list.Cap()) <= recentKeep {
		recentQuestions.Put(q)
	}
}

// add adds a user's followees; false: what their holder said makes no sense.
func (q *recentQuestion) add(user int, rest *wire.Rest) bool {
	q.list.Reset()
	q.list.Begin(rest.Mark)
	for i := range rest.Shares {
		if q.list.Add(&rest.Shares[i], rest.Base) != nil {
			return false
		}
	}
	if q.list.End(); q.list.Len() != len(rest.Changed) {
		return false
	}
	for i, f := range q.list.Asks[0].Followees {
		q.asks = append(q.asks, recent.Ask{Author: f.User, After: max(rest.Mark, f.Since), Changed: rest.Changed[i]})
		q.users = append(q.users, countAsk{user: user, mark: rest.Mark})
	}
	return true
}

// count counts, and leaves to another question the followees that it cannot count.
func (q *recentQuestion) count(ctx context.Context, left *countQuestion) error {
	if len(q.asks) == 0 {
		return nil
	}
	unknown := q.recent.Answer(q.asks, q.epoch, q.now)
	q.metrics.recent[0].Add(float64(len(q.asks) - unknown))
	q.metrics.recent[1].Add(float64(unknown))
	for i := range q.asks {
		q.feed[q.users[i].user] += uint64(q.asks[i].Posts)
	}
	if unknown == 0 {
		return nil
	}
	var lost map[uint64]bool // nobody said anything of these authors
	if q.wanted(); len(q.authors) > 0 {
		items, err := q.scatter(ctx, q, len(q.authors))
		if err != nil {
			return err
		}
		for _, i := range items {
			if lost == nil {
				lost = map[uint64]bool{}
			}
			lost[q.authors[i]] = true
		}
	}
	var sharing wire.Sharing
	for from := 0; from < len(q.asks); {
		user := q.users[from]
		for q.some = q.some[:0]; from < len(q.asks) && q.users[from].user == user.user; from++ {
			a := &q.asks[from]
			if a.Known {
				continue
			}
			if !a.Cut && lost[a.Author] {
				q.lose(user.user)
				continue
			}
			if box, is := q.found[a.Author]; is {
				if n, knows := box.After(a.After); knows {
					q.feed[user.user] += uint64(n)
					continue
				}
			}
			q.some = append(q.some, query.Followee{User: a.Author, Since: a.After})
		}
		if len(q.some) > 0 {
			rest := sharing.Rest(&query.CountAsk{Mark: user.mark, Followees: q.some}, q.dir.View().shards())
			left.add(user.user, &rest)
		}
	}
	return nil
}

// wanted lists the authors who are asked for, each once.
func (q *recentQuestion) wanted() {
	q.authors, q.after, q.found = q.authors[:0], q.after[:0], map[uint64]recent.Outbox{}
	places := map[uint64]int{}
	for i := range q.asks {
		a := &q.asks[i]
		if a.Known || a.Cut {
			continue
		}
		after := a.After
		if a.From > 0 { // so that a count from there finds it again
			after = min(after, a.From)
		}
		place, is := places[a.Author]
		if !is {
			places[a.Author] = len(q.authors)
			q.authors, q.after = append(q.authors, a.Author), append(q.after, after)
			continue
		}
		q.after[place] = min(q.after[place], after)
	}
}

func (q *recentQuestion) shard(item int32, v *View) pipeline.Shard { return v.shardOf(q.authors[item]) }

// from is where the posts begin that are asked for.
func (q *recentQuestion) from(items []int32) pipeline.Position {
	from := q.after[items[0]]
	for _, i := range items {
		from = min(from, q.after[i])
	}
	return from + 1
}

func (q *recentQuestion) ask(items []int32, _ int) (kind wire.Kind, body []byte, n int) {
	n = min(len(items), recentAuthors)
	a := wire.PostsAsk{From: q.from(items[:n]), Before: math.MaxUint64, Limit: recentAtOnce, Followees: pick(q.authors, items[:n])}
	return wire.Posts, a.Append(nil), n
}

func (q *recentQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	var page query.FeedPage
	if err := wire.DecodeFeedPage(pieces, recentAtOnce, &page); err != nil {
		return nil, err
	}
	return q.took(items, &page, d), nil
}

func (q *recentQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	for some := range slices.Chunk(items, recentAuthors) {
		var page query.FeedPage
		if err := own.Posts(ctx, pick(q.authors, some), q.from(some), math.MaxUint64, recentAtOnce, &page, disk); err != nil {
			return notHere(items, err)
		}
		again = append(again, q.took(some, &page, d)...)
	}
	return again, nil
}

// took remembers what is listed. Of a page that is not whole it is not known which
// authors are missing. Where there are more posts than it lists, an author with as many
// as are remembered is known to have too many; one with fewer is asked for again,
// without those.
func (q *recentQuestion) took(items []int32, page *query.FeedPage, d *due) (again []int32) {
	switch {
	case page.Missing && d.final:
		return nil
	case page.Missing:
		return items
	case page.More && len(page.Posts) == 0: // which says nothing
		return nil
	case d.late(page.AsOf, &page.Cost):
		return items
	}
	q.reach.add(page.AsOf, page.Cost)
	from, cut := q.from(items)-1, page.More
	if n := len(page.Posts); cut {
		from = max(from, page.Posts[n-1].Position-1)
	}
	posts := map[uint64][]pipeline.Position{}
	for _, p := range page.Posts {
		posts[p.Author] = append(posts[p.Author], p.Position)
	}
	for _, i := range items {
		box := recent.Outbox{From: from, To: page.AsOf, Posts: posts[q.authors[i]]}
		box.Cut = cut && len(box.Posts) >= recent.PostsMax
		slices.SortFunc(box.Posts, func(a, b pipeline.Position) int { return cmp.Compare(b, a) })
		q.found[q.authors[i]] = box
		q.recent.Put(q.authors[i], box, q.epoch, q.now)
	}
	return nil
}
