package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// clock is what a process's wall clock is ahead by: a file that the process
// looks at. To step the machine's own clock is not a test's to do, and what
// intercepts calls of the C library does not reach Go.
type clock struct {
	path  string
	ahead time.Duration
}

// clockVariable names the file in the process's environment.
const clockVariable = "SOAK_CLOCK"

// clockLook is how often a process looks at its file.
const clockLook = 20 * time.Millisecond

func newClock(path string) *clock { return &clock{path: path} }

func (c *clock) env() []string { return []string{clockVariable + "=" + c.path} }

// set steps the clock and returns when the process has seen it, if it runs.
func (c *clock) set(t testing.TB, ahead time.Duration) {
	t.Helper()
	c.ahead = ahead
	seconds := strconv.FormatInt(int64(ahead/time.Second), 10)
	if err := os.WriteFile(c.path+".new", []byte(seconds), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.path+".new", c.path); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * clockLook)
}

// steppable gives go build the flags for programs whose wall clock can be
// stepped: package time gets a Now that adds what the file says, and each main
// a goroutine that reads it. Nothing in the repository changes. Timers and the
// monotonic clock stay as they are, as when somebody sets a machine's clock.
func steppable(dir string, mains ...string) (flags []string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return nil, err
	}
	patched := strings.Replace(string(source), clockSeam, clockSeam+"\tsec += stepped.Load()\n", 1)
	if patched == string(source) {
		return nil, fmt.Errorf("this Go's time.Now is not the one that is known here")
	}
	replace := map[string]string{
		filepath.Join(std, "time.go"):    filepath.Join(dir, "time.go"),
		filepath.Join(std, "stepped.go"): filepath.Join(dir, "stepped.go"),
	}
	for _, main := range mains {
		replace[filepath.Join(e2e.Root(), main, "stepped.go")] = filepath.Join(dir, "main.go")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"time.go": patched, "stepped.go": clockTime, "main.go": clockMain, "overlay.json": string(overlay),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return []string{"-overlay", filepath.Join(dir, "overlay.json")}, nil
}

const clockSeam = `func Now() Time {
	sec, nsec, mono := runtimeNow()
`

const clockTime = `package time

import "sync/atomic"

var stepped atomic.Int64

// Step sets how many seconds the wall clock is ahead.
func Step(seconds int64) { stepped.Store(seconds) }
`

const clockMain = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	look := func() {
		text, _ := os.ReadFile(os.Getenv("` + clockVariable + `"))
		if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			time.Step(seconds)
		}
	}
	look()
	go func() {
		for {
			time.Sleep(20 * time.Millisecond)
			look()
		}
	}()
}
`
