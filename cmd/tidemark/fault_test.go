package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a user reads has no names of packages in it; what packages share with users'
// words stays.
func TestSentenceWithoutPackages(t *testing.T) {
	for text, want := range map[string]string{
		"drain: jetlog: there is no such node as \"x\"":                       "drain: there is no such node as \"x\"",
		"jetlog: join: cluster: node d has 32 shards, node a has 16":          "join: node d has 32 shards, node a has 16",
		"cold: sinks: the disk is full":                                       "the disk is full",
		"a: jetlog: nobody answers; b: cold: shard 3: checksum":               "a: nobody answers; b: shard 3: checksum",
		"config: open x.yaml: no such file or directory":                      "config: open x.yaml: no such file or directory",
		"existing streams do not fit: EVENTS: replicas is 3; told jetlog: so": "existing streams do not fit: EVENTS: replicas is 3; told jetlog: so",
	} {
		if got := sentence(errors.New(text)); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", text, got, want)
		}
	}
}

// Every package that begins its errors with its own name is known to sentence.
func TestSentenceKnowsAllPackages(t *testing.T) {
	begins := regexp.MustCompile("(?:errors\\.New|fmt\\.Errorf)\\(\"([a-z]+): ")
	usersWords := []string{"archive", "config"}
	looked := 0
	for _, room := range []string{"cmd", "pipeline", "operators", "sinks", "query"} {
		err := filepath.WalkDir(filepath.Join("..", "..", room), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly)
			if err != nil {
				return err
			}
			for _, m := range begins.FindAllSubmatch(source, -1) {
				name := string(m[1])
				if name != file.Name.Name || slices.Contains(usersWords, name) {
					continue
				}
				looked++
				if got := sentence(errors.New(name + ": why")); got != "why" {
					t.Errorf("%s: errors begin with %q, and commands print that", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Errorf("%d errors found: this test shows nothing", looked)
	}
}

// Of several servers some may take connections and say nothing, as a suspended process
// does: whichever is asked first, the last one is asked within --timeout, and may answer.
func TestPatienceWithServers(t *testing.T) {
	for servers := 1; servers <= 5; servers++ {
		r := remote{NATS: strings.Repeat("nats://a,", servers-1) + "nats://b", Timeout: 5 * time.Second}
		each := r.patience()
		if silent := time.Duration(servers-1) * each; r.Timeout-silent < each || each < 500*time.Millisecond {
			t.Errorf("%d servers: each has %s of %s", servers, each, r.Timeout)
		}
	}
}
