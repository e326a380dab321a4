// Bench measures Tidemark beside its rivals, and prints one table: a figure, what was
// measured beside it in the same run on the same machine, and whether the target is met.
//
//	go run ./internal/bench                      six minutes on two cores
//	go run ./internal/bench -only visible,polls
//
// What runs is the program in a process of its own, asked and fed over NATS as users do.
// Redis is started and stopped by the run, on a free port, without persistence.
//
// Machines are noisy: Tidemark and its rival take turns, a figure is the median of its
// rounds, and the table shows the least and the greatest of them. docs/performance.md says
// what each line measures.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	beChild(os.Args)
	only := flag.String("only", "", "measure these alone, commas between: "+strings.Join(names(), ", "))
	flag.Parse()
	b, err := newBench(normal, *only, os.Stderr)
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
	good := b.run()
	fmt.Print(b.table.text(b.machine()))
	b.close()
	if !good {
		os.Exit(1)
	}
}

// beChild is what this program does when it has started itself for a part that needs a
// process of its own. It returns when somebody else has started it.
func beChild(args []string) {
	parts := map[string]func([]string){loadArgument: load, echoArgument: echo, serverArgument: serve}
	if len(args) < 2 || parts[args[1]] == nil {
		return
	}
	fmt.Fprintln(os.Stderr, caught(func() { parts[args[1]](args[2:]) }))
	os.Exit(1)
}

// measurement is some lines of the table that share what they run on.
type measurement struct {
	names []string // for -only
	run   func(*bench)
}

// measurements are in the table's order.
var measurements = []measurement{
	{[]string{"ingest"}, (*bench).ingest},
	{[]string{"packs"}, (*bench).packs},
	{[]string{"likes"}, (*bench).likes},
	{[]string{"sustained"}, (*bench).sustained},
	{[]string{"visible"}, (*bench).visible},
	{[]string{"polls", "rebuild", "hostile"}, (*bench).users},                                      // of one node
	{[]string{"memory", "disk", "multiget", "http", "members", "restart", "pause"}, (*bench).rows}, // of another
	{[]string{"nodes"}, (*bench).nodes},
}

func names() (all []string) {
	for _, m := range measurements {
		all = append(all, m.names...)
	}
	return all
}

// sizes are how much is measured.
type sizes struct {
	rounds  int           // of what takes turns
	round   time.Duration // of what is asked again and again
	backlog int           // events, one a message; as many again in packs, and with distinct keys
	pace    int           // events a second while visibility is measured
	posts   int           // post rows of which users ask
	authors int           // whom users follow
	users   int           // who follow many, and as many who follow few
	rows    int           // post rows with three columns, at most
	members int           // of sets
}

var normal = sizes{
	rounds: 3, round: time.Second, backlog: 1_000_000, pace: 50_000,
	posts: 200_000, authors: 20_000, users: 2000, rows: 2_000_000, members: 1_000_000,
}

// bench is one run.
type bench struct {
	size     sizes
	wanted   map[string]bool
	table    table
	redis    string // the path of redis-server; "" when there is none
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
	b := &bench{size: size, wanted: make(map[string]bool), progress: progress, begun: time.Now()}
	b.redis, _ = exec.LookPath("redis-server")
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

// ctx is of everything that is asked: a run ends with its process.
var ctx = context.Background()

// failure ends a measurement, as testing.B.Fatal ends a benchmark.
type failure struct{ err error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught is the failure with which do ended.
func caught(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

// run measures what is wanted. What fails is a line of the table too, and the rest goes
// on; good says that nothing did.
func (b *bench) run() (good bool) {
	good = true
	for _, m := range measurements {
		wanted := slices.DeleteFunc(slices.Clone(m.names), func(name string) bool { return !b.wanted[name] })
		if len(wanted) == 0 {
			continue
		}
		if err := caught(func() { m.run(b) }); err != nil {
			good = false
			what := strings.Join(wanted, ", ")
			b.say("%s failed: %v", what, err)
			b.table.add(line{what: what, failed: true})
			b.table.note("%s failed: %s", what, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
	return good
}

// machine says what was measured on, and with what.
func (b *bench) machine() string {
	redis := errRedis
	if b.redis != "" {
		redis = strings.Join(strings.Fields(string(must(exec.Command(b.redis, "--version").Output())))[:3], " ")
	}
	return fmt.Sprintf("%d cores · %s/%s · %s · %s", runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version(), redis)
}
