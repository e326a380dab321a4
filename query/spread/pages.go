package spread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// Following implements [query.Reader].
func (f *far) Following(ctx context.Context, user, after uint64, limit int, out *query.UserPage, _ bool) error {
	_, err := f.page(ctx, wire.Following, user, after, limit, out)
	return err
}

// Followers implements [query.Reader].
func (f *far) Followers(ctx context.Context, user, after uint64, limit int, out *query.UserPage, _ bool) error {
	_, err := f.page(ctx, wire.Followers, user, after, limit, out)
	return err
}

func (f *far) page(ctx context.Context, kind wire.Kind, user, after uint64, limit int, out *query.UserPage) (from pipeline.Position, err error) {
	q := &pageQuestion{what: kind, page: wire.PageAsk{User: user, After: after, Limit: limit}, out: out}
	lost, err := f.scatter(ctx, q, 1)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("spread: no node answers for user %d: %w", user, query.ErrStopped)
	}
	return q.from, err
}

// pageQuestion asks for a page of one user's; the item is the user.
type pageQuestion struct {
	what wire.Kind
	page wire.PageAsk
	out  *query.UserPage
	from pipeline.Position
}

func (q *pageQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.page.User) }

func (q *pageQuestion) ask([]int32, int) (kind wire.Kind, body []byte, n int) {
	return q.what, q.page.Append(nil), 1
}

func (q *pageQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	q.from, err = wire.DecodeUserPage(pieces, q.what, q.page.Limit, q.out)
	if err == nil && d.late(q.out.AsOf, &q.out.Cost) {
		return items, nil
	}
	return nil, err
}

func (q *pageQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	p := &q.page
	switch q.what {
	case wire.Followees:
		q.from, err = own.Followees(ctx, p.User, p.After, p.Limit, q.out, disk)
	case wire.Following:
		err = own.Following(ctx, p.User, p.After, p.Limit, q.out, disk)
	default:
		err = own.Followers(ctx, p.User, p.After, p.Limit, q.out, disk)
	}
	if err == nil && d.late(q.out.AsOf, &q.out.Cost) {
		return items, nil
	}
	return notHere(items, err)
}

// notHere: what is not held here, or stopped, is asked elsewhere.
func notHere(items []int32, err error) (again []int32, _ error) {
	if errors.Is(err, query.ErrElsewhere) || errors.Is(err, query.ErrStopped) {
		return items, nil
	}
	return nil, err
}

// How many followees a feed asks for: few at first, whose posts say from where on
// those of the others are wanted.
const (
	followeesFirst  = 1 << 10
	followeesAtOnce = wire.LimitMax
)

// Feed implements [query.Reader]: the user's followees, then the newest posts of those,
// of all nodes together.
//
// The posts of the first of them are asked while the next are. Once there are as
// many as the page has, nothing older than those is asked for: a node
// passes over nearly everyone of a million without a look at their posts, and
// without the disk.
func (f *far) Feed(ctx context.Context, user uint64, before pipeline.Position, limit int, out *query.FeedPage, _ bool) error {
	out.Reset()
	if before == 0 {
		before = math.MaxUint64
	}
	q := &postsQuestion{limit: limit + 1, before: before, out: out} // one more shows whether there are more
	var page, next query.UserPage
	from, err := f.page(ctx, wire.Followees, user, 0, followeesFirst, &page)
	for err == nil {
		q.add(page.AsOf, page.Cost)
		q.from, q.followees = max(q.from, from), page.Users
		if !page.More || len(page.Users) == 0 {
			err = f.posts(ctx, q)
			break
		}
		var beside sync.WaitGroup
		var nextErr error
		beside.Go(func() {
			from, nextErr = f.page(ctx, wire.Followees, user, page.Users[len(page.Users)-1], followeesAtOnce, &next)
		})
		err = f.posts(ctx, q)
		beside.Wait()
		err = cmp.Or(err, nextErr)
		page, next = next, page
	}
	if err == nil {
		q.finish(f.Applied())
	}
	return err
}

// finish completes a page: its question asked for one post more than it has room for.
func (q *postsQuestion) finish(applied pipeline.Position) {
	out := q.out
	if len(out.Posts) >= q.limit {
		out.Posts, out.More = out.Posts[:q.limit-1], true
	}
	out.AsOf, out.Cost = q.or(applied), q.cost
}

// posts adds posts of the question's followees to the page, and has it ask for
// none from now on that is older than all of that.
func (f *far) posts(ctx context.Context, q *postsQuestion) error {
	if len(q.followees) == 0 {
		return nil
	}
	lost, err := f.scatter(ctx, q, len(q.followees))
	if err != nil {
		return err
	}
	out := q.out
	out.Missing = out.Missing || len(lost) > 0
	slices.SortFunc(out.Posts, func(a, b query.FeedPost) int { return cmp.Compare(b.Position, a.Position) })
	if len(out.Posts) >= q.limit {
		out.Posts = out.Posts[:q.limit]
		q.from = max(q.from, out.Posts[q.limit-1].Position)
	}
	return nil
}

// postsQuestion asks for the newest posts of followees; an item is one of them.
type postsQuestion struct {
	from, before pipeline.Position
	limit        int
	followees    []uint64
	out          *query.FeedPage
	reach
}

func (q *postsQuestion) shard(item int32, v *View) pipeline.Shard {
	return v.shardOf(q.followees[item])
}

func (q *postsQuestion) ask(items []int32, bytes int) (kind wire.Kind, body []byte, n int) {
	n = min(len(items), max(1, (bytes-64)/8), wire.FolloweesMax)
	a := wire.PostsAsk{From: q.from, Before: q.before, Limit: q.limit, Followees: pick(q.followees, items[:n])}
	return wire.Posts, a.Append(nil), n
}

func (q *postsQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	var page query.FeedPage
	if err := wire.DecodeFeedPage(pieces, q.limit, &page); err != nil {
		return nil, err
	}
	return q.took(items, &page, d), nil
}

func (q *postsQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	var page query.FeedPage
	if err := own.Posts(ctx, pick(q.followees, items), q.from, q.before, q.limit, &page, disk); err != nil {
		return notHere(items, err)
	}
	return q.took(items, &page, d), nil
}

// took adds a page. Of one that is not whole nobody knows which followees are not
// in it: all are asked again.
func (q *postsQuestion) took(items []int32, page *query.FeedPage, d *due) (again []int32) {
	if page.Missing && !d.final || d.late(page.AsOf, &page.Cost) {
		return items
	}
	q.out.Missing = q.out.Missing || page.Missing
	q.out.Posts = append(q.out.Posts, page.Posts...)
	q.add(page.AsOf, page.Cost)
	return nil
}

// appliedQuestion asks for nothing but a position.
type appliedQuestion struct{ user uint64 }

func (q appliedQuestion) shard(_ int32, v *View) pipeline.Shard { return v.shardOf(q.user) }

func (q appliedQuestion) ask([]int32, int) (kind wire.Kind, body []byte, n int) {
	return wire.Applied, nil, 1
}

func (q appliedQuestion) answer(_ []int32, pieces [][]byte, _ *due) (again []int32, err error) {
	_, err = wire.DecodeNothing(pieces)
	return nil, err
}

func (q appliedQuestion) here(context.Context, query.Holder, []int32, bool, *due) (again []int32, err error) {
	return nil, nil
}

// askApplied waits until some node has applied p. ErrBehind: none has in some time.
func (r *Reader) askApplied(ctx context.Context, p pipeline.Position) error {
	v := r.dir.View()
	held := slices.IndexFunc(v.Holders, func(nodes []string) bool { return len(nodes) > 0 })
	if held < 0 {
		return query.ErrNobody
	}
	user := uint64(1)
	for v.shardOf(user) != pipeline.Shard(held) {
		user++
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // then another node may be asked
	defer cancel()
	f := &far{r, p, time.Now().Add(time.Second)}
	lost, err := f.scatter(ctx, appliedQuestion{user}, 1)
	if err == nil && len(lost) == 0 {
		raise(&r.reached, uint64(p))
		return nil
	}
	select { // not at once again
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	if err == nil || errors.Is(err, context.Canceled) {
		err = query.ErrBehind
	}
	return err
}
