package walls

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// NodeRole is the role of nodes. It is inside, as the operator's is.
const NodeRole = "node"

// inside are the subjects that a node publishes to besides those of the doors.
var inside = []string{"$JS.API.>", "$KV.TIDEMARK.>", "tidemark.internal.>", "deadletter.>", "events.>"}

// Right says whether a client may do all that a role may.
type Right struct {
	Role  string
	All   bool
	First string // the first subject that it may not publish to
}

// May compares a client's permissions to publish with each role. No allow list allows all.
func May(allow, deny []string) (list []Right) {
	for i := range Roles {
		needs := subjects(&Roles[i])
		if Roles[i].Name == Operator {
			needs = inside
		}
		list = append(list, may(Roles[i].Name, needs, allow, deny))
	}
	return append(list, may(NodeRole, inside, allow, deny))
}

func may(role string, subjects, allow, deny []string) Right {
	for _, s := range subjects {
		if len(allow) > 0 && !anyCovers(allow, s) || anyCovers(deny, s) {
			return Right{Role: role, First: s}
		}
	}
	return Right{Role: role, All: true}
}

// anyCovers says that whatever matches subject, which may have wildcards, matches one of
// the patterns.
func anyCovers(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, subject) })
}

func covers(pattern, subject string) bool { return server.SubjectMatchesFilter(subject, pattern) }
