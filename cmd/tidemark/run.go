package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node"
)

type runCommand struct {
	Demo bool `xor:"demo" help:"With a small live community of made-up users, in a data directory of its own."`
	// DemoNode is for examples/cluster.sh. The community lives on the one that only answers.
	DemoNode bool `hidden:"" xor:"demo" help:"One of several nodes of a demo: with the page of badges, in a data directory for made-up numbers."`
	settings
}

func (runCommand) Help() string {
	return `Runs until SIGTERM or SIGINT, then stops in order: no more work, a last checkpoint, close. A second signal ends the process at once. Killing it at any moment loses nothing and counts nothing twice.

Without a configuration it brings a NATS server of its own, on 127.0.0.1:4222, and keeps everything under ./data.

EXAMPLE

    tidemark run
    tidemark run --config /etc/tidemark.yaml
    tidemark run --demo`
}

func (r *runCommand) Run(t *terminal) error {
	c, _, err := r.load()
	if err != nil {
		return err
	}
	if r.Demo {
		if err := demoConfig(c); err != nil {
			return err
		}
	}
	defer runtime.KeepAlive(ballast())
	boundMemory(c)
	collectSooner()
	processors := runtime.GOMAXPROCS(0)
	setThreads(processors)
	ctx := untilSignal()
	o := node.Options{Version: readBuild().Version, Demo: r.Demo || r.DemoNode, Processors: processors, Logger: logger(t.err, c.Log)}
	if o.Demo {
		o.Pages = demoPages(o.Logger)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // one that comes while it starts ends nothing
	n, err := node.Start(ctx, c, o)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		o.Logger.Info("tidemark: stopped before it had started", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	running, stop := untilFailed(ctx, n)
	defer stop()
	go reloadAtHangup(running, n, hangups, o.Logger)
	if r.Demo || r.DemoNode && c.Thin() {
		err = playDemo(running, t, c, n)
	} else {
		<-running.Done()
	}
	if failed := n.Failure(); failed != nil {
		return errors.Join(failed, closeWithin(failedCloseMax, n.Close))
	}
	if closed := n.Close(); err == nil && closed != nil {
		err = fmt.Errorf("stopped, but not in order: %w", closed)
	}
	return err
}

// failedCloseMax bounds how long a node that cannot go on takes to close: a server that hangs
// cannot be closed either. What is not closed loses nothing, as after kill -9.
const failedCloseMax = 10 * time.Second

// closeWithin closes, or says that it took too long. What closing itself says is not
// worth more words beside why the node could not go on.
func closeWithin(most time.Duration, closes func() error) error {
	closed := make(chan struct{})
	go func() {
		_ = closes()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(most):
		return fmt.Errorf("not closed within %s, as after kill -9", most)
	}
}

// untilFailed ends with ctx, or when the node cannot go on.
func untilFailed(ctx context.Context, n *node.Node) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-n.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// boundMemory has the garbage collector work harder where the heap would grow
// past the budget and what config.yaml says of the rest, but for what is not
// Go's. It is no hard limit; GOMEMLIMIT in the environment has the last word.
func boundMemory(c *config.Config) {
	const notGo = 32 * config.MiB
	most := c.Memory.Budget + c.Memory.Budget/4 + 256*config.MiB - notGo
	reserveHugePages(int(most))
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(most + heapFloor))
	}
}

// garbageShare is how much garbage gathers, in percent of what is in use, before it is
// collected: half of what Go has by default. Rows have no pointers, so that collecting
// costs little, and less than memory that the process has not had before.
const garbageShare = 50

// collectSooner has the collector heed garbageShare. GOGC in the environment has the last
// word.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
}

// heapFloor is what counts as in use at least. A process that only answers keeps a few
// MiB and makes as much garbage every ten milliseconds: a quarter of its processor time
// went into collecting it.
const heapFloor = 64 * config.MiB

// ballast counts as heap as long as somebody has it, and is never written to, so
// that it takes no memory.
func ballast() []byte { return make([]byte, heapFloor) }

// threadsPerProcessor is how many threads may run Go for each processor.
const threadsPerProcessor = 4

// threads is how many threads should run Go, more than there are processors.
// While as many goroutines compute as there are threads, Go lets each go on for
// 10 ms before it looks for others, and a small request passes six goroutines on
// its way through the server and back. With threads to spare the operating
// system chooses, which at once prefers the one that has slept. Not so where a
// quota leaves fewer processors than the machine has: more threads would only
// use it up sooner, and then all stand still. GOMAXPROCS in the environment has
// the last word.
func threads(processors, machine int, environment string) int {
	if environment != "" || processors != machine {
		return processors
	}
	return threadsPerProcessor * processors
}

// setThreads has as many threads run Go as threads says.
func setThreads(processors int) {
	if n := threads(processors, runtime.NumCPU(), os.Getenv("GOMAXPROCS")); n != processors {
		runtime.GOMAXPROCS(n)
	}
}

// untilSignal ends with the first signal. The second ends the process.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx
}

// demoDir is where the demo's numbers are kept: made-up ones and real ones
// never mix.
func demoDir(dir string) string { return filepath.Clean(dir) + "-demo" }

// reloadAtHangup has SIGHUP read again what may change while the node runs.
func reloadAtHangup(ctx context.Context, n *node.Node, hangups <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			log.Info("tidemark: SIGHUP: the file of api.tokens is read again, if there is one; what else the configuration says takes a new start")
			n.Reload()
		}
	}
}

func demoConfig(c *config.Config) error {
	if c.NATS.URL != "" {
		return usage("--demo makes events up, and will not publish them to %s: it runs with an embedded server only (nats.url: \"\")", kit.Address(c.NATS.URL))
	}
	if c.NATS.Cluster.On() {
		return usage("--demo makes events up, and will not publish them to a cluster: it runs with an embedded server on its own (nats.cluster.listen: \"\")")
	}
	c.DataDir = demoDir(c.DataDir)
	if len(c.Channels) == 0 {
		c.Channels = []config.Channel{{Name: "games", Kind: config.KindDot}} // the community lights it
	}
	return nil
}
