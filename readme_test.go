package tidemark_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// "A claim in README has a command that prints it": the commands name tests,
// benchmarks and make targets that exist.
func TestReadmeCommands(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	tests := func(dir string) (all string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			all += read(file)
		}
		return all
	}
	everywhere := ""
	_ = filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			everywhere += tests(path)
		}
		return err
	})
	_, section, found := strings.Cut(read("README.md"), "\n## Every claim, and the command that prints it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile("(?m)^\\|.*\\| `([^`]+)`.*\\|$").FindAllStringSubmatch(section, -1)
	if !found || len(commands) < 10 {
		t.Fatalf("%d commands beside claims", len(commands))
	}
	makefile := read("Makefile")
	_, measurements, _ := strings.Cut(read("internal/bench/main.go"), "\nvar measurements = ")
	measurements, _, _ = strings.Cut(measurements, "\n}\n")
	for _, match := range commands {
		words := strings.Fields(match[1])
		exists := true
		switch words[0] {
		case "go":
			dir, name := words[len(words)-1], "Test"
			for i, word := range words {
				if word == "-run" {
					name = words[i+1]
				}
			}
			exists = regexp.MustCompile(`(?m)^func Test\w*` + strings.TrimPrefix(name, "Test")).MatchString(tests(dir))
		case "make":
			exists = strings.Contains(makefile, "\n"+words[1]+": ")
			if _, bench, ok := strings.Cut(match[1], "BENCH="); ok {
				exists = exists && strings.Contains(everywhere, "\nfunc Benchmark"+bench+"(")
			}
			if _, only, ok := strings.Cut(match[1], "-only "); ok {
				only, _, _ = strings.Cut(only, "'")
				for name := range strings.SplitSeq(only, ",") {
					exists = exists && strings.Contains(measurements, `"`+name+`"`)
				}
			}
		}
		if !exists {
			t.Errorf("README names a command that runs nothing: %s", match[1])
		}
	}
}

// The programs that wait for what they wrote are the same in README and docs/queries.md.
func TestProgramsAreTheSame(t *testing.T) {
	programs := func(name string) []string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(b), "\n### Read your own writes\n")
		section, _, _ = strings.Cut(section, "\n#")
		return regexp.MustCompile("(?s)```(?:js|python)\n.*?\n```").FindAllString(section, -1)
	}
	readme, queries := programs("README.md"), programs("docs/queries.md")
	if len(readme) != 2 || !slices.Equal(readme, queries) {
		t.Errorf("README.md\n%s\ndocs/queries.md\n%s", readme, queries)
	}
}
