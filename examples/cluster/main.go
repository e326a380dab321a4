// Cluster is an example: a whole system of Tidemark on one machine, to look at
// and to kill parts of. `make cluster` runs it.
//
//	nodes a, b, c   route, hold and answer. Their embedded NATS servers are one
//	                cluster, streams have three copies, shards two holders
//	node thin       only answers, and holds nothing
//
// The four are processes of their own, `tidemark run` with configurations that are
// written here (layout.go), and children of this one (fleet.go). A community of made-up
// users lives on them (cmd/tidemark/demo). Beside it a watcher asks without a pause,
// and a line every five seconds says what came of it (watch.go). What ends by itself is
// started again; Ctrl-C stops all in order.
//
// Everything is kept in one directory, which the next run finds again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// options are the command line.
type options struct {
	binary    string        // the program tidemark
	dir       string        // of configurations, logs and data
	freePorts bool          // any that are free, instead of those that every run has
	restart   time.Duration // after which a node that has ended is started again; 0: it is not
	rate      int           // events a second of the community
}

func main() {
	var o options
	flag.StringVar(&o.binary, "tidemark", "bin/tidemark", "the program, as 'make build' makes it")
	flag.StringVar(&o.dir, "dir", "data-cluster", "directory of configurations, logs and data")
	flag.BoolVar(&o.freePorts, "free-ports", false, "take any free ports instead of the usual ones")
	flag.DurationVar(&o.restart, "restart", 10*time.Second, "how long a node that has ended stays away; 0: until you start it")
	flag.IntVar(&o.rate, "rate", 200, "events a second of the community")
	flag.Parse()
	if flag.NArg() > 0 || o.restart < 0 || o.rate < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run has the nodes live until ctx ends. No process is left when it returns.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.binary, err = exec.LookPath(o.binary); err != nil {
		return fmt.Errorf("the program tidemark is not there, 'make build' makes it: %w", err)
	}
	lock, err := lockDir(o.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	l, err := newLayout(o.dir, o.freePorts)
	if err != nil {
		return err
	}
	if err := l.write(); err != nil {
		return err
	}
	p := &printer{to: out}
	f := newFleet(o, l, p)
	defer f.stop()
	err = f.open(ctx)
	if err == nil {
		err = live(ctx, o, f)
	}
	if ctx.Err() != nil {
		return nil // Ctrl-C, at whatever moment
	}
	return err
}

// lockDir makes the directory and takes it for this process.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "LOCK"))
	switch taken, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be locked: %w", dir, err)
	case !taken:
		return nil, errors.New(dir + " is in use by another run of this: stop it, or choose another -dir")
	}
	return lock, nil
}
