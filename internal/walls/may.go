package walls

import "strings"

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
		list = append(list, may(Roles[i].Name, subjects(&Roles[i]), allow, deny))
	}
	return append(list, may(Operator, inside, allow, deny), may(NodeRole, inside, allow, deny))
}

func may(role string, subjects, allow, deny []string) Right {
	for _, s := range subjects {
		if len(allow) > 0 && !anyCovers(allow, s) || anyCovers(deny, s) {
			return Right{Role: role, First: s}
		}
	}
	return Right{Role: role, All: true}
}

func anyCovers(patterns []string, subject string) bool {
	for _, p := range patterns {
		if covers(p, subject) {
			return true
		}
	}
	return false
}

// covers says that whatever matches subject, which may have wildcards, matches pattern.
func covers(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return i < len(have)
		case i == len(have) || have[i] == ">" || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}
