package tidemarktest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/tidemarktest"
)

// What Start starts ends with the test: no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// README: "In your own tests, tidemarktest.Start(t) runs all of Tidemark within the test": its
// test passes as typed.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n```go\n(package like_test\n.*?)```\n").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README shows no test")
	}
	file := filepath.Join(t.TempDir(), "like_test.go")
	if err := os.WriteFile(file, block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-v", file)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestLike") {
		t.Errorf("%v\n%s", err, out)
	}
}

func publish(t *testing.T, c *client.Client, event client.Event) client.Position {
	t.Helper()
	at, err := c.Publish(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// "Tests may run in parallel": one does not see what another counts, and each starts empty.
func TestApart(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			c, _ := tidemarktest.Start(t)
			var at client.Position
			for i := range n + 1 {
				at = publish(t, c, client.Like(uint64(8+i), 62, 7))
			}
			counts, _, err := c.Counts(t.Context(), "post", 62, client.Wait(at))
			if err != nil || counts["like"] != int64(n+1) {
				t.Errorf("%v, %v", counts, err)
			}
		})
	}
}

// StartFile uses "what a configuration file says of what is counted", and neither its data
// directory nor its ports.
func TestStartFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tidemark.yaml")
	text := `
data_dir: ` + filepath.Join(dir, "kept") + `
shards: 16
nats: {url: "nats://nats.example:4222"}
counters: {post: {view: {bits: 8}}}
rules: {view: [{add: post.view, key: post}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, url := tidemarktest.StartFile(t, file)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("events.view", []byte(`{"post":42}`), nats.DefaultTimeout); err != nil {
		t.Fatal(err)
	}
	counts, _, err := c.Counts(t.Context(), "post", 42, client.Wait(client.Acked(1)))
	if err != nil || fmt.Sprint(counts) != "map[view:1]" {
		t.Errorf("%v, %v", counts, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); !os.IsNotExist(err) {
		t.Errorf("the file's data directory: %v", err)
	}
}

// recorded is a test that goes on after it has failed.
type recorded struct {
	testing.TB
	said string
}

func (r *recorded) Helper() {}

func (r *recorded) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A file with a mistake ends the test with the file, the line and what is wrong.
func TestMistake(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tidemark.yaml")
	if err := os.WriteFile(file, []byte("\nrules: {like: [{add: post.lke, key: post}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, ended := &recorded{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		tidemarktest.StartFile(r, file)
	}()
	<-ended
	if !strings.Contains(r.said, file+":2") || !strings.Contains(r.said, "post.lke") {
		t.Errorf("it says %q", r.said)
	}
}
