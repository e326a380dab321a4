package tidemark_test

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// narrow are the fields of a generation that its process may read: which one it is, and
// what it counts by. They do not change.
var narrow = []string{"number", "slot", "config", "countsBy"}

// TestNodeReadsNoFields holds what lets the files of a generation move to a package of their
// own. It knows names, not types: what a process calls its generations is in called.
func TestNodeReadsNoFields(t *testing.T) {
	called := []string{"g", "b", "to", "from", "before", "beside", "serving", "kept", "generation"}
	files := rooms(t)["internal/node"]
	fields, of := map[string]bool{}, map[*source]bool{}
	for _, s := range files {
		for _, d := range s.Decls {
			if typ, _ := receiver(d); typ == "generation" {
				of[s] = true
			}
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				typ := spec.(*ast.TypeSpec)
				is, ok := typ.Type.(*ast.StructType)
				if !ok || typ.Name.Name != "generation" && typ.Name.Name != "process" {
					continue
				}
				for _, f := range is.Fields.List {
					for _, name := range f.Names {
						fields[name.Name] = !slices.Contains(narrow, name.Name)
					}
				}
			}
		}
	}
	if len(fields) < 40 {
		t.Fatalf("a generation has %d fields", len(fields))
	}
	for _, s := range files {
		if of[s] {
			continue
		}
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
				is = ok && f.Sel.Name == "gen"
			}
			if is {
				t.Errorf("%s: a process reads the field %s of a generation: it calls methods", fset.Position(read.Pos()), read.Sel.Name)
			}
			return true
		})
	}
}
