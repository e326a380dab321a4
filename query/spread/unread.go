package spread

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// lotMax is how many users are answered at a time: what they follow is in memory for
// that time.
const lotMax = 512

// Unread implements [query.Reader]. The users' own shards give all but the feed, and
// their followees elsewhere; then those are counted, as far as it is not known what
// they posted.
func (f *far) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, _ bool) error {
	u := &unreads{far: f, channels: channels}
	for at := 0; at < len(users); at += lotMax {
		if err := u.lot(ctx, at, users[at:min(at+lotMax, len(users))]); err != nil {
			return err
		}
		if at == 0 { // each part has all channels
			if err := out.Fits(u.names()); err != nil {
				return err
			}
		}
	}
	u.merge(len(users), out)
	out.AsOf, out.Cost = u.or(f.Applied()), u.cost
	return nil
}

// unreads is an answer for users while it is put together.
type unreads struct {
	*far
	channels []string
	parts    []profilePart
	feed     []uint64 // what other nodes count, for each user
	lost     map[int]struct{}
	reach
}

// profilePart is what one node says of some users.
type profilePart struct {
	users []int // their places
	wire.ProfilesAnswer
}

// lot answers for some users, of which the first is at.
func (u *unreads) lot(ctx context.Context, at int, users []uint64) error {
	u.feed = append(u.feed, make([]uint64, len(users))...)
	q := &profileQuestion{unreads: u, at: at, users: users}
	lost, err := u.scatter(ctx, q, len(users))
	if err != nil {
		return err
	}
	for _, i := range lost {
		u.lose(at + int(i))
	}
	count, recently := &countQuestion{unreads: u}, u.recently()
	defer recently.put()
	for i := q.first(); i < len(u.parts); i++ {
		p := &u.parts[i]
		for j, user := range p.users {
			rest := &p.Rest[j]
			if len(rest.Shares) > 0 && (len(rest.Changed) == 0 || !recently.add(user, rest)) {
				count.add(user, rest)
			}
		}
		p.Rest = nil
	}
	if err := recently.count(ctx, count); err != nil {
		return err
	}
	if len(count.shares) == 0 {
		return nil
	}
	if lost, err = u.scatter(ctx, count, len(count.shares)); err != nil {
		return err
	}
	for _, i := range lost {
		u.lose(count.asks[count.of[i]].user)
	}
	return nil
}

func (u *unreads) lose(user int) {
	if u.lost == nil {
		u.lost = map[int]struct{}{}
	}
	u.lost[user] = struct{}{}
}

// merge fills in the answer. A channel that one part knows of and another does
// not yet has nothing unread there.
func (u *unreads) merge(users int, out *query.Unreads) {
	notices, dots := u.names()
	out.Reset(users, len(u.unread.columns), notices, dots)
	for i := range u.parts {
		p := &u.parts[i]
		noticePlaces, dotPlaces := places(p.Notices, notices), places(p.Dots, dots)
		for j, place := range p.users {
			from, to := &p.Users[j], &out.Users[place]
			to.Feed = from.Feed + u.feed[place]
			copy(to.Counts, from.Counts)
			for k, n := range from.Notices {
				to.Notices[noticePlaces[k]] = n
			}
			for k, lit := range from.Dots {
				to.Dots[dotPlaces[k]] = lit
			}
		}
	}
	for user := range u.lost {
		out.Missing = append(out.Missing, user)
	}
	slices.Sort(out.Missing)
}

// names are the channels of all parts.
func (u *unreads) names() (notices, dots []string) {
	for i := range u.parts {
		notices = union(notices, u.parts[i].Notices)
		dots = union(dots, u.parts[i].Dots)
	}
	if u.channels == nil {
		slices.Sort(notices)
		slices.Sort(dots)
	} else {
		inOrder(notices, u.channels)
		inOrder(dots, u.channels)
	}
	return notices, dots
}

// union adds names that are not there yet.
func union(to, names []string) []string {
	switch {
	case slices.Equal(to, names):
		return to
	case len(to) == 0:
		return slices.Clone(names)
	}
	known := make(map[string]struct{}, len(to))
	for _, name := range to {
		known[name] = struct{}{}
	}
	for _, name := range names {
		if _, is := known[name]; !is {
			to = append(to, name)
		}
	}
	return to
}

// inOrder sorts names as they were asked.
func inOrder(names, asked []string) {
	slices.SortFunc(names, func(a, b string) int { return slices.Index(asked, a) - slices.Index(asked, b) })
}

// places are where names are among all.
func places(names, all []string) []int {
	out := make([]int, len(names))
	if slices.Equal(names, all) {
		for i := range out {
			out[i] = i
		}
		return out
	}
	of := make(map[string]int, len(all))
	for i, name := range all {
		of[name] = i
	}
	for i, name := range names {
		out[i] = of[name]
	}
	return out
}

// profileQuestion asks for users' profiles; an item is an index of users.
type profileQuestion struct {
	*unreads
	at    int // of the first user among all
	users []uint64
	mine  int // parts that it has added
}

// shards is how many there are.
func (q *profileQuestion) shards() int { return q.dir.View().shards() }

// first is the place of the first part that the question has added.
func (q *profileQuestion) first() int { return len(q.parts) - q.mine }

func (q *profileQuestion) shard(item int32, v *View) pipeline.Shard { return v.shardOf(q.users[item]) }

func (q *profileQuestion) ask(items []int32, bytes int) (kind wire.Kind, body []byte, n int) {
	a := wire.ProfilesAsk{Names: q.unread.packed, All: q.channels == nil, Channels: q.channels}
	head := len(q.unread.packed) + 32
	for _, name := range q.channels {
		head += len(name) + 1
	}
	n = min(len(items), max(1, (bytes-head)/8), wire.IDsMax)
	a.Users = pick(q.users, items[:n])
	return wire.Profiles, a.Append(make([]byte, 0, head+8*n)), n
}

func (q *profileQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	var out wire.ProfilesAnswer
	if err := wire.DecodeProfiles(pieces, len(items), len(q.unread.columns), q.shards(), &out); err != nil {
		return nil, err
	}
	return q.took(items, out, d), nil
}

func (q *profileQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	var out query.Profiles
	if err := own.Profiles(ctx, pick(q.users, items), q.channels, &out, disk); err != nil {
		return nil, err
	}
	if len(out.Users) != len(items) || len(out.Rest) != len(items) {
		return nil, errPart("profiles", len(out.Users), len(items))
	}
	var sharing wire.Sharing
	rest := make([]wire.Rest, len(items))
	for i := range rest {
		rest[i] = sharing.Rest(&out.Rest[i], q.shards())
	}
	return q.took(items, wire.ProfilesAnswer{Unreads: out.Unreads, Rest: rest}, d), nil
}

// took adds a part that is not late. What is missing in it is asked again.
func (q *profileQuestion) took(items []int32, out wire.ProfilesAnswer, d *due) (again []int32) {
	again = pick(items, out.Missing)
	if len(again) < len(items) {
		if d.late(out.AsOf, &out.Cost) {
			return items
		}
		q.add(out.AsOf, out.Cost)
	}
	missing := marked(out.Missing, len(items))
	p := profilePart{ProfilesAnswer: out}
	p.Missing = nil
	kept := 0
	for i, item := range items {
		if missing != nil && missing[i] {
			continue
		}
		p.Users[kept], p.Rest[kept] = p.Users[i], p.Rest[i]
		p.users = append(p.users, q.at+int(item))
		kept++
	}
	p.Users, p.Rest = p.Users[:kept], p.Rest[:kept]
	q.parts = append(q.parts, p)
	q.mine++
	return again
}

// countQuestion asks how many posts of followees users have not seen; an item is
// followees of one shard.
type countQuestion struct {
	*unreads
	asks   []countAsk
	of     []int32 // the ask of each share
	shares []wire.Share

	begin []int // memory to work in
}

// countAsk is of one user.
type countAsk struct {
	user       int
	mark, base pipeline.Position
}

func (q *countQuestion) add(user int, rest *wire.Rest) {
	for range rest.Shares {
		q.of = append(q.of, int32(len(q.asks)))
	}
	if q.shares == nil { // as a rule one user is asked for
		q.shares = rest.Shares
	} else {
		q.shares = append(q.shares, rest.Shares...)
	}
	q.asks = append(q.asks, countAsk{user, rest.Mark, rest.Base})
}

func (q *countQuestion) shard(item int32, _ *View) pipeline.Shard { return q.shares[item].Shard }

// starts are where each ask begins among items, and their number.
func (q *countQuestion) starts(items []int32) []int {
	q.begin = q.begin[:0]
	for i, item := range items {
		if i == 0 || q.of[item] != q.of[items[i-1]] {
			q.begin = append(q.begin, i)
		}
	}
	q.begin = append(q.begin, len(items))
	return q.begin
}

// each calls take with the items of each ask.
func (q *countQuestion) each(items []int32, starts []int, take func(ask *countAsk, items []int32)) {
	for i, from := range starts[:len(starts)-1] {
		take(&q.asks[q.of[items[from]]], items[from:starts[i+1]])
	}
}

func (q *countQuestion) ask(items []int32, bytes int) (kind wire.Kind, body []byte, n int) {
	asks, length := 0, wire.CountMax
	for ; n < len(items); n++ {
		if n == 0 || q.of[items[n]] != q.of[items[n-1]] {
			length += wire.CountMax
			asks++
		}
		if length += q.shares[items[n]].Bytes(); n > 0 && (asks > wire.IDsMax || length > bytes) {
			break
		}
	}
	items = items[:n]
	starts := q.starts(items)
	body = wire.BeginCounts(make([]byte, 0, length), len(starts)-1)
	q.each(items, starts, func(ask *countAsk, items []int32) {
		body = wire.BeginCount(body, ask.mark, ask.base, len(items))
		for _, item := range items {
			body = q.shares[item].Append(body)
		}
	})
	return wire.CountPosts, body, n
}

func (q *countQuestion) answer(items []int32, pieces [][]byte, d *due) (again []int32, err error) {
	starts := q.starts(items)
	var counts query.Counts
	if err := wire.DecodeCounts(pieces, len(starts)-1, &counts); err != nil {
		return nil, err
	}
	return q.took(items, starts, &counts, d), nil
}

func (q *countQuestion) here(ctx context.Context, own query.Holder, items []int32, disk bool, d *due) (again []int32, err error) {
	starts := q.starts(items)
	var list wire.CountAsks
	q.each(items, starts, func(ask *countAsk, items []int32) {
		list.Begin(ask.mark)
		for _, item := range items {
			err = errors.Join(err, list.Add(&q.shares[item], ask.base))
		}
	})
	if list.End(); err != nil {
		return nil, err
	}
	var counts query.Counts
	if err := own.CountPosts(ctx, list.Asks, &counts, disk); err != nil {
		return nil, err
	}
	if len(counts.Posts) != len(list.Asks) {
		return nil, errPart("counts", len(counts.Posts), len(list.Asks))
	}
	return q.took(items, starts, &counts, d), nil
}

// took adds up what is counted. Asks of which a part cannot be counted are asked
// again.
func (q *countQuestion) took(items []int32, starts []int, counts *query.Counts, d *due) (again []int32) {
	if len(counts.Missing) < len(counts.Posts) && d.late(counts.AsOf, &counts.Cost) {
		return items
	}
	missing := marked(counts.Missing, len(counts.Posts))
	for i, n := range counts.Posts {
		if missing != nil && missing[i] {
			again = append(again, items[starts[i]:starts[i+1]]...)
			continue
		}
		q.feed[q.asks[q.of[items[starts[i]]]].user] += n
	}
	if len(again) < len(items) {
		q.reach.add(counts.AsOf, counts.Cost)
	}
	return again
}
