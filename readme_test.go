package tidemark_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// README.md: "Every claim, and the command that prints it": the commands name tests,
// benchmarks and make targets that exist.
func TestReadmeCommands(t *testing.T) {
	_, section, found := strings.Cut(read(t, "README.md"), "\n## Every claim, and the command that prints it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile("(?m)^\\|.*\\| `([^`]+)`.*\\|$").FindAllStringSubmatch(section, -1)
	if !found || len(commands) < 10 {
		t.Fatalf("%d commands beside claims", len(commands))
	}
	for _, match := range commands {
		if !runsSomething(t, match[1]) {
			t.Errorf("README names a command that runs nothing: %s", match[1])
		}
	}
}

// docs/performance.md names commands that measure yours: they exist.
func TestPerformanceCommands(t *testing.T) {
	commands := regexp.MustCompile("`((?:make|go) [^`]+)`").FindAllStringSubmatch(read(t, "docs/performance.md"), -1)
	if len(commands) < 3 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, match := range commands {
		if !runsSomething(t, match[1]) {
			t.Errorf("docs/performance.md names a command that runs nothing: %s", match[1])
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// runsSomething says whether what a command names exists: tests, benchmarks, make
// targets, measurements.
func runsSomething(t *testing.T, command string) bool {
	t.Helper()
	tests := func(dir string) (all string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			all += read(t, file)
		}
		return all
	}
	words := strings.Fields(command)
	switch words[0] {
	case "go":
		dir, name := words[len(words)-1], "Test"
		for i, word := range words {
			if word == "-run" {
				name = words[i+1]
			}
		}
		return regexp.MustCompile(`(?m)^func Test\w*` + strings.TrimPrefix(name, "Test")).MatchString(tests(dir))
	case "make":
		if !strings.Contains(read(t, "Makefile"), "\n"+words[1]+": ") {
			return false
		}
		if _, bench, ok := strings.Cut(command, "BENCH="); ok {
			everywhere := ""
			_ = filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					everywhere += tests(path)
				}
				return err
			})
			return strings.Contains(everywhere, "\nfunc Benchmark"+strings.Trim(bench, "'")+"(")
		}
		if _, only, ok := strings.Cut(command, "-only "); ok {
			_, measurements, _ := strings.Cut(read(t, "internal/bench/main.go"), "\nvar measurements = ")
			measurements, _, _ = strings.Cut(measurements, "\n}\n")
			only, _, _ = strings.Cut(only, "'")
			for name := range strings.SplitSeq(only, ",") {
				if !strings.Contains(measurements, `"`+name+`"`) {
					return false
				}
			}
		}
	}
	return true
}
