package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// The feed and a channel are not sums of changes but sizes of sets: the live posts
// after a mark, the live notices after a cursor. The events behind such a number
// are those that put there what is there now. State knows where they are; the log
// is asked what they say (sinks/check).

const (
	feedName      = "feed"
	channelPrefix = "channel:"

	// feedRounds is how often posts are read for one page: posts from before their
	// follow take room in each.
	feedRounds = 16
	// setTries is how often a badge is read again that changes during it.
	setTries = 3
)

// setsAsked says which sets of a user are asked.
type setsAsked struct {
	feed     bool
	channels []string // nil: all that have something unread
}

// setOf is the set of a number, of counter unread: feed, or channel:NAME.
func setOf(column string) (a setsAsked, is bool) {
	if column == feedName {
		return setsAsked{feed: true, channels: []string{}}, true
	}
	name, is := strings.CutPrefix(column, channelPrefix)
	return setsAsked{channels: []string{name}}, is && channelName(name)
}

// sets are what is behind such numbers of a user.
type sets struct {
	stand   query.Standpoint
	numbers []setNumber
	members []query.SetEvent  // newest first
	upto    pipeline.Position // members below it are not all here; 0: they are
	asOf    pipeline.Position
}

// setNumber is one number.
type setNumber struct {
	name  string
	value uint64
	since pipeline.Position // what is after it counts
}

// errMissing: a part of what is behind a number cannot be read.
var errMissing = fmt.Errorf("some of those whom the user follows: %w", query.ErrStopped)

// readSets reads what is behind the numbers, so many members below a position and
// one more. The error is *failure where it is the request's.
func (s *Service) readSets(ctx context.Context, reader query.Reader, e *explainCall, before pipeline.Position) (*sets, *failure, error) {
	badge, can := reader.(query.BadgeReader)
	if !can {
		return nil, fail(codeNotReady, "not ready: feed and channels cannot be explained here"), nil
	}
	all, limit := new(sets), e.limit+1
	stand := &all.stand
	if err := badge.Standpoint(ctx, &query.StandpointAsk{User: e.id, Channels: e.sets.channels, Before: before, Limit: limit}, stand, true); err != nil {
		return nil, nil, err
	}
	if all.asOf = stand.AsOf; stand.Dropped {
		return all, nil, nil
	}
	if e.sets.feed && stand.Follows > query.FolloweesMax {
		return nil, fail(codeTooMuch, "user %d follows %d; the feed of one who follows more than %d is not explained, the other numbers of the badge are, each by its name, like unread.%sNAME",
			e.id, stand.Follows, query.FolloweesMax, channelPrefix), nil
	}
	if e.sets.feed {
		if err := all.feed(ctx, reader, badge, e.id, before, limit); err != nil {
			return nil, nil, err
		}
	}
	first := len(all.numbers)
	for _, c := range stand.Channels {
		all.number(e.id, setNumber{channelPrefix + c.Name, c.Unread, c.Cursor})
	}
	for _, n := range stand.Notices {
		all.members = append(all.members, query.SetEvent{
			Position: n.Position, Number: first + n.Channel, Op: pipeline.OpNotice, ID: n.Notice,
			Channel: stand.Channels[n.Channel].Name, Change: query.NumberChange{Touched: true, N: 1},
		})
	}
	if stand.More {
		all.upto = max(all.upto, stand.Notices[len(stand.Notices)-1].Position)
	}
	return all, nil, nil
}

// number adds a number, and the read that it may count from.
func (s *sets) number(user uint64, n setNumber) {
	s.numbers = append(s.numbers, n)
	s.members = append(s.members, query.SetEvent{
		Position: n.since, Number: len(s.numbers) - 1, Op: pipeline.OpRead, ID: user, Change: query.NumberChange{Touched: true, Set: true},
	})
}

// feed adds the feed's number and its posts.
func (s *sets) feed(ctx context.Context, reader query.Reader, badge query.BadgeReader, user uint64, before pipeline.Position, limit int) error {
	var counted query.Unreads
	if err := reader.Unread(ctx, []uint64{user}, []string{}, &counted, true); err != nil {
		return err
	}
	if len(counted.Missing) > 0 {
		return errMissing
	}
	s.asOf = min(s.asOf, counted.AsOf)
	s.number(user, setNumber{feedName, counted.Users[0].Feed, s.stand.Read})
	followees, since := make([]uint64, 0, s.stand.Follows), make(map[uint64]pipeline.Position)
	for _, f := range s.stand.Feed.Followees {
		followees = append(followees, f.User)
		if f.Since > s.stand.Feed.Mark {
			since[f.User] = f.Since
		}
	}
	var page query.FeedPage
	for found, round := 0, 0; ; round++ {
		if err := badge.Posts(ctx, followees, s.stand.Feed.Mark+1, before, limit, &page, true); err != nil {
			return err
		}
		if page.Missing {
			return errMissing
		}
		s.asOf = min(s.asOf, page.AsOf)
		for _, p := range page.Posts {
			if before = p.Position; p.Position > since[p.Author] {
				s.members = append(s.members, query.SetEvent{
					Position: p.Position, Number: 0, Op: pipeline.OpPost, ID: p.Author, Other: p.Post, Change: query.NumberChange{Touched: true, N: 1},
				})
				found++
			}
		}
		if !page.More {
			return nil
		}
		if found >= limit || round == feedRounds {
			s.upto = before
			return nil
		}
	}
}

// disagrees says which number is not the sum of its events, where a page has all of
// them; "": none.
func (s *sets) disagrees(page *query.Explanation) string {
	if s == nil || page.Base != 0 {
		return ""
	}
	sums := s.sums(page)
	for i, n := range s.numbers {
		if sums[i] != n.value {
			return fmt.Sprintf("%s is %d, and there are %d events behind it", n.name, n.value, sums[i])
		}
	}
	return ""
}

// sums are what the events of a page make of each number.
func (s *sets) sums(page *query.Explanation) []uint64 {
	sums := make([]uint64, len(s.numbers))
	for i := range page.Events {
		for _, c := range page.Events[i].Sets {
			sums[c.Number] += uint64(c.N)
		}
	}
	return sums
}

// notes say which bounds may keep something out of the numbers. whole: the members
// are all there are, which a page that has all events of the log need not have:
// those below the log's beginning are no events.
func (s *sets) notes(whole bool) (notes []string) {
	if s.stand.Dropped {
		return []string{"the user's last read is older than inactive_after: every number is 0 until the next one"}
	}
	posts := make(map[uint64]int)
	for _, m := range s.members {
		if m.Op == pipeline.OpPost {
			posts[m.ID]++
		}
	}
	for i, n := range s.numbers {
		name, isChannel := strings.CutPrefix(n.name, channelPrefix)
		if isChannel {
			at := slices.IndexFunc(s.stand.Channels, func(c query.StandpointChannel) bool { return c.Name == name })
			if c := s.stand.Channels[at]; s.stand.NoticesMax > 0 && c.Held >= uint64(s.stand.NoticesMax) {
				notes = append(notes, fmt.Sprintf("%s: the channel is full, so only its newest %d notices count (limits.notices)", n.name, s.stand.NoticesMax))
			}
			continue
		}
		if i == 0 && s.stand.Feed.Mark > s.stand.Read && s.stand.Feed.Mark >= pipeline.At(1, 0) { // below it there is nothing
			notes = append(notes, fmt.Sprintf("feed: posts up to position %s are older than feed.retention and do not count", s.stand.Feed.Mark))
		}
		switch most := uint64(s.stand.PostsMax); {
		case most == 0 || n.value < most:
		case whole:
			for _, author := range sortedIDs(posts) {
				if uint64(posts[author]) >= most {
					notes = append(notes, fmt.Sprintf("feed: of author %d only the newest %d live posts count (feed.posts_per_author)", author, most))
				}
			}
		default:
			notes = append(notes, fmt.Sprintf("feed: of each author only the newest %d live posts count (feed.posts_per_author)", most))
		}
	}
	return notes
}

func sortedIDs(of map[uint64]int) (ids []uint64) {
	for id := range of {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// unreadSets says of an error what to answer.
func (s *Service) unreadSets(c *call, err error) *failure {
	switch {
	case errors.Is(err, errMissing):
		return fail(codeNotReady, "%s of %d cannot be read now: it needs some whom the user follows", c.explain.name, c.explain.id)
	case errors.Is(err, query.ErrStopped) || errors.Is(err, query.ErrElsewhere):
		return fail(codeNotReady, "%s of %d cannot be read now", c.explain.name, c.explain.id)
	}
	return s.unreadable(c, err)
}
