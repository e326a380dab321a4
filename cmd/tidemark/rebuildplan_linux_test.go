package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// console is a terminal at which somebody types an answer.
func console(t *testing.T, answer string) *os.File {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	n := uint32(0) // first that it is not locked, then its number
	for _, what := range []uintptr{syscall.TIOCSPTLCK, syscall.TIOCGPTN} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keys.Fd(), what, uintptr(unsafe.Pointer(&n))); errno != 0 {
			t.Fatal(errno)
		}
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if _, err := keys.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	return screen
}

// docs/contract.md: "`rebuild` shows what it changes, reads, needs and deletes, and asks
// on a terminal"
func TestRebuildAsksOnATerminal(t *testing.T) {
	n := shared(t)
	next := file(t, viewConfig)
	typed := func(answer string) (r result) {
		t.Helper()
		c := exec.CommandContext(t.Context(), binary, append(n.flags(), "rebuild", "--config", next)...)
		c.Env = environ
		var out, errs bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = console(t, answer), &out, &errs
		if err := c.Run(); c.ProcessState == nil {
			t.Fatal(err)
		}
		return result{out: out.String(), err: errs.String(), code: c.ProcessState.ExitCode()}
	}
	before := n.good("rebuild", "--status")
	for answer, want := range map[string]struct {
		code int
		end  string
	}{"\n": {1, "nothing was begun"}, "\x04": {2, "add --yes"}} {
		r := typed(answer)
		if r.code != want.code || !strings.Contains(r.err, "adds column post.view\n") || !strings.Contains(r.err, "Begin? [y/N]") ||
			!strings.Contains(r.err, want.end) {
			t.Errorf("%q: %+v", answer, r)
		}
	}
	n.want(strings.TrimSpace(before), "rebuild", "--status")
	if r := typed("y\n"); r.code != 0 || !strings.Contains(r.out, " is building: ") {
		t.Errorf("%+v", r)
	}
	n.do("rebuild", "--abort")
}
