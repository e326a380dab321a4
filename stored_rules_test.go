package tidemark_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// TestStoredMessagesAreReadInOnePlace holds what a client's headers can do to a reader.
func TestStoredMessagesAreReadInOnePlace(t *testing.T) {
	library := []string{"GetMsg", "GetLastMsgForSubject", "Fetch", "FetchNoWait", "FetchBytes", "Consume", "Messages"}
	for _, s := range house(t) {
		// What only nodes write: locks in the object store of backups. And the bare consumers of
		// the bench.
		if s.test || s.path == "sinks/backup/bucketlock.go" || s.dir == "internal/bench" || strings.HasPrefix(s.dir, "internal/natstest") {
			continue
		}
		if !slices.Contains(imports([]*source{s}), "github.com/nats-io/nats.go/jetstream") {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				if f, is := call.Fun.(*ast.SelectorExpr); is && slices.Contains(library, f.Sel.Name) {
					t.Errorf("%s calls %s of the library, which trips over headers that any client can publish: use GetStored, NextStored, LastStored or VisitHeaders of jetlog",
						fset.Position(call.Pos()), f.Sel.Name)
				}
			}
			return true
		})
	}
}
