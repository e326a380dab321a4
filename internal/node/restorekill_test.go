//go:build linux

package node

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/nodetest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

var restoreKills = flag.Int("restore.kills", 14, "how often TestRestoreKilled kills")

// restoreEnv has a test binary restore, as its value says.
const restoreEnv = "TIDEMARK_TEST_RESTORE"

func init() { children[restoreEnv] = beRestorer }

// restorer is a restore in a process of its own, which can be killed.
type restorer struct {
	Dir, From, Archive string
	At                 pipeline.Position
}

func beRestorer(text string) error {
	var is restorer
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		return err
	}
	_, err := Restore(contextOfSignals(), is.config(), is.options())
	return err
}

func (r *restorer) config() *config.Config {
	c := nodetest.EachLikeCounts()
	c.DataDir, c.HTTP.Listen, c.NATS.Listen, c.Shards = r.Dir, "127.0.0.1:0", "127.0.0.1:0", 4
	return c
}

func (r *restorer) options() RestoreOptions {
	return RestoreOptions{From: r.From, At: backup.Point{Position: r.At}, Archive: r.Archive, Logger: silent}
}

// kill begins the restore and kills it once so many things have happened to the files
// of its directory, or a certain one; 0 and "": it is not killed. It returns how many
// had, and whether it came to its end.
func (r *restorer) kill(t *testing.T, at int, step string) (seen int, done bool) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), restoreEnv+"="+string(text))
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	events := watch(t, r.Dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	for {
		select {
		case now := <-events:
			if seen++; seen == at || now == step {
				_ = c.Process.Kill()
			}
			continue
		case err = <-over:
		case <-time.After(e2e.Patience):
			_ = c.Process.Kill()
			t.Fatal("a restore does not come to its end")
		}
		if err != nil && !strings.Contains(err.Error(), "killed") {
			t.Fatalf("a restore failed: %v\n%s", err, said.String())
		}
		return seen, err == nil
	}
}

// The steps by which a restore becomes whole, and some before.
var restoreSteps = []string{"made " + datadir.RestoringFile, "made " + datadir.BadgerDir, "made " + datadir.MarkerFile + kit.NewEnd, "moved " + datadir.MarkerFile, "removed " + datadir.RestoringFile}

// watch reports each file that is made, written, moved or removed in a directory and
// those below it.
func watch(t *testing.T, dir string) <-chan string {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	const mask = syscall.IN_CREATE | syscall.IN_CLOSE_WRITE | syscall.IN_MOVED_TO | syscall.IN_DELETE
	paths := map[int32]string{}
	add := func(path string) {
		if wd, err := syscall.InotifyAddWatch(fd, path, mask); err == nil { // it may be gone
			paths[int32(wd)] = path
		}
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			add(path)
		}
		return nil
	})
	f := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { f.Close() })
	events := make(chan string, 1<<12)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := f.Read(b)
			if err != nil {
				return
			}
			for left := b[:n]; len(left) >= syscall.SizeofInotifyEvent; {
				wd, what, bytes := int32(binary.NativeEndian.Uint32(left)), binary.NativeEndian.Uint32(left[4:]), binary.NativeEndian.Uint32(left[12:])
				name := strings.TrimRight(string(left[syscall.SizeofInotifyEvent:][:bytes]), "\x00")
				left = left[syscall.SizeofInotifyEvent+int(bytes):]
				if what&syscall.IN_CREATE != 0 && what&syscall.IN_ISDIR != 0 {
					add(filepath.Join(paths[wd], name))
				}
				kind := "written"
				switch {
				case what&syscall.IN_CREATE != 0:
					kind = "made"
				case what&syscall.IN_MOVED_TO != 0:
					kind = "moved"
				case what&syscall.IN_DELETE != 0:
					kind = "removed"
				}
				select {
				case events <- kind + " " + name:
				default: // nobody listens any more
				}
			}
		}
	}()
	return events
}

// left looks at what a killed restore has left: nothing of it, a half that says so, or
// all.
func (r *restorer) left(t *testing.T) (whole bool) {
	t.Helper()
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(r.Dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	if there(datadir.RestoringFile) {
		n, err := Start(t.Context(), r.config(), Options{Logger: silent})
		if err == nil {
			_ = n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "run 'tidemark restore' again") {
			t.Fatalf("a start on half a restore: %v", err)
		}
		return false
	}
	var m datadir.Marker
	if raw, err := os.ReadFile(filepath.Join(r.Dir, datadir.MarkerFile)); err == nil {
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
	}
	if whole = m.Restored != nil; !whole && there(datadir.BadgerDir) {
		t.Fatal("there are counts, and nothing says that they are half restored, or whole")
	}
	return whole
}

// docs/decisions/0027-backups.md: "While it works the directory has a file `restoring`,
// which only another restore takes": a restore that is killed between any two things that
// it does to files leaves what a start refuses and another restore makes whole, or what
// is whole, or nothing; in a new directory, and in one of a node that has lost what it
// had counted.
func TestRestoreKilled(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	c.Checkpoint.Interval = 10 * time.Millisecond
	n := s.Start(c)
	s.Ready(n)
	to, dir := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "archive")
	s.Asks("get", `{"counter":"post","ids":[1],"min_position":"`+bustle(s, r, 30)+`","timeout_ms":20000}`, `"rows"`)
	s.backup(to, 0)
	want := everything(t, s.NC, bustle(s, r, 6))
	bustle(s, r, 4)
	if last := s.archive(n, to, dir); last != 40 {
		t.Fatalf("the archive ends with %d", last)
	}
	s.Stop(n)

	begin := func(node bool) *restorer {
		is := &restorer{Dir: t.TempDir(), From: to, Archive: dir, At: pipeline.EndOf(36)}
		if node { // that was there before, and is called so by others
			d, err := datadir.Open(is.Dir, "was-here", false)
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
		}
		return is
	}
	ends := func(is *restorer, node bool) {
		t.Helper()
		d, err := datadir.Open(is.Dir, "", false)
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		if got := d.Marker.Restored; got == nil || got.Position != is.At || node && d.Marker.Node != "was-here" {
			t.Fatalf("the directory says %+v", d.Marker)
		}
		if _, err := Restore(t.Context(), is.config(), is.options()); err == nil || !strings.Contains(err.Error(), "has counts") {
			t.Fatalf("restored over what is whole: %v", err)
		}
		restored := s.Start(is.config())
		same(t, "restored", everything(t, restored.nc, ""), want)
		s.Stop(restored)
	}
	is := begin(false)
	all, done := is.kill(t, 0, "")
	if !done || all < 10 {
		t.Fatalf("a restore that nobody kills has %d steps, done %v", all, done)
	}
	is, half, untouched, whole := begin(true), 0, 0, 0
	node := true
	for round := range *restoreKills {
		at, step := 1+r.IntN(all), ""
		switch {
		case round < len(restoreSteps)*2:
			at, step = 0, restoreSteps[len(restoreSteps)-1-round%len(restoreSteps)]
		case round%3 == 0:
			at = 1 + r.IntN(5)
		}
		_, done = is.kill(t, at, step)
		switch w := is.left(t); {
		case done && !w:
			t.Fatalf("round %d: it says that it is done, and it is not", round)
		case w:
			whole++
			if whole <= 2 {
				ends(is, node)
			}
			node = !node
			is = begin(node)
		default:
			if _, err := os.Stat(filepath.Join(is.Dir, datadir.RestoringFile)); err == nil {
				half++
			} else {
				untouched++
			}
		}
	}
	if _, err := Restore(t.Context(), is.config(), is.options()); err != nil {
		t.Fatal(err)
	}
	ends(is, node)
	t.Logf("%d steps; killed %d times amid, %d times before, %d times it was whole", all, half, untouched, whole)
	if half < *restoreKills/3 {
		t.Errorf("only %d of %d kills hit a restore at work", half, *restoreKills)
	}
}
