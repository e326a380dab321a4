package tidemark_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// The rules of the house that a test can hold, each with its reason in the message.
// Where the house does not meet a rule yet, testdata/due.txt has a line with the
// present number: it may only fall, and a line that is met is deleted.

const module = "github.com/tidemark-io/tidemark"

// A source is a Go file, parsed with its comments.
type source struct {
	*ast.File
	path, dir string
	test      bool
	lines     int
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
		all = append(all, &source{
			File: file, path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(text[name], "\n"),
		})
	}
	return all, err
}

// product says whether the directory has code of the program, not tools and proof.
func product(dir string) bool {
	room, rest, _ := strings.Cut(dir, "/")
	rest, _, _ = strings.Cut(rest, "/")
	return room != "examples" && (room != "internal" || slices.Contains([]string{"config", "job", "kit", "node"}, rest))
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

// packageDoc returns the comment of a package, from the file that has it.
func packageDoc(files []*source) (doc string) {
	for _, s := range files {
		if s.Doc != nil {
			doc += s.Doc.Text()
		}
	}
	return doc
}

func TestFileLengths(t *testing.T) {
	over := map[string]int{}
	for _, s := range house(t) {
		if s.lines > 600 {
			over[s.path] = (s.lines + 49) / 50 * 50
		}
	}
	ratchet(t, "file", "(Lines, rounded up to 50.) A file of more than 600 lines is not read as a whole: split it by what it does.", over)
}

// TestFilesAreReplacedInOnePlace holds what a power cut leaves of files.
func TestFilesAreReplacedInOnePlace(t *testing.T) {
	over := map[string]int{}
	for _, s := range house(t) {
		if s.test || s.dir == "internal/kit" || s.dir == "query/explain" { // which keeps what may be lost
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if call, is := n.(*ast.SelectorExpr); is && call.Sel.Name == "Rename" {
				if from, is := call.X.(*ast.Ident); is && from.Name == "os" {
					over[s.path]++
				}
			}
			return true
		})
	}
	ratchet(t, "rename", "Use kit.ReplaceFile or kit.Move: they wait until the name is on disk, too.", over)
}

func TestPackageLengths(t *testing.T) {
	over := map[string]int{}
	for dir, files := range rooms(t) {
		lines := 0
		for _, s := range files {
			lines += s.lines
		}
		if lines > 4000 && !strings.Contains(packageDoc(files), "Large because") {
			over[dir] = (lines + 99) / 100
		}
	}
	ratchet(t, "package", `(Hundreds of lines without tests.) Split a package above 4,000, or say in its doc: "Large because …".`, over)
}

func TestFunctionLengths(t *testing.T) {
	over := map[string]int{}
	for dir, files := range rooms(t) {
		var lengths []int
		for _, s := range files {
			for _, d := range s.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					lengths = append(lengths, fset.Position(f.End()).Line-fset.Position(f.Pos()).Line+1)
				}
			}
		}
		if len(lengths) < 10 { // too few for percentiles
			continue
		}
		slices.Sort(lengths)
		if p50 := lengths[len(lengths)/2]; p50 > 9 {
			over[dir+" p50"] = p50
		}
		if p90 := lengths[len(lengths)*9/10]; p90 > 28 {
			over[dir+" p90"] = p90
		}
	}
	ratchet(t, "functions", "(Lines, the median and the 90th percentile of a package.) Long functions hide what they decide.", over)
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
	"pipeline/jetlog":     {"pipeline", "pipeline/generation", "pipeline/jetlog/internal/"},
	"operators":           {"pipeline"},
	"sinks":               {"pipeline", "query", "sinks/"},
	"sinks/run":           {"pipeline"},
	"sinks/hot":           {"pipeline"},
	"sinks/shard":         {"pipeline", "sinks/hot"},
	"sinks/cold":          {"pipeline", "sinks/run", "sinks/shard", "internal/kit"},
	"sinks/tier":          {"pipeline", "sinks/hot", "sinks/shard", "sinks/cold"},
	"sinks/move":          {"pipeline", "pipeline/generation", "sinks/run", "sinks/cold"},
	"sinks/audit":         {"pipeline"},
	"sinks/backup":        {"pipeline", "pipeline/archive", "pipeline/generation", "sinks/run", "sinks/cold", "internal/kit"},
	"query":               {"pipeline"},
	"query/service":       {"pipeline", "query", "query/internal/"},
	"query/spread":        {"pipeline", "pipeline/generation", "query", "query/recent", "query/wire", "query/internal/"},
	"query/wire":          {"pipeline", "query", "query/internal/"},
	"query/explain":       {"pipeline", "query"},
	"query/client":        {"pipeline", "query/internal/"},
	"query/internal":      {"pipeline"},
	"query/recent":        {"pipeline"},
	wholeForTests:         {"query/client", "internal/config", "internal/node"},
	"cmd":                 {"", "pipeline", "pipeline/", "operators", "sinks", "sinks/", "query", "query/", "cmd/", "internal/config", "internal/job", "internal/kit", "internal/node", "internal/node/", "internal/walls"},
	"examples":            {"query/client", "cmd/tidemark/demo"},
	"internal":            {"", "pipeline", "pipeline/", "operators", "sinks", "sinks/", "query", "query/", "internal/"},
	"internal/config":     {"", "operators", "pipeline", "pipeline/generation", "sinks/audit"},
	"internal/job":        {"pipeline"},
	"internal/walls":      {"internal/kit"},
	"internal/kit":        {},
	"internal/node": {
		"pipeline", "pipeline/archive", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/", "operators", "sinks", "sinks/", "query", "query/explain",
		"query/service", "query/spread", "internal/config", "internal/job", "internal/kit", "internal/kit/", "internal/node/", "internal/walls",
	},
	"internal/node/counting": {
		"pipeline", "pipeline/cluster", "pipeline/generation", "pipeline/jetlog", "pipeline/jetlog/", "operators", "sinks", "sinks/", "query", "query/explain",
		"query/service", "query/spread", "internal/config", "internal/job", "internal/kit", "internal/kit/", "internal/node/checks", "internal/node/datadir", "internal/node/door",
		"internal/node/history", "internal/node/led", "internal/node/lookup", "internal/node/shardlog", "internal/node/upkeep",
	},
	"internal/node/checks":  {"pipeline", "pipeline/generation", "sinks/audit", "internal/job"},
	"internal/node/door":    {"operators", "pipeline", "pipeline/jetlog", "query", "query/service", "query/web", "internal/config", "internal/walls"},
	"internal/node/history": {"pipeline", "pipeline/archive", "pipeline/jetlog", "internal/kit", "internal/node/led"},
	"internal/node/led":     {"pipeline/jetlog", "internal/kit"},
	"internal/node/lookup":  {"pipeline", "pipeline/cluster", "pipeline/jetlog/bucket", "query", "query/spread"},
	"internal/node/rebuild": {"pipeline", "pipeline/cluster", "pipeline/generation", "sinks/audit", "internal/job", "internal/node/checks"},
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

func TestImports(t *testing.T) {
	over := map[string]int{}
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
				over[dir+" imports "+to] = 1
			}
		}
	}
	ratchet(t, "arrow", "Imports point from the rooms to the nouns, and each room has its own list (allowed).", over)
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

// The compiler refuses circles of packages; these are circles of rooms.
func TestNoCircleOfRooms(t *testing.T) {
	between := map[string][]string{}
	for dir, imports := range arrows(t) {
		from, _, _ := strings.Cut(dir, "/")
		if dir == wholeForTests {
			continue
		}
		for _, to := range imports {
			if to == wholeForTests {
				t.Errorf("%s imports %s, which is for tests", dir, to)
			}
			if to == "internal/kit" { // below all rooms
				continue
			}
			if to, _, _ = strings.Cut(to, "/"); to != from && to != "" {
				between[from] = append(between[from], to)
			}
		}
	}
	over := map[string]int{}
	for room := range between {
		if reach(between, room)[room] {
			over[room] = 1
		}
	}
	ratchet(t, "circle", "A room that reaches itself over another one is one room with it.", over)
}

// What reaches the network does it in a room that is made for it.
func TestNATS(t *testing.T) {
	over := map[string]int{}
	all, arrows := rooms(t), arrows(t)
	for dir, files := range all {
		room, _, _ := strings.Cut(dir, "/")
		jetlog := strings.HasPrefix(dir+"/", "pipeline/jetlog/")
		if !product(dir) { // they are clients, or bring servers for tests
			continue
		}
		for _, to := range imports(files) {
			switch {
			case to == "github.com/nats-io/nats.go/jetstream" && !jetlog:
				over["jetstream in "+dir] = 1
			case strings.HasPrefix(to, "github.com/nats-io/") && slices.Contains([]string{"pipeline", "operators", "sinks"}, room) &&
				!jetlog && dir != "sinks/move":
				over["NATS in "+dir] = 1
			}
		}
		if room == "sinks" {
			for to := range reach(arrows, dir) {
				if slices.Contains(imports(all[to]), "github.com/nats-io/nats.go/micro") {
					over[dir+" builds with NATS's service"] = 1
				}
			}
		}
	}
	ratchet(t, "nats", "JetStream is pipeline/jetlog's and its rooms', and state does not need the service that asks it.", over)
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

func TestPackageDocs(t *testing.T) {
	over := map[string]int{}
	for dir, files := range rooms(t) {
		doc, lines, docs := packageDoc(files), 0, 0
		for _, s := range files {
			lines += s.lines
			if s.Doc != nil {
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
		if want := min(lines/250, 20); strings.Count(doc, "\n") < want {
			over[dir] = want - strings.Count(doc, "\n")
		}
	}
	ratchet(t, "package doc", "(Lines that lack.) The package comment is the tour: the main type, its life, where what is; a line for 250 lines of code, at most 20.", over)
}

// The map of docs/architecture.md and the package's doc are where a newcomer looks for a file.
func TestFilesAreOnTheMap(t *testing.T) {
	text := read(t, "docs/architecture.md")
	over := map[string]int{}
	for dir, files := range rooms(t) {
		doc := packageDoc(files)
		for _, s := range files {
			if name := path.Base(s.path); len(files) > 4 && name != "doc.go" && !strings.Contains(text, name) && !strings.Contains(doc, name) {
				over[dir]++
			}
		}
	}
	ratchet(t, "map", "(Files that lack.) A file is named in docs/architecture.md's map or in its package's doc.", over)
}

// Paths that a document names exist (docs/testing.md): files that comments and pages
// name. One without a directory may be anywhere, one with it is below any:
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

func TestLogKeys(t *testing.T) {
	over := map[string]int{}
	for _, s := range house(t) {
		if s.test || !product(s.dir) {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "With", "Log", "Any", "String"}, f.Sel.Name) {
				return true
			}
			for _, a := range call.Args {
				if key, ok := a.(*ast.BasicLit); ok && key.Value == `"err"` {
					over[s.dir]++
				}
			}
			return true
		})
	}
	ratchet(t, "log key", `(Lines that say "err".) One idea has one key, and this one is "error".`, over)
}

func TestReceivers(t *testing.T) {
	over := map[string]int{}
	for dir, files := range rooms(t) {
		names := map[string]map[string]bool{}
		for _, s := range files {
			for _, d := range s.Decls {
				if typ, name := receiver(d); name != "" && name != "_" {
					if names[typ] == nil {
						names[typ] = map[string]bool{}
					}
					names[typ][name] = true
				}
			}
		}
		for typ, names := range names {
			if len(names) > 1 {
				over[dir+" "+typ] = len(names)
			}
		}
	}
	ratchet(t, "receiver", "(Names of one type's receivers.) A type's methods have one receiver, so that a letter means one thing.", over)
}

// receiver returns a method's type and the name of its receiver.
func receiver(d ast.Decl) (typ, name string) {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
		return "", ""
	}
	at := f.Recv.List[0].Type
	for {
		switch x := at.(type) {
		case *ast.StarExpr:
			at = x.X
			continue
		case *ast.IndexExpr:
			at = x.X
			continue
		case *ast.IndexListExpr:
			at = x.X
			continue
		case *ast.Ident:
			typ = x.Name
		}
		return typ, f.Recv.List[0].Names[0].Name
	}
}

func TestNothingEmbedsTheProcess(t *testing.T) {
	over := map[string]int{}
	for dir, files := range rooms(t) {
		for _, s := range files {
			ast.Inspect(s.File, func(n ast.Node) bool {
				if typ, ok := n.(*ast.StructType); ok && dir == "internal/node" {
					for _, f := range typ.Fields.List {
						if star, ok := f.Type.(*ast.StarExpr); ok && len(f.Names) == 0 && fmt.Sprint(star.X) == "Node" {
							over[s.path]++
						}
					}
				}
				return true
			})
		}
	}
	ratchet(t, "embeds the process", "What embeds *Node can reach all of it, and its own fields hide the process's.", over)
}

// One idea has one word: a noun that several packages export means something else in
// each.
func TestNounsHaveOneMeaning(t *testing.T) {
	dirs := map[string]map[string]bool{}
	for dir, files := range rooms(t) {
		for _, s := range files {
			for _, d := range s.Decls {
				group, ok := d.(*ast.GenDecl)
				if !ok || group.Tok != token.TYPE || strings.Contains(dir, "/internal") || !product(dir) || s.Name.Name == "main" {
					continue
				}
				for _, spec := range group.Specs {
					if typ := spec.(*ast.TypeSpec); typ.Name.IsExported() && !typ.Assign.IsValid() {
						if dirs[typ.Name.Name] == nil {
							dirs[typ.Name.Name] = map[string]bool{}
						}
						dirs[typ.Name.Name][dir] = true
					}
				}
			}
		}
	}
	over := map[string]int{}
	for name, in := range dirs {
		if len(in) > 2 && name != "Options" && name != "Stats" { // two may be a role and what fills it
			over[name] = len(in)
		}
	}
	ratchet(t, "noun", "(Packages that export a type of this name.) One word has one meaning.", over)
}

// A line of a page is at most 120 characters long; rows of tables, links and code cannot be broken.
func TestLinesOfPages(t *testing.T) {
	over := map[string]int{}
	for name, text := range files(t, ".md") {
		code := false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if code || strings.HasPrefix(line, "|") || utf8.RuneCountInString(line) <= 121 {
				continue
			}
			if strings.Contains(strings.TrimSpace(line)[:100], " ") {
				over[filepath.ToSlash(name)]++
			}
		}
	}
	ratchet(t, "long lines", "(Lines of more than 120 characters.) A wall of text is not read.", over)
}
