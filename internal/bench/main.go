// Bench measures Tidemark against its targets, and prints one table: each
// target, the figure, what was measured beside it in the same run on the same
// machine, and whether the target is met.
//
//	go run ./internal/bench             some minutes
//	go run ./internal/bench -full       large sizes: an hour, 16 GiB of memory, 60 GB of disk
//	go run ./internal/bench -only visible,polls
//
// What runs is the real thing: the program in a process of its own with its
// embedded server, asked and fed over NATS as users do; or, where a line says
// so, a node within this process. Redis is started and stopped by the run, on
// a free port, without persistence.
//
// Machines are noisy: Tidemark and what stands beside it take turns, a figure
// is the median of its rounds, and the table shows the spread. Where there is
// one round only, there is no spread.
//
// One file holds one or two lines of the table; docs/performance.md says what
// each measures.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	beChild(os.Args)
	full := flag.Bool("full", false, "large sizes")
	markdown := flag.Bool("markdown", false, "print the table as Markdown")
	only := flag.String("only", "", "measure these alone, commas between: "+strings.Join(names(), ", "))
	flag.Parse()
	size := short
	if *full {
		size = large
	}
	b, err := newBench(size, *only, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		b.close()
		os.Exit(1)
	}()
	good := b.run(context.Background())
	report := b.table.text
	if *markdown {
		report = b.table.markdown
	}
	fmt.Print(report(machine(b.redis)))
	b.close()
	if !good {
		os.Exit(1)
	}
}

// beChild is what this program does when it has started itself for a part that
// needs a process of its own. It returns when it was started by someone else.
func beChild(args []string) {
	parts := map[string]func([]string) error{loadArgument: attack, echoArgument: echo, serverArgument: serve}
	if len(args) < 2 || parts[args[1]] == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", args[1], parts[args[1]](args[2:]))
	os.Exit(1)
}

// measurement is some lines of the table that share what they run on.
type measurement struct {
	names []string // for -only
	run   func(*bench, context.Context) error
}

// measurements are in the table's order.
var measurements = []measurement{
	{[]string{"ingest"}, (*bench).ingest},
	{[]string{"packs"}, (*bench).packs},
	{[]string{"sustained"}, (*bench).sustained},
	{[]string{"visible"}, (*bench).visible},
	{[]string{"hostile"}, (*bench).hostile},
	{[]string{"polls", "gets"}, (*bench).small},                                 // of one node
	{[]string{"memory", "disk", "multiget", "restart", "pause"}, (*bench).rows}, // of one node that grows
	{[]string{"nodes"}, (*bench).nodes},
	{[]string{"rebuild"}, (*bench).rebuild},
}

func names() (all []string) {
	for _, m := range measurements {
		all = append(all, m.names...)
	}
	return all
}

// bench is one run.
type bench struct {
	size     sizes
	wanted   map[string]bool
	table    table
	redis    string // the program's path; "" when there is none
	dir      string // of everything that the run writes
	progress io.Writer
	begun    time.Time
	binary   string // the program measured, once it is built
	children children
}

// newBench prepares to measure what only names, commas between; "" is all.
func newBench(size sizes, only string, progress io.Writer) (*bench, error) {
	chosen := names()
	if only != "" {
		chosen = strings.Split(only, ",")
	}
	b := &bench{size: size, wanted: make(map[string]bool), redis: findRedis(), progress: progress, begun: time.Now()}
	for _, name := range chosen {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-only %s: there is %s", name, strings.Join(names(), ", "))
		}
		b.wanted[name] = true
	}
	var err error
	b.dir, err = os.MkdirTemp("", "tidemark-bench-")
	return b, err
}

// close stops what runs and takes away what was written.
func (b *bench) close() {
	b.children.killAll()
	os.RemoveAll(b.dir)
}

// say writes what is going on, for the user who waits.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%4.0fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// run measures what is wanted. What fails is a line of the table too, and the
// rest goes on; good reports that nothing did.
func (b *bench) run(ctx context.Context) (good bool) {
	good = true
	before, _ := cpuNow()
	for _, m := range measurements {
		wanted := slices.DeleteFunc(slices.Clone(m.names), func(name string) bool { return !b.wanted[name] })
		if len(wanted) == 0 {
			continue
		}
		if err := m.run(b, ctx); err != nil {
			good = false
			what := strings.Join(wanted, ", ")
			b.say("%s failed: %v", what, err)
			b.table.fail(what, err)
		}
	}
	if after, ok := cpuNow(); ok {
		b.table.note("Other processes took %.0f %% of the machine's processors during the run.",
			100*before.others(after, runtime.NumCPU()))
	}
	return good
}
