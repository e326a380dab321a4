package spread

import (
	"context"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/wire"
)

// lotMax is how many users are answered at a time: what they follow is in memory
// meanwhile.
const lotMax = 512

// Unread implements [query.Reader]. The users' own shards tell all but the feed,
// and whom they follow elsewhere; then those are counted.
func (f *far) Unread(ctx context.Context, users []uint64, channels []string, out *query.Unreads, _ bool) error {
	u := &unreads{far: f, channels: channels}
	for at := 0; at < len(users); at += lotMax {
		if err := u.lot(ctx, at, users[at:min(at+lotMax, len(users))]); err != nil {
			return err
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
	query.Profiles
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
	count := &countQuestion{unreads: u}
	for i := q.first(); i < len(u.parts); i++ {
		p := &u.parts[i]
		for j, user := range p.users {
			if len(p.Rest) > j && len(p.Rest[j].Followees) > 0 && !slices.Contains(p.Missing, j) {
				count.add(user, &p.Rest[j])
			}
		}
		p.Rest = nil
	}
	if len(count.followees) == 0 {
		return nil
	}
	if lost, err = u.scatter(ctx, count, len(count.followees)); err != nil {
		return err
	}
	for _, i := range lost {
		u.lose(count.users[count.of[i]])
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
	var notices, dots []string
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

// first is the place of the first part that the question has added.
func (q *profileQuestion) first() int { return len(q.parts) - q.mine }

func (q *profileQuestion) kind() wire.Kind      { return wire.Profiles }
func (q *profileQuestion) id(item int32) uint64 { return q.users[item] }

func (q *profileQuestion) ask(items []int32, bytes int) (body []byte, n int) {
	a := wire.ProfilesAsk{Names: q.unread.packed, All: q.channels == nil, Channels: q.channels}
	head := len(q.unread.packed) + 32
	for _, name := range q.channels {
		head += len(name) + 1
	}
	n = min(len(items), max(1, (bytes-head)/8), wire.IDsMax)
	a.Users = pick(q.users, items[:n])
	return a.Append(make([]byte, 0, head+8*n)), n
}

func (q *profileQuestion) answer(items []int32, pieces [][]byte, _ bool) (again []int32, err error) {
	var out query.Profiles
	if err := wire.DecodeProfiles(pieces, len(items), len(q.unread.columns), &out); err != nil {
		return nil, err
	}
	return q.took(items, out), nil
}

func (q *profileQuestion) here(ctx context.Context, own query.Holder, items []int32, disk, _ bool) (again []int32, err error) {
	var out query.Profiles
	if err := own.Profiles(ctx, pick(q.users, items), q.channels, &out, disk); err != nil {
		return nil, err
	}
	if len(out.Users) != len(items) || len(out.Rest) != len(items) {
		return nil, errPart("profiles", len(out.Users), len(items))
	}
	return q.took(items, out), nil
}

// took adds a part. What is missing in it is asked again.
func (q *profileQuestion) took(items []int32, out query.Profiles) (again []int32) {
	again = pick(items, out.Missing)
	if len(again) < len(items) {
		q.add(out.AsOf, out.Cost)
	}
	missing := marked(out.Missing, len(items))
	p := profilePart{Profiles: out}
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
// a followee.
type countQuestion struct {
	*unreads
	users     []int // of each ask
	marks     []pipeline.Position
	of        []int32 // the ask of each followee
	followees []query.Followee

	begin []int // memory to work in
	some  []query.Followee
}

func (q *countQuestion) add(user int, rest *query.CountAsk) {
	q.of, q.followees = slices.Grow(q.of, len(rest.Followees)), slices.Grow(q.followees, len(rest.Followees))
	for _, followee := range rest.Followees {
		q.of = append(q.of, int32(len(q.users)))
		q.followees = append(q.followees, followee)
	}
	q.users, q.marks = append(q.users, user), append(q.marks, rest.Mark)
}

func (q *countQuestion) kind() wire.Kind      { return wire.CountPosts }
func (q *countQuestion) id(item int32) uint64 { return q.followees[item].User }

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

// asks are the asks for items, and where each begins.
func (q *countQuestion) asks(items []int32) (asks []query.CountAsk, starts []int) {
	starts = q.starts(items)
	q.some = slices.Grow(q.some[:0], len(items))
	for _, item := range items {
		q.some = append(q.some, q.followees[item])
	}
	asks = make([]query.CountAsk, len(starts)-1)
	for i := range asks {
		asks[i] = query.CountAsk{Mark: q.marks[q.of[items[starts[i]]]], Followees: q.some[starts[i]:starts[i+1]:starts[i+1]]}
	}
	return asks, starts
}

func (q *countQuestion) ask(items []int32, bytes int) (body []byte, n int) {
	asks := 0
	for n < len(items) && n < wire.FolloweesMax {
		if n == 0 || q.of[items[n]] != q.of[items[n-1]] {
			asks++
		}
		if n > 0 && (asks > wire.IDsMax || 16+asks*wire.CountAskMax(0)+n*(wire.CountAskMax(1)-wire.CountAskMax(0)) > bytes) {
			break
		}
		n++
	}
	list, _ := q.asks(items[:n])
	return wire.AppendCountAsks(make([]byte, 0, 16+10*n), list), n
}

func (q *countQuestion) answer(items []int32, pieces [][]byte, _ bool) (again []int32, err error) {
	starts := q.starts(items)
	var counts query.Counts
	if err := wire.DecodeCounts(pieces, len(starts)-1, &counts); err != nil {
		return nil, err
	}
	return q.took(items, starts, &counts), nil
}

func (q *countQuestion) here(ctx context.Context, own query.Holder, items []int32, disk, _ bool) (again []int32, err error) {
	asks, starts := q.asks(items)
	var counts query.Counts
	if err := own.CountPosts(ctx, asks, &counts, disk); err != nil {
		return nil, err
	}
	if len(counts.Posts) != len(asks) {
		return nil, errPart("counts", len(counts.Posts), len(asks))
	}
	return q.took(items, starts, &counts), nil
}

// took adds up what is counted. Asks of which a part cannot be counted are asked
// again.
func (q *countQuestion) took(items []int32, starts []int, counts *query.Counts) (again []int32) {
	missing := marked(counts.Missing, len(counts.Posts))
	for i, n := range counts.Posts {
		if missing != nil && missing[i] {
			again = append(again, items[starts[i]:starts[i+1]]...)
			continue
		}
		q.feed[q.users[q.of[items[starts[i]]]]] += n
	}
	if len(again) < len(items) {
		q.reach.add(counts.AsOf, counts.Cost)
	}
	return again
}
