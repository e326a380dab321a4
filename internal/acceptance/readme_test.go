package acceptance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/walls"
)

// step is a command that README shows at a prompt, and what it says is printed.
type step struct{ command, prints string }

// What README has you type prints what it says: the tour, three more processes, the
// requests over NATS, and the Go program, one after the other on one new node.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := newReadmeReader(t)
	r.node.Start()
	r.node.WaitReady()
	for _, s := range steps(r.section("A tour")) {
		r.expect(s, r.shell(s.command))
	}
	r.moreProcesses(r.block("One process, three, many", "sh"))
	for _, s := range steps(r.section("From any language: NATS and JSON by hand")) {
		if strings.HasPrefix(s.command, "curl ") {
			r.expect(s, r.shell(strings.ReplaceAll(s.command, "http://127.0.0.1:8480", r.node.HTTP)))
			continue
		}
		r.expect(s, r.request(s.command))
		for range 20 { // whichever of the four processes answers
			if strings.HasPrefix(s.command, "nats req tidemark.") {
				r.expect(s, r.request(s.command))
			}
		}
	}
	r.goProgram(r.block("From Go", "go"))
}

type readmeReader struct {
	t    *testing.T
	text string
	node *e2e.Process
	dir  string // where commands are typed
	nc   *nats.Conn
}

func newReadmeReader(t *testing.T) *readmeReader {
	text, err := os.ReadFile(filepath.Join(e2e.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := &readmeReader{t: t, text: string(text), dir: t.TempDir()}
	r.shell(regexp.MustCompile(`(?m)^echo '.*' > tour\.yaml$`).FindString(r.text))
	settings, err := os.ReadFile(filepath.Join(r.dir, "tour.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.node = e2e.Prepare(t, e2e.Setup{Once: true, Settings: string(settings)})
	return r
}

// section returns the text under a heading of the second level.
func (r *readmeReader) section(heading string) string {
	r.t.Helper()
	_, section, found := strings.Cut(r.text, "\n## "+heading+"\n")
	if !found {
		r.t.Fatalf("README has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// block returns the first block in that language of a section, with the addresses
// of this test's node.
func (r *readmeReader) block(heading, language string) string {
	r.t.Helper()
	_, block, found := strings.Cut(r.section(heading), "\n```"+language+"\n")
	if !found {
		r.t.Fatalf("README has no block in %s under %q", language, heading)
	}
	block, _, _ = strings.Cut(block, "\n```")
	return strings.NewReplacer("nats://127.0.0.1:4222", r.node.URL, "data/"+walls.KeyFile, r.node.Key).Replace(block)
}

// steps takes the blocks of a section apart that show a terminal.
func steps(section string) (all []step) {
	for _, block := range regexp.MustCompile("(?s)\n```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for _, text := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, prints, _ := strings.Cut(text, "\n")
			if strings.HasSuffix(command, "<<'EOF'") {
				document, rest, _ := strings.Cut(prints, "\nEOF")
				command, prints = command+"\n"+document+"\nEOF", strings.TrimPrefix(rest, "\n")
			}
			all = append(all, step{command, strings.TrimSuffix(prints, "\n")})
		}
	}
	return all
}

// varying is what differs from run to run: times of day, and how fast an import was.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|[\d.]+m?s, \d+ a second`)

func (r *readmeReader) expect(s step, got string) {
	r.t.Helper()
	got, want := varying.ReplaceAllString(strings.TrimRight(got, "\n"), "…"), varying.ReplaceAllString(s.prints, "…")
	if got != want {
		r.t.Errorf("README: $ %s prints\n%s\nand says it prints\n%s", s.command, got, want)
	}
}

// shell runs a command with the program on the path, and returns what it prints.
func (r *readmeReader) shell(command string) string {
	c := exec.Command("sh", "-c", command)
	c.Dir = r.dir
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(e2e.Binary(r.t))+":"+os.Getenv("PATH"))
	if r.node != nil {
		c.Env = append(c.Env, "NATS_URL="+r.node.URL, "TIDEMARK_NKEY="+r.node.Key)
	}
	out, _ := c.CombinedOutput() // a command may be shown that fails; what it prints is compared
	return string(out)
}

// request does what the nats CLI does with: nats req SUBJECT 'BODY' --raw.
func (r *readmeReader) request(command string) string {
	r.t.Helper()
	words := regexp.MustCompile(`^nats req (\S+) '(.*)' --raw$`).FindStringSubmatch(command)
	if words == nil {
		r.t.Fatalf("README types %q, which this test cannot", command)
	}
	if r.nc == nil {
		r.nc = r.node.ConnectPlain()
	}
	reply, err := r.nc.Request(words[1], []byte(words[2]), 10*time.Second)
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return string(reply.Data)
}

// moreProcesses starts the processes that README adds, and waits until each holds its share.
func (r *readmeReader) moreProcesses(block string) {
	r.t.Helper()
	var prepare []string
	for line := range strings.Lines(regexp.MustCompile(`127\.0\.0\.1:848\d`).ReplaceAllString(block, "127.0.0.1:0")) {
		if strings.HasPrefix(line, "printf ") || strings.Contains(line, "cp tour.yaml") {
			prepare = append(prepare, line)
		}
	}
	r.shell(strings.Join(prepare, ""))
	for _, name := range []string{"b", "c", "thin"} {
		r.spawn(name + ".yaml")
	}
	// 85 to 115 in a hundred of two thirds of the shards: within that nothing is moved.
	share := regexp.MustCompile(`(?m)^\S+ +up +route,hold,answer .* (3[7-9]|4\d) +0 +\d+ +\d+ +\S+$`)
	thin := regexp.MustCompile(`(?m)^\S+ +up +answer `)
	var nodes string
	for end := time.Now().Add(e2e.Patience); ; time.Sleep(200 * time.Millisecond) {
		if nodes = r.shell("tidemark nodes"); len(share.FindAllString(nodes, -1)) == 3 && thin.MatchString(nodes) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("three nodes do not share the 64 shards:\n%s", nodes)
		}
	}
}

// spawn starts a process with a configuration that README has made.
func (r *readmeReader) spawn(config string) {
	r.t.Helper()
	c := exec.Command(e2e.Binary(r.t), "run", "--config", config)
	c.Dir = r.dir
	log, err := os.Create(filepath.Join(r.dir, config+".log"))
	if err != nil {
		r.t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		log.Close()
	})
}

// goProgram runs README's program twice: the second like is there already.
func (r *readmeReader) goProgram(program string) {
	r.t.Helper()
	source, binary := filepath.Join(r.dir, "like.go"), filepath.Join(r.dir, "like")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := e2e.Build(binary, source); err != nil {
		r.t.Fatal(err)
	}
	prints := regexp.MustCompile(`fmt\.Println\(.*// (.*)`).FindStringSubmatch(program)
	if prints == nil {
		r.t.Fatal("README does not say what the Go program prints")
	}
	for range 2 {
		out, err := exec.CommandContext(context.Background(), binary).CombinedOutput()
		if err != nil {
			r.t.Fatalf("%v: %s", err, out)
		}
		if got := strings.TrimSpace(string(out)); got != prints[1] {
			r.t.Errorf("README's Go program prints %q, expected %q", got, prints[1])
		}
	}
}
