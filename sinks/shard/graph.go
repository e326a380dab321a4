package shard

import (
	"sort"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/hot"
)

// graphColumns are the columns that the follow graph maintains, where the
// configuration has them.
type graphColumns struct {
	following, follower, friend, unread pipeline.Column
	has                                 [4]bool
}

func findGraphColumns(schema *pipeline.Schema) (g graphColumns) {
	g.following, g.has[0] = schema.Find("user.following")
	g.follower, g.has[1] = schema.Find("user.follower")
	g.friend, g.has[2] = schema.Find("user.friend")
	g.unread, g.has[3] = schema.Find("unread.follower")
	return g
}

// countLocked counts a change of the graph, as a rule would.
func (s *Shard) countLocked(column pipeline.Column, has bool, user uint64, n int64) {
	if !has {
		return
	}
	s.changeLocked(column, user, pipeline.Add(n))
	if e := s.exists[s.schema.Columns[column].Counter]; e >= 0 {
		s.changeLocked(pipeline.Column(e), user, pipeline.Set(1))
	}
}

// follows is where a followee stands in a user's list, or would.
func follows(list []hot.Pair, user uint64) (at int, ok bool) {
	at = sort.Search(len(list), func(i int) bool { return list[i].A >= user })
	return at, at < len(list) && list[at].A == user
}

// A user's shard holds both directions: whom they follow, with the position of
// the follow, and who follows them. A friend is in both, whichever came first.
// Following or unfollowing twice changes nothing.

func (s *Shard) followLocked(user, followee uint64, position pipeline.Position) {
	at, ok := follows(s.following.Get(user), followee)
	if ok {
		return
	}
	s.following.Insert(user, at, hot.Pair{A: followee, B: uint64(position)})
	s.changed = append(s.changed, change{kindFollowing, user, followee})
	s.countLocked(s.graph.following, s.graph.has[0], user, 1)
	if s.followers.Has(user, followee) {
		s.countLocked(s.graph.friend, s.graph.has[2], user, 1)
	}
}

func (s *Shard) unfollowLocked(user, followee uint64) {
	at, ok := follows(s.following.Get(user), followee)
	if !ok {
		return
	}
	s.following.Remove(user, at, 1)
	s.changed = append(s.changed, change{kindFollowing, user, followee})
	s.countLocked(s.graph.following, s.graph.has[0], user, -1)
	if s.followers.Has(user, followee) {
		s.countLocked(s.graph.friend, s.graph.has[2], user, -1)
	}
}

func (s *Shard) followedLocked(user, follower uint64) {
	if !s.followers.Add(user, follower) {
		return
	}
	s.changed = append(s.changed, change{kindFollower, user, follower})
	s.countLocked(s.graph.follower, s.graph.has[1], user, 1)
	s.countLocked(s.graph.unread, s.graph.has[3], user, 1)
	if _, ok := follows(s.following.Get(user), follower); ok {
		s.countLocked(s.graph.friend, s.graph.has[2], user, 1)
	}
}

func (s *Shard) unfollowedLocked(user, follower uint64) {
	if !s.followers.Remove(user, follower) {
		return
	}
	s.changed = append(s.changed, change{kindFollower, user, follower})
	s.countLocked(s.graph.follower, s.graph.has[1], user, -1)
	if _, ok := follows(s.following.Get(user), follower); ok {
		s.countLocked(s.graph.friend, s.graph.has[2], user, -1)
	}
}
