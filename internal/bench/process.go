package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const startWithin = 5 * time.Minute // for a start and what comes with it

// child is a process of this run, with its output in a file.
type child struct {
	cmd   *exec.Cmd
	log   string        // path
	begun time.Time     // when it was started
	done  chan struct{} // closed when it has ended
}

// children are all that were started, so that none outlives the run.
type children struct {
	mu   sync.Mutex
	all  []*child
	over bool // nothing more is started
}

// start starts a program; log is where its output is added.
func (c *children) start(log, program string, args ...string) *child {
	out := must(os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer out.Close() // the child has its own
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	p := &child{cmd: cmd, log: log, begun: time.Now(), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		check(errors.New("the run is over"))
	}
	check(cmd.Start())
	c.all = append(c.all, p)
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p
}

// killAll ends what still runs, for good.
func (c *children) killAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, p := range c.all {
		p.end(syscall.SIGKILL)
	}
}

// end sends a signal and waits for the process to end.
func (p *child) end(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.done
}

// ended is an error, with the end of what the process wrote, once it has gone.
func (p *child) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended: %s\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, text[max(0, len(text)-1000):])
}

// until tries again and again, as long as the process lives.
func (p *child) until(what string, every time.Duration, try func() error) {
	for deadline := time.Now().Add(startWithin); ; time.Sleep(every) {
		err := try()
		if err == nil {
			return
		}
		if ended := p.ended(); ended != nil || time.Now().After(deadline) {
			check(fmt.Errorf("%s: %w", what, errors.Join(err, ended)))
		}
	}
}

// myself starts this program as a child of its own (beChild), and waits until somebody
// listens at the address that it is given before its arguments. Its output is in dir.
func (b *bench) myself(part, dir string, args ...string) (p *child, address string) {
	address = freeAddress()
	p = b.children.start(filepath.Join(dir, "log"), must(os.Executable()), append([]string{part, address}, args...)...)
	p.until("wait for "+part, 5*time.Millisecond, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	return p, address
}

// freeAddress is a port of 127.0.0.1 that nobody listens on.
func freeAddress() string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}
