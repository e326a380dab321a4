package badges_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// chromium is a browser without a window. It is driven by the DevTools
// protocol over a pair of pipes (--remote-debugging-pipe): JSON messages with
// a NUL behind each, in by its file 3 and out by its file 4. That takes no
// websocket, and no port.
type chromium struct {
	t       testing.TB
	to      io.Writer
	session string

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	ended   error
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// browse starts a browser on an empty page. Without one installed the test is
// skipped; under CI it fails.
func browse(t testing.TB) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no chromium, and CI=true: apt-get install --no-install-recommends chromium")
		}
		t.Skip("no chromium: the page is not tried in a browser (apt-get install --no-install-recommends chromium)")
	}
	in, toBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromBrowser, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--window-size=440,760", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	c.ExtraFiles = []*os.File{in, out}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a browser is many processes
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &chromium{t: t, to: toBrowser, waiting: map[int]chan reply{}}
	done := make(chan struct{})
	go func() { defer close(done); b.listen(fromBrowser) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		toBrowser.Close()
		<-done
		fromBrowser.Close()
	})
	var target struct{ TargetID string }
	b.ask("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.ask("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	return b
}

func (b *chromium) listen(from io.Reader) {
	var err error
	for r := bufio.NewReader(from); err == nil; {
		var line []byte
		if line, err = r.ReadBytes(0); err != nil {
			break
		}
		var m reply
		if err = json.Unmarshal(line[:len(line)-1], &m); err == nil && m.ID != 0 {
			b.mu.Lock()
			if to := b.waiting[m.ID]; to != nil {
				to <- m
				delete(b.waiting, m.ID)
			}
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = fmt.Errorf("the browser is gone: %w", err)
	for _, to := range b.waiting {
		close(to)
	}
}

// ask sends a command and waits for its result.
func (b *chromium) ask(method string, params map[string]any, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *chromium) try(method string, params map[string]any, result any) error {
	to := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	command := map[string]any{"id": b.last, "method": method, "params": params}
	if b.ended == nil {
		b.waiting[b.last] = to
	} else {
		close(to)
	}
	b.mu.Unlock()
	if b.session != "" {
		command["sessionId"] = b.session
	}
	body, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(body, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-to:
		switch {
		case !ok:
			return b.ended
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-time.After(2 * time.Minute):
		return errors.New("no answer in 30 s")
	}
}

// goTo opens a page.
func (b *chromium) goTo(url string) {
	b.t.Helper()
	var done struct{ ErrorText string }
	b.ask("Page.navigate", map[string]any{"url": url}, &done)
	if done.ErrorText != "" {
		b.t.Fatalf("%s: %s", url, done.ErrorText)
	}
}

// eval is the value of an expression in the page.
func (b *chromium) eval(expression string) any {
	b.t.Helper()
	var v struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.ask("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &v)
	if e := v.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	return v.Result.Value
}

// until waits for an expression to have a value.
func (b *chromium) until(expression string, want any) {
	b.t.Helper()
	var got any
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
		if got = b.eval(expression); got == want {
			return
		}
	}
	b.t.Fatalf("%s is %v, want %v; the page:\n%v", expression, got, want, b.eval(`document.body.innerText`))
}

// click presses the mouse in the middle of an element, as a user does.
func (b *chromium) click(selector string) {
	b.t.Helper()
	var at struct{ Result struct{ Value []float64 } }
	b.ask("Runtime.evaluate", map[string]any{"returnByValue": true, "expression": fmt.Sprintf(
		`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`, selector)}, &at)
	if len(at.Result.Value) != 2 {
		b.t.Fatalf("nothing to click: %s", selector)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.ask("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.Result.Value[0], "y": at.Result.Value[1], "button": "left", "clickCount": 1}, nil)
	}
}

// picture writes what the page looks like once nothing moves.
func (b *chromium) picture(path string) {
	b.t.Helper()
	b.eval(`Promise.all(document.getAnimations().map(a => a.finished)).then(() => 0)`)
	var shot struct{ Data string }
	b.ask("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(path, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
