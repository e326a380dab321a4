package tidemark_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/golden"
)

// Goldens of words that the world outside reads: a move or a rewrite that is to change
// nothing leaves them as they are, and a change shows in the diff. Each line is a message
// or a subject, however many places have it and wherever they are. Help texts are in
// cmd/tidemark/testdata, configuration in internal/config/testdata; docs/metrics.md
// lists the metrics, and a test of internal/node compares it with a node's.

func TestGoldenLogs(t *testing.T) {
	keeps(t, "logs", words(t, func(n ast.Node) (line string) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return ""
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, f.Sel.Name) {
			return ""
		}
		message, ok := literal(call.Args[0])
		if !ok {
			return ""
		}
		line = f.Sel.Name + " " + strconv.Quote(message)
		for _, a := range call.Args[1:] {
			if key, ok := literal(a); ok {
				line += " " + key
			}
		}
		return line
	}))
}

// Subjects, streams and keys of the bucket, as far as they are written out.
func TestGoldenSubjects(t *testing.T) {
	subject := regexp.MustCompile(`^(tidemark\.|events\.|deltas?\.|deadletter\.|\$JS\.|\$KV\.|EVENTS|DELTAS|DEADLETTER|TIDEMARK|Tidemark-)[\w.<>*%$-]*$`)
	keeps(t, "subjects", words(t, func(n ast.Node) string {
		if e, ok := n.(ast.Expr); ok {
			if text, ok := literal(e); ok && subject.MatchString(text) {
				return text
			}
		}
		return ""
	}))
}

// words returns what the product's code has, sorted, each once.
func words(t *testing.T, of func(ast.Node) string) (lines []string) {
	t.Helper()
	for _, s := range house(t) {
		if s.test || !product(s.dir) {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if line := of(n); line != "" {
				lines = append(lines, strings.ReplaceAll(line, "\n", `\n`))
			}
			return true
		})
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// literal returns a string that is written out, also in several parts.
func literal(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			text, err := strconv.Unquote(x.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, first := literal(x.X)
		b, second := literal(x.Y)
		return a + b, first && second
	}
	return "", false
}

// keeps holds lines against a file of testdata.
func keeps(t *testing.T, name string, lines []string) {
	t.Helper()
	golden.Check(t, name, strings.Join(lines, "\n")+"\n")
}
