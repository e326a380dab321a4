package main

import (
	"context"
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
func (c *children) start(log string, env []string, program string, args ...string) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	p := &child{cmd: cmd, log: log, begun: time.Now(), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errors.New("the run is over")
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.all = append(c.all, p)
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
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

// ended reports that the process has gone, with the end of what it said.
func (p *child) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	said, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended: %s\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, said[max(0, len(said)-1000):])
}

// until tries again and again, as long as the process lives.
func (p *child) until(ctx context.Context, what string, every time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ended := p.ended(); ended != nil || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, ended, ctx.Err()))
		}
		time.Sleep(every)
	}
}

// freePorts are ports of 127.0.0.1 that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all together: the same is not given twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
