package snapshot

import (
	"bufio"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for pattern, why := range map[string]string{
		"post:{id}:likes":                              "say KEY=COUNTER.COLUMN",
		"post:{id}:likes=post":                         "say KEY=COUNTER.COLUMN",
		"post:{id}:likes=.like":                        "say KEY=COUNTER.COLUMN",
		"post:{id}:likes=post.shares":                  "the node has no column post.shares; it has: post.repost, post.comment",
		"post:{id}:likes=pos.*":                        "the node has no column pos.*",
		"post:42:likes=post.like":                      "{id} must stand once",
		"post:{id}:{id}=post.like":                     "{id} stands there twice",
		"post:{id}#{id}=post.like":                     "{id} must stand once",
		"post#likes=post.like":                         "{id} must stand once",
		"=post.like":                                   "the key or the field is empty",
		"post:{id}#=post.like":                         "the key or the field is empty",
		"post:{id}#l*=post.like":                       "a field has no *",
		"post:{id}#x=post.*":                           "leave out #x",
		"a{id}=post.like b{id}=post.like":              "another pattern is for post.like already",
		"post:{id}=post.* post:{id}:likes=post.like":   "another pattern is for post.like already",
		"likes#{id}=post.like likes#x{id}=post.repost": "another pattern is for fields of the same hash",
		"": "which keys?",
	} {
		if err := parse("redis://127.0.0.1", strings.Fields(pattern), schema); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, url := range []string{"127.0.0.1", "http://127.0.0.1", "redis://127.0.0.1/x"} {
		if err := parse(url, []string{"a{id}=post.like"}, schema); err == nil || !strings.Contains(err.Error(), "redis://HOST:PORT/DB") {
			t.Errorf("%q: %v", url, err)
		}
	}
	one, _ := Name("redis://:secret@127.0.0.1:6379/2", []string{"a", "b"})
	same, _ := Name("redis://user:other@127.0.0.1:6379/2", []string{"b", "a"})
	other, _ := Name("redis://127.0.0.1:6379/1", []string{"a", "b"})
	if one != same || one == other || !strings.HasPrefix(one, "redis-") {
		t.Errorf("%s %s %s", one, same, other)
	}
}

func TestTemplates(t *testing.T) {
	for text, want := range map[string]string{
		"post:{id}:likes post:42:likes":     "42 post:*:likes",
		"post:{{id}}:likes post:{42}:likes": "42 post:{*}:likes",
		"a:*:{id} a:1:2:3":                  "3 a:*:*",
		"*{id} x42":                         "2 **",
		`a\*b[{id}]? a*b[42]?`:              `42 a\*b\[*\]\?`,
		"é{id} é42":                         "42 é*",
		"a.c{id} a.c42":                     "42 a.c*",
		"a.c{id} abc42":                     "none a.c*",
		"p{id} p4x":                         "4x p*",
		"p{id} p":                           " p*",
		"p{id} p1\n":                        "1\n p*",
	} {
		pattern, key, _ := strings.Cut(text, " ")
		p, err := parseTemplate(pattern)
		if err != nil {
			t.Fatal(err)
		}
		id, ok := p.match(key)
		if !ok {
			id = "none"
		}
		if got := id + " " + p.glob; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Sorting a piece at a time gives what a map gives: of each cell the last.
func TestSortTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 40 {
		dir := t.TempDir()
		path := filepath.Join(dir, cellsFile)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		out := bufio.NewWriter(f)
		naive := map[[2]uint64]int64{}
		for range random.IntN(3000) {
			c := cell{column: uint32(random.IntN(3)), id: uint64(random.IntN(1 + round*20)), value: random.Int64()}
			if random.IntN(10) == 0 {
				c.id, c.column = 1<<64-1-c.id, faultColumn
			}
			naive[[2]uint64{uint64(c.column), c.id}] = c.value
			_, _ = out.Write(appendCell(nil, c))
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var got []cell
		err = sortCells(t.Context(), path, dir, 1+random.IntN(500), func(c cell) error { got = append(got, c); return nil })
		if err != nil || !slices.IsSortedFunc(got, compareCells) || len(got) != len(naive) {
			t.Fatalf("%d cells, want %d: %v", len(got), len(naive), err)
		}
		for _, c := range got {
			if naive[[2]uint64{uint64(c.column), c.id}] != c.value {
				t.Fatalf("%+v", c)
			}
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	}
}

// What is wrong with a URL is said without its password.
func TestURLFaultHidesPassword(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2@redis:port/0", "redis://me:hunter2/x@redis:6379/0", "redis://me:hunter2%zz@redis/0", "redis://me:hunter2@redis:6379/zero",
		"http://me:hunter2@redis", "redis://me:hunter2@redis/0?unknown=1", "redis://me:1/hunter2@redis:6379",
	} {
		err := parse(url, []string{"post:{id}:likes=post.like"}, schema)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// parse checks a URL and patterns without asking anybody for anything.
func parse(address string, patterns []string, schema Schema) error {
	if _, err := parseURL(address); err != nil {
		return err
	}
	_, err := newPlan(patterns, schema)
	return err
}
