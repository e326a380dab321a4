package operators

import "github.com/tidemark-io/tidemark/pipeline"

// follow puts an edge on both its ends: each user's shard holds followees and
// followers, and so knows the friends.
func follow(l *Lane) *refusal {
	if err := l.need(fieldActor, fieldTarget); err != nil {
		return err
	}
	actor, target := l.ids[fieldActor], l.ids[fieldTarget]
	if actor == target {
		return refuse(pipeline.ReasonSelf, "user %d follows themself", actor)
	}
	here, there := pipeline.OpFollow, pipeline.OpFollowed
	if l.deletion {
		here, there = pipeline.OpUnfollow, pipeline.OpUnfollowed
	}
	l.operation = pipeline.Operation{Op: here, ID: actor, Other: target, Position: l.position}
	l.operate(actor)
	l.operation = pipeline.Operation{Op: there, ID: target, Other: actor, Position: l.position}
	l.operate(target)
	return nil
}
