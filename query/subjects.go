package query

import (
	"slices"
	"strings"
)

// Name is the micro service's name and the first token of its subjects.
const Name = "tidemark"

// notReplies begin the subjects that no answer goes to. A node may publish
// anything, and an asker says where the answer goes: it would be stored as an
// event, as the router's lease, or taken for a request, in the node's name.
var notReplies = []string{"$", "events.", "deadletter.", Name + "."}

// MayReply says whether an answer may go to a subject.
func MayReply(subject string) bool {
	return !slices.ContainsFunc(notReplies, func(prefix string) bool { return strings.HasPrefix(subject, prefix) })
}
