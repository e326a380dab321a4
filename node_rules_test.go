package tidemark_test

import (
	"go/ast"
	"slices"
	"testing"
)

// narrow are the fields of a generation that its process may read: which one it is, and
// what it counts by. They do not change.
var narrow = []string{"Number", "Slot", "Config", "CountsBy"}

// TestNodeReadsNoFields holds that a process calls methods of a generation, and does not
// reach through it to what both use; Inside is for tests. It knows names, not types: what a
// process calls its generations is in called.
func TestNodeReadsNoFields(t *testing.T) {
	called := []string{"g", "b", "to", "from", "before", "beside", "serving", "kept", "generation"}
	fields := map[string]bool{"Inside": true}
	for _, s := range rooms(t)["internal/node/counting"] {
		ast.Inspect(s.File, func(n ast.Node) bool {
			typ, ok := n.(*ast.TypeSpec)
			if !ok || typ.Name.Name != "Process" && typ.Name.Name != "Spec" {
				return true
			}
			for _, f := range typ.Type.(*ast.StructType).Fields.List {
				for _, name := range f.Names {
					fields[name.Name] = !slices.Contains(narrow, name.Name)
				}
			}
			return true
		})
	}
	if len(fields) < 15 {
		t.Fatalf("a generation has %d fields", len(fields))
	}
	for _, s := range rooms(t)["internal/node"] {
		ast.Inspect(s.File, func(n ast.Node) bool {
			read, ok := n.(*ast.SelectorExpr)
			if !ok || !fields[read.Sel.Name] {
				return true
			}
			is := false
			switch x := read.X.(type) {
			case *ast.Ident:
				is = slices.Contains(called, x.Name)
			case *ast.SelectorExpr:
				is = slices.Contains(called, x.Sel.Name)
			case *ast.CallExpr:
				f, ok := x.Fun.(*ast.SelectorExpr)
				is = ok && f.Sel.Name == "Serving"
			}
			if is {
				t.Errorf("%s: a process reads %s of a generation: it calls methods", fset.Position(read.Pos()), read.Sel.Name)
			}
			return true
		})
	}
}
