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

// Reply is what a query service answers a request of its own process.
type Reply struct {
	Code    int    // after HTTP's: 200, 400, 404, 413, 500, 503, 504
	Message string // what is wrong, on one line; "" for 200
	Data    []byte // JSON; beside a Message for programs, mostly none
}
