package tidemark_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Goldens of words that the world outside reads: a move or a rewrite that is to change
// nothing leaves them as they are, and a change shows in the diff. Each line is a message
// or a subject, however many places have it and wherever they are. Help texts are in
// cmd/tidemark/testdata, configuration in cmd/tidemark/config/testdata; docs/metrics.md
// lists the metrics, and a test of cmd/tidemark/node compares it with a node's.

var update = flag.Bool("update", false, "write testdata/*.golden")

func TestGoldenLogs(t *testing.T) {
	golden(t, "logs", words(t, func(n ast.Node) (line string) {
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
	golden(t, "subjects", words(t, func(n ast.Node) string {
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
		if room, _, _ := strings.Cut(s.dir, "/"); s.test || room == "internal" || room == "examples" {
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

// golden compares lines with a file of testdata.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	file, got := "testdata/"+name+".golden", strings.Join(lines, "\n")+"\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(strings.TrimSuffix(read(t, file), "\n"), "\n")
	var differs []string
	for _, line := range lines {
		if !slices.Contains(want, line) {
			differs = append(differs, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			differs = append(differs, "- "+line)
		}
	}
	if len(differs) > 0 {
		t.Error(fmt.Sprint(file, " differs (go test . -update rewrites it; say in the commit why):\n", strings.Join(differs, "\n")))
	}
}
