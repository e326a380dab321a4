package shard

import (
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

// Columns are the columns that a change of a window may change, of the schema's; an operation
// that is none of rows has none.
func Columns(schema *pipeline.Schema, c *pipeline.Change, o *pipeline.Operation) (columns []pipeline.Column) {
	var names []string
	switch c.Op {
	case pipeline.OpCell:
		return []pipeline.Column{pipeline.Column(c.Column)}
	case pipeline.OpAdd, pipeline.OpTake, pipeline.OpItem, pipeline.OpWithdrawn:
		return []pipeline.Column{pipeline.Column(o.Column)}
	case pipeline.OpRead:
		for _, k := range o.Kinds {
			columns = append(columns, pipeline.Column(k.Column))
		}
	case pipeline.OpFollow, pipeline.OpUnfollow:
		names = []string{"user.following", "user.friend"}
	case pipeline.OpFollowed:
		names = []string{"user.follower", "unread.follower", "user.friend"}
	case pipeline.OpUnfollowed:
		names = []string{"user.follower", "unread.follower", "user.friend"}
	}
	for _, name := range names {
		column, ok := schema.Find(name)
		if c.Op == pipeline.OpUnfollowed && name == "unread.follower" { // only an item is taken out
			ok = ok && schema.Columns[column].Set.Items > 0
		}
		if ok {
			columns = append(columns, column)
		}
	}
	return columns
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

// A user's shard holds both directions: followees, with the position of the follow, and
// followers. A friend is in both, whichever came first. Following or unfollowing twice
// changes nothing.

// edgeLocked says how two users stand to each other; this shard holds the first.
func (s *Shard) edgeLocked(user, other uint64) (follows, followed bool, err error) {
	follows, known := s.followsLocked(user, other)
	if !known {
		return false, false, errNotLoaded
	}
	m := pipeline.Member{A: other}
	is, err := s.ownedLocked(s.followers(), user, m, hot.PrintOf(user, m))
	return follows, is.There, err
}

func (s *Shard) followLocked(user, followee uint64, position pipeline.Position) error {
	follows, followed, err := s.edgeLocked(user, followee)
	if follows || err != nil {
		return err
	}
	s.setFollowingLocked(user, followee, position, true)
	s.countLocked(s.graph.following, s.graph.has[0], user, 1)
	if followed {
		s.countLocked(s.graph.friend, s.graph.has[2], user, 1)
	}
	return nil
}

func (s *Shard) unfollowLocked(user, followee uint64) error {
	follows, followed, err := s.edgeLocked(user, followee)
	if !follows || err != nil {
		return err
	}
	s.setFollowingLocked(user, followee, 0, false)
	s.countLocked(s.graph.following, s.graph.has[0], user, -1)
	if followed {
		s.countLocked(s.graph.friend, s.graph.has[2], user, -1)
	}
	return nil
}

// setFollowingLocked writes an edge into the user's list, or where the list is
// on disk, notes what is known of the edge.
func (s *Shard) setFollowingLocked(user, followee uint64, position pipeline.Position, follows bool) {
	m := pipeline.Member{A: followee}
	if s.userLocked(user) && !s.thinLocked(user) {
		if follows {
			s.users.Set(user, listFollowees, hot.Pair{A: followee, B: uint64(position)})
		} else {
			s.users.Delete(user, listFollowees, followee)
		}
		s.following.Forget(user, m) // the list knows better, and may be evicted
	} else {
		s.following.Put(user, m, 0, follows)
	}
	s.changed.add(change{kind: kindFollowing, gone: !follows, print: hot.PrintOf(user, m), a: user, b: followee, v: uint64(position)})
}

func (s *Shard) followedLocked(o *pipeline.Operation, now int64) error {
	user, follower := o.ID, o.Other
	follows, followed, err := s.edgeLocked(user, follower)
	if followed || err != nil {
		return err
	}
	s.setFollowerLocked(user, follower, true)
	s.countLocked(s.graph.follower, s.graph.has[1], user, 1)
	if s.newFollowers() == nil {
		s.countLocked(s.graph.unread, s.graph.has[3], user, 1)
	}
	if follows {
		s.countLocked(s.graph.friend, s.graph.has[2], user, 1)
	}
	return s.ofFollowerLocked(o, now)
}

func (s *Shard) unfollowedLocked(o *pipeline.Operation, now int64) error {
	user, follower := o.ID, o.Other
	follows, followed, err := s.edgeLocked(user, follower)
	if !followed || err != nil {
		return err
	}
	s.setFollowerLocked(user, follower, false)
	s.countLocked(s.graph.follower, s.graph.has[1], user, -1)
	if follows {
		s.countLocked(s.graph.friend, s.graph.has[2], user, -1)
	}
	return s.ofFollowerLocked(o, now)
}

func (s *Shard) setFollowerLocked(user, follower uint64, follows bool) {
	m := pipeline.Member{A: follower}
	s.setMemberLocked(s.followers(), user, m, hot.PrintOf(user, m), 0, follows)
}
