package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// readyWithin bounds the start of a node. The first start of three servers
	// takes some ten seconds: they elect a leader for all, and one for each stream.
	readyWithin = 2 * time.Minute
	readyEvery  = 200 * time.Millisecond
	// waitTold paces the line of a start that takes long.
	waitTold = 4 * time.Second
	// stopWithin bounds a stop in order. What takes longer is killed.
	stopWithin = 20 * time.Second
	// logShown is how much of a log's end is shown of a node that has failed.
	logShown = 2 << 10
)

// fleet is the nodes' processes. One goroutine at a time may call its methods.
type fleet struct {
	o     options
	all   layout
	out   *printer
	nodes map[string]*process // those that were started
	ends  chan *process       // those that have ended; a node is started again after its end was received
}

// process is one start of a node.
type process struct {
	*place
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has; cmd.ProcessState says how
}

func newFleet(o options, all layout, out *printer) *fleet {
	return &fleet{
		o: o, all: all, out: out, nodes: make(map[string]*process),
		ends: make(chan *process, len(all)), // each node runs once at a time
	}
}

// open starts the nodes that hold, and when they are ready the one that only
// answers.
func (f *fleet) open(ctx context.Context) error {
	f.out.say("Three nodes start, with a NATS server in each. The first time it takes some ten seconds until these agree on leaders.")
	var holders, thin []*place
	for _, p := range f.all {
		if p.thin {
			thin = append(thin, p)
		} else {
			holders = append(holders, p)
		}
	}
	for _, group := range [][]*place{holders, thin} {
		for _, p := range group {
			if _, err := f.start(p); err != nil {
				return err
			}
		}
		if err := f.untilReady(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// start starts a node, in a process group of its own: Ctrl-C in the terminal is
// this process's to pass on, in order.
func (f *fleet) start(p *place) (*process, error) {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &process{place: p, cmd: f.command(p), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("node %s does not start: %w", p.node, err)
	}
	f.nodes[p.node] = c
	go func() {
		_ = c.cmd.Wait() // ProcessState has it
		close(c.ended)
		f.ends <- c
	}()
	return c, nil
}

// command is how a node is started. --demo-node keeps made-up numbers apart from
// real ones.
func (f *fleet) command(p *place) *exec.Cmd {
	return exec.Command(f.o.binary, "run", "--demo-node", "--config", p.config())
}

// gone says whether it has ended.
func (c *process) gone() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// untilReady returns when the nodes say that they are ready. One that ends is
// an error.
func (f *fleet) untilReady(ctx context.Context, nodes []*place) error {
	began, told := time.Now(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		waits := ""
		for _, p := range nodes {
			if why := p.unready(ctx); why != "" {
				waits = cmp.Or(waits, p.node+": "+why)
			}
		}
		if waits == "" {
			return nil
		}
		if time.Since(told) >= waitTold {
			told = time.Now()
			f.out.say("  %2.0f s  %s", time.Since(began).Seconds(), waits)
		}
		select {
		case c := <-f.ends:
			return fmt.Errorf("node %s has ended while it started (%s):\n%s\nits log: %s", c.node, c.cmd.ProcessState, c.logEnd(), c.log())
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %s", readyWithin, waits)
		case <-time.After(readyEvery):
		}
	}
}

// unready is why a node is not ready; "" when it is.
func (p *place) unready(ctx context.Context) string {
	status, body, err := fetch(ctx, "http://"+p.http+"/readyz")
	switch {
	case err != nil:
		return "does not answer yet"
	case status != http.StatusOK:
		first, _, _ := strings.Cut(body, "\n")
		return first
	}
	return ""
}

func fetch(ctx context.Context, url string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	b, err := io.ReadAll(io.LimitReader(reply.Body, 4<<10))
	return reply.StatusCode, string(b), err
}

// logEnd is the last line of the node's log.
func (p *place) logEnd() string {
	f, err := os.Open(p.log())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logShown), io.SeekStart)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// keep says when a node ends, and starts it again, until ctx ends.
func (f *fleet) keep(ctx context.Context) error {
	due := make(chan *place, len(f.all)) // one for each node that has ended
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-f.ends:
			f.out.at("%s. %s", c.how(), f.next(c.place))
			if f.o.restart > 0 {
				time.AfterFunc(f.o.restart, func() { due <- c.place })
			}
		case p := <-due:
			c, err := f.start(p)
			if err != nil {
				return err
			}
			f.out.at("node %s is started again, pid %d", p.node, c.cmd.Process.Pid)
		}
	}
}

// how says how the process ended.
func (c *process) how() string {
	text := fmt.Sprintf("node %s (pid %d) has ended: %s", c.node, c.cmd.Process.Pid, c.cmd.ProcessState)
	if c.cmd.ProcessState.ExitCode() > 0 { // by itself: it says why
		text += "; its log ends with: " + c.logEnd()
	}
	return text
}

// next says what comes after the end of a node.
func (f *fleet) next(p *place) string {
	if f.o.restart > 0 {
		return fmt.Sprintf("It starts again in %s", f.o.restart)
	}
	return "To start it again, and then to stop it yourself: " + strings.Join(f.command(p).Args, " ")
}

// stop ends all processes in order, first the one that only answers, and kills
// what does not end. A second Ctrl-C kills at once.
func (f *fleet) stop() {
	var holders, thin []*process
	for _, c := range f.nodes {
		switch {
		case c.gone():
		case c.thin:
			thin = append(thin, c)
		default:
			holders = append(holders, c)
		}
	}
	if len(thin)+len(holders) > 0 {
		f.out.say("The nodes stop.")
	}
	hurry := make(chan os.Signal, 1)
	signal.Notify(hurry, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(hurry)
	for _, group := range [][]*process{thin, holders} {
		for _, c := range group {
			_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		}
		for _, c := range group {
			f.end(c, hurry)
		}
	}
}

// end returns when the process has ended.
func (f *fleet) end(c *process, hurry <-chan os.Signal) {
	select {
	case <-c.ended:
		if !c.cmd.ProcessState.Success() {
			f.out.say("node %s did not stop in order (%s): %s", c.node, c.cmd.ProcessState, c.logEnd())
		}
		return
	case <-hurry:
		f.out.say("node %s is killed", c.node)
	case <-time.After(stopWithin):
		f.out.say("node %s does not stop within %s and is killed; its log: %s", c.node, stopWithin, c.log())
	}
	_ = c.cmd.Process.Kill() // but it ends just now
	<-c.ended
}

// printer writes lines, of several goroutines.
type printer struct {
	mu sync.Mutex
	to io.Writer
}

func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format+"\n", args...)
}

// at says it with the time.
func (p *printer) at(format string, args ...any) {
	p.say("%s  "+format, append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
