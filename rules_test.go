package tidemark_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The rules of the house that a test can hold: who imports whom, that packages have a comment, and
// that the files, pages and headings that comments and documents name exist. That docs/metrics.md
// lists every metric is held by internal/node, which has them.

const module = "github.com/tidemark-io/tidemark"

// A source is a Go file, parsed with its comments.
type source struct {
	*ast.File
	path, dir string
	test      bool
}

var (
	fset    = token.NewFileSet()
	sources = sync.OnceValues(parseAll)
)

func parseAll() (all []*source, err error) {
	text, err := walk(".go")
	for _, name := range slices.Sorted(maps.Keys(text)) {
		file, err := parser.ParseFile(fset, name, text[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, &source{File: file, path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")})
	}
	return all, err
}

// house returns all Go files, tests too.
func house(t *testing.T) []*source {
	t.Helper()
	all, err := sources()
	if err != nil || len(all) < 500 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

// rooms returns the files of each package that are no tests, by directory.
func rooms(t *testing.T) map[string][]*source {
	t.Helper()
	all := map[string][]*source{}
	for _, s := range house(t) {
		if !s.test {
			all[s.dir] = append(all[s.dir], s)
		}
	}
	return all
}

// wholeForTests is a whole process for the tests of users, beside the client that they use. It
// knows all rooms, as cmd does; only tests import it.
const wholeForTests = "query/tidemarktest"

// allowed says what a room may import of ours: the longest directory that the room is in
// decides. An entry that ends in / stands for all below it.
var allowed = map[string][]string{
	"pipeline":            {},
	"pipeline/cluster":    {"pipeline", "pipeline/generation"},
	"pipeline/generation": {"pipeline"},
	"pipeline/archive":    {"pipeline", "internal/kit"},
	"pipeline/jetlog":     {"pipeline", "pipeline/generation", "pipeline/jetlog/internal/", "internal/kit"},
	"operators":           {"pipeline"},
	"sinks":               {"pipeline", "query", "sinks/"},
	"sinks/run":           {"pipeline"},
	"sinks/hot":           {"pipeline"},
	"sinks/shard":         {"pipeline", "sinks/hot"},
	"sinks/cold":          {"pipeline", "sinks/run", "sinks/shard", "internal/kit"},
	"sinks/tier":          {"pipeline", "sinks/hot", "sinks/run", "sinks/shard", "sinks/cold"},
	"sinks/check":         {"pipeline", "query", "sinks/shard", "sinks/cold", "sinks/tier", "sinks/backup", "internal/kit"},
	"sinks/move":          {"pipeline", "pipeline/generation", "sinks/run", "sinks/cold", "internal/kit"},
	"sinks/backup":        {"pipeline", "pipeline/archive", "pipeline/generation", "sinks/run", "sinks/cold", "internal/kit"},
	"query":               {"pipeline"},
	"query/service":       {"pipeline", "query", "query/internal/"},
	"query/spread":        {"pipeline", "pipeline/generation", "query", "query/recent", "query/wire", "query/internal/"},
	"query/wire":          {"pipeline", "query", "query/internal/"},
	"query/client":        {"pipeline", "query", "query/internal/"},
	"query/internal":      {"pipeline"},
	"query/recent":        {"pipeline"},
	wholeForTests:         {"query/client", "internal/config", "internal/node"},
	"cmd":                 {"", "examples/badges", "pipeline", "pipeline/", "operators", "sinks", "sinks/", "query", "query/", "cmd/", "internal/config", "internal/job", "internal/kit", "internal/node", "internal/node/", "internal/walls"},
	"examples":            {"query/client", "cmd/tidemark/demo"},
	"internal":            {"", "pipeline", "pipeline/", "operators", "sinks", "sinks/", "query", "query/", "internal/"},
	"internal/config":     {"", "operators", "pipeline", "pipeline/generation", "internal/kit"},
	"internal/job":        {"pipeline"},
	"internal/walls":      {"internal/kit"},
	"internal/kit":        {},
	"internal/node": {
		"pipeline", "pipeline/archive", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/", "operators", "sinks", "sinks/", "query",
		"query/service", "query/spread", "internal/config", "internal/job", "internal/kit", "internal/kit/", "internal/node/", "internal/walls",
	},
	"internal/node/counting": {
		"pipeline", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/", "operators", "sinks", "sinks/", "query",
		"query/service", "query/spread", "internal/config", "internal/job", "internal/kit", "internal/kit/", "internal/node/checks", "internal/node/datadir", "internal/node/door",
		"internal/node/history", "internal/node/led", "internal/node/lookup", "internal/node/shardlog", "internal/node/upkeep",
	},
	"internal/node/checks":  {"pipeline", "pipeline/cluster", "pipeline/generation", "sinks/check", "internal/job"},
	"internal/node/door":    {"operators", "pipeline", "pipeline/jetlog", "query", "query/service", "query/web", "internal/config", "internal/walls"},
	"internal/node/history": {"pipeline", "pipeline/archive", "pipeline/jetlog", "internal/kit", "internal/node/led"},
	"internal/node/led":     {"pipeline/jetlog", "internal/kit"},
	"internal/node/lookup":  {"pipeline", "pipeline/cluster", "pipeline/jetlog/bucket", "query", "query/spread"},
	"internal/node/upkeep": {
		"pipeline", "pipeline/archive", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/", "sinks/backup", "sinks/cold", "sinks/move",
		"internal/config", "internal/kit", "internal/kit/figures", "internal/node/checks", "internal/node/history",
	},
	"internal/node/datadir":  {"pipeline", "pipeline/generation", "pipeline/jetlog", "internal/kit"},
	"internal/node/shardlog": {"pipeline", "pipeline/cluster"},
	// The rooms of jetlog: what builds on it, and what it builds on.
	"pipeline/jetlog/bucket": {
		"pipeline", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/internal/",
	},
	"pipeline/jetlog/embed":    {"internal/kit"},
	"pipeline/jetlog/internal": {},
	"pipeline/jetlog/letters":  {"pipeline", "pipeline/generation", "pipeline/jetlog"},
	// A door knows the question and the answer, and nothing of counts.
	"query/web": {"pipeline", "query"},
	// The suites that stores and services must pass.
	"query/internal/querytest": {"pipeline", "query"},
}

// TestImports holds that imports point from the rooms to the nouns, by the list of each room.
func TestImports(t *testing.T) {
	for dir, imports := range arrows(t) {
		room := dir
		for allowed[room] == nil && room != "." {
			room = path.Dir(room)
		}
		if room == "." && dir != "." {
			t.Errorf("%s is in no room: say in rules_test.go what it may import", dir)
		}
		for _, to := range imports {
			if !slices.ContainsFunc(allowed[room], func(a string) bool { return to == a || strings.HasSuffix(a, "/") && strings.HasPrefix(to, a) }) {
				t.Errorf("%s imports %s: imports point from the rooms to the nouns, and each room has its own list (allowed)", dir, to)
			}
			if to == wholeForTests {
				t.Errorf("%s imports %s, which is for tests", dir, to)
			}
		}
	}
}

// arrows returns what each package imports of ours, as directories.
func arrows(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for dir, files := range rooms(t) {
		for _, to := range imports(files) {
			if own, ok := strings.CutPrefix(to, module); ok {
				all[dir] = append(all[dir], strings.TrimPrefix(own, "/"))
			}
		}
	}
	return all
}

func imports(files []*source) (all []string) {
	for _, s := range files {
		for _, i := range s.Imports {
			all = append(all, strings.Trim(i.Path.Value, `"`))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// reach returns what is imported, also by what is imported.
func reach(arrows map[string][]string, from string) map[string]bool {
	seen := map[string]bool{}
	for left := []string{from}; len(left) > 0; left = left[1:] {
		for _, to := range arrows[left[0]] {
			if !seen[to] {
				seen[to] = true
				left = append(left, to)
			}
		}
	}
	return seen
}

// TestNATS holds that state does not reach the network by itself, and that streams are
// pipeline/jetlog's.
func TestNATS(t *testing.T) {
	streams := []string{"pipeline/jetlog/", "sinks/backup/", "cmd/tidemark/", "internal/node/"}
	network := []string{"pipeline/jetlog/", "sinks/backup/", "sinks/move/"}
	below := func(dir string, of []string) bool {
		return slices.ContainsFunc(of, func(room string) bool { return strings.HasPrefix(dir+"/", room) })
	}
	for dir, files := range rooms(t) {
		if strings.HasPrefix(dir, "examples/") || strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir+"/", "internal/node/") {
			continue // clients, and servers for tests
		}
		for _, to := range imports(files) {
			if to == "github.com/nats-io/nats.go/jetstream" && !below(dir, streams) {
				t.Errorf("%s imports jetstream: pipeline/jetlog does it for all", dir)
			}
			if strings.HasPrefix(to, "github.com/nats-io/") && below(dir, []string{"pipeline/", "operators/", "sinks/"}) && !below(dir, network) {
				t.Errorf("%s imports %s: state does not need the network", dir, to)
			}
		}
	}
}

// What is said to be pure can reach neither disk nor network, and operators no clock.
func TestPure(t *testing.T) {
	all, arrows := rooms(t), arrows(t)
	for _, pure := range []string{"pipeline", "pipeline/cluster", "pipeline/generation", "operators", "sinks/hot", "sinks/shard"} {
		for dir := range maps.Keys(reach(map[string][]string{"": {pure}, pure: arrows[pure]}, "")) {
			for _, to := range imports(all[dir]) {
				if slices.Contains([]string{"os", "io/fs", "net", "net/http", "syscall", "os/exec", "os/signal"}, to) {
					t.Errorf("%s is pure and %s imports %s", pure, dir, to)
				}
				if strings.Contains(to, ".") && !strings.HasPrefix(to, module) && strings.HasPrefix(pure, "pipeline") {
					t.Errorf("%s imports the standard library only, and %s imports %s", pure, dir, to)
				}
			}
		}
	}
	clock := regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|NewTimer|NewTicker)\(`)
	for _, s := range all["operators"] {
		if found := clock.FindString(read(t, s.path)); found != "" {
			t.Errorf("%s reads a clock: %s. A window is a function of its events and the rules (I5).", s.path, found)
		}
	}
}

// TestPackageDocs holds that each package has one comment, which begins as Go's tools expect.
func TestPackageDocs(t *testing.T) {
	for dir, files := range rooms(t) {
		doc, docs := "", 0
		for _, s := range files {
			if s.Doc != nil {
				doc += s.Doc.Text()
				docs++
			}
		}
		begins := "Package " + files[0].Name.Name + " "
		if files[0].Name.Name == "main" {
			begins = ""
		}
		if docs != 1 || !strings.HasPrefix(doc, begins) {
			t.Errorf("%s: %d files have a package comment; one has it, and it begins with %q", dir, docs, begins)
		}
	}
}

// readers are the calls of NATS's library that trip over headers which any client can publish.
var readers = []string{"GetMsg", "GetLastMsgForSubject", "Fetch", "FetchNoWait", "FetchBytes", "Consume", "Messages"}

// TestCallsWithOnePlace holds that stored messages are read, and files replaced, in the one place
// that knows what can go wrong with it.
func TestCallsWithOnePlace(t *testing.T) {
	for _, s := range house(t) {
		clients := s.dir == "internal/bench" || strings.HasPrefix(s.dir, "internal/natstest") // bare consumers and servers for tests
		locks := s.path == "sinks/backup/bucketlock.go"                                       // only nodes write them
		streams := slices.Contains(imports([]*source{s}), "github.com/nats-io/nats.go/jetstream") && !clients && !locks
		files := s.dir != "internal/kit" && s.path != "sinks/check/filters.go" // which keeps what may be lost
		if s.test {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			f, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			of, _ := f.X.(*ast.Ident)
			switch {
			case streams && slices.Contains(readers, f.Sel.Name):
				t.Errorf("%s calls %s of the library: use GetStored, NextStored, LastStored or VisitHeaders of jetlog", fset.Position(call.Pos()), f.Sel.Name)
			case files && of != nil && of.Name == "os" && f.Sel.Name == "Rename":
				t.Errorf("%s: use kit.ReplaceFile or kit.Move, which wait until the name is on disk too", fset.Position(call.Pos()))
			}
			return true
		})
	}
}

// TestNamedFiles holds that files which comments and pages name exist. One without a directory may be anywhere, one with it is below any:
// `counting/streams.go` is internal/node/counting/streams.go.
func TestNamedFiles(t *testing.T) {
	exists := map[string]bool{}
	for _, extension := range []string{".go", ".md", ".yaml", ".yml", ".conf"} {
		for name := range files(t, extension) {
			for rest := name; rest != ""; _, rest, _ = strings.Cut(rest, "/") {
				exists[rest] = true
			}
		}
	}
	named := regexp.MustCompile(`[\w./*-]*\b[\w-]+\.(?:go|md)\b`)
	others := regexp.MustCompile(`^(nats\.go|badger|etcd|raft|.*\.example|go\.dev|github\.com|pkg\.go|nats\.io|tmp/)`)
	look := func(where, text string) {
		for _, name := range named.FindAllString(text, -1) {
			name = strings.TrimLeft(name, "./")
			if !exists[name] && !others.MatchString(name) && !strings.Contains(name, "*") {
				t.Errorf("%s names %s, which there is not", where, name)
			}
		}
	}
	for _, s := range house(t) {
		for _, c := range s.Comments {
			look(fset.Position(c.Pos()).String(), c.Text())
		}
	}
	for name, text := range files(t, ".md") {
		if name != "CHANGELOG.md" && !strings.HasPrefix(name, "docs/decisions/") { // they tell what was
			look(name, text)
		}
	}
}

// TestNamedTests holds that tests which comments and pages name exist.
func TestNamedTests(t *testing.T) {
	declared := map[string]bool{}
	for _, s := range house(t) {
		for _, d := range s.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				declared[f.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	look := func(where, text string) {
		for _, name := range named.FindAllString(text, -1) {
			if !declared[name] && name != "TestLike" { // an example of a user's own
				t.Errorf("%s names %s, which there is not", where, name)
			}
		}
	}
	for _, s := range house(t) {
		for _, c := range s.Comments {
			look(fset.Position(c.Pos()).String(), c.Text())
		}
	}
	for name, text := range files(t, ".md") {
		if name != "CHANGELOG.md" && !strings.HasPrefix(name, "docs/decisions/") { // they tell what was
			look(name, text)
		}
	}
}
