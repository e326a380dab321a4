package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/twin"
)

var (
	soakFlag = flag.Duration("soak", 0, "how long faults are injected; 0: two kinds, a few seconds")
	seedFlag = flag.Uint64("seed", 0, "seed of the events and of the schedule; 0 draws one")
	onlyFlag = flag.String("only", "", "only the kinds of faults, and of abuse like a fault, whose names have one of these in them, commas between; none: only such abuse")
	rateFlag = flag.Float64("rate", 0, "events a second; 0: 2,000, in long runs fewer")
)

const (
	rateMost = 2000
	// eventsMost bounds a run: the twin keeps every event.
	eventsMost = 1_500_000

	// diskBytes is the size of a node's disk: what a start needs, and room for
	// what a run counts.
	diskBytes = 1 << 30
)

// soak is one run.
type soak struct {
	testing.TB
	random *rand.Rand // of the schedule
	seed   uint64
	dir    string
	begun  time.Time

	drawn
	server     *natstest.Member  // nil: a cluster
	held       bool              // a fault has the server in hand
	cluster    *natstest.Cluster // nil: one server
	unwell     *natstest.Member  // of the cluster: a fault has it in hand
	nodes      []*node           // that hold
	thin       []*node           // that only answer
	drained    *node             // until every fault is over
	nc         *nats.Conn
	js         jetstream.JetStream
	book       *book
	publishers *publishers
	truth      *truth
	abuse      *abuse
	probes     *probes
	compared   map[people]int // with how many events

	kinds []kind
	first []kind // each once, before chance decides
	cuts  []span // what power cuts took after it was counted

	awaited []awaited
	read    marks // what of the logs was looked at
	history []string
	report  *report
}

// drawn is what must not change an answer, and bounds: small ones, which
// communities come past, or as usual, so that the abuse's lists become long. Windows
// are stored one after another, some 240 a second beside six nodes on two cores: with 30
// events each the abuse alone was more, and what was written was not seen for minutes.
type drawn struct {
	servers      int // of NATS: one, or a cluster of three
	shards       int
	windowEvents int
	leaseRenew   time.Duration
	leaseExpiry  time.Duration
	memory       string
	bounds       twin.Bounds
}

func (s *soak) drawSettings() {
	s.drawn = drawn{
		servers:      s.drawServers(),
		shards:       []int{1, 7, 16, 64}[s.random.IntN(4)],
		windowEvents: []int{200, 500, 8192}[s.random.IntN(3)],
		leaseRenew:   200 * time.Millisecond,
		leaseExpiry:  time.Second,

		memory: []string{"38MiB", "128MiB"}[s.random.IntN(2)],
		bounds: twin.Bounds{Retention: time.Hour, InactiveAfter: 2 * time.Hour, Channels: 4096, Notices: 100_000, Once: true},
	}
	s.bounds.PostsPerAuthor = []int{5, 1000}[s.random.IntN(2)]
	s.bounds.PostsKept = s.bounds.PostsPerAuthor * []int{1, 2, 4}[s.random.IntN(3)]
	if s.random.IntN(2) == 0 {
		s.bounds.Channels, s.bounds.Notices = squattersMax, 500
	}
	if *soakFlag > 0 && s.random.IntN(3) == 0 {
		s.leaseExpiry = 7 * time.Second // longer than an append waits for its answer
	}
	s.Logf("%d NATS servers, %d shards, windows of %d events, a lease of %v, %s of memory, %+v",
		s.servers, s.shards, s.windowEvents, s.leaseExpiry, s.memory, s.bounds)
}

// Real processes, random kill -9, SIGSTOP long enough to be declared dead and woken again
// (zombie), restarts of the NATS server or cuts between several, a disk that is full and freed, a
// power cut imitated by an older copy of the stream directory (I10), directories and backups of
// before. Nothing is lost, nothing is doubled, and trouble is reported in a clear line. Abuse:
// notices by the hundred thousand, a user who follows 10^6, an author with 10^5 posts, all beside
// honest load. Answers are exact.
func TestSoak(t *testing.T) {
	natstest.Long(t)
	s := newSoak(t)
	defer func() { t.Log(s.report.text(s)) }()
	s.run()
}

func newSoak(t *testing.T) *soak {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 53)
	}
	t.Logf("seed %d", seed)
	s := &soak{
		TB: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), dir: directory(t),
		compared: map[people]int{}, read: marks{}, report: newReport(), begun: time.Now(),
	}
	s.drawSettings()
	s.book = &book{board: twin.NewBoard(s.bounds), seed: seed, records: make([]*record, 1)}
	kinds, err := abusesOf(*abuseFlag)
	if err != nil {
		t.Fatal(err)
	}
	s.abuse = newAbuse(kinds, s.book)
	s.choose()
	s.startServers()
	s.makeNodes()
	s.interruptible()
	for _, n := range s.everyone() {
		s.up(n)
	}
	if s.nc, err = connect(s.url()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nc.Close)
	if s.js, err = jetstream.New(s.nc); err != nil {
		t.Fatal(err)
	}
	s.truth = &truth{book: s.book, next: 1}
	if s.publishers, err = startPublishers(s.url(), s.book, s.rate()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.publishers.close)
	if s.probes, err = startProbes(s.url(), s.publishers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.probes.close)
	t.Cleanup(s.abuse.close)
	if err := s.abuse.start(s.url(), s.publishers); err != nil {
		t.Fatal(err)
	}
	return s
}

// interruptible: Ctrl-C leaves no process and no disk behind.
func (s *soak) interruptible() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	s.Cleanup(func() { signal.Stop(signals) })
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "soak: interrupted")
		for _, m := range s.everyServer() {
			m.Signal(syscall.SIGKILL)
		}
		for _, n := range s.everyone() {
			n.Signal(syscall.SIGKILL)
			if n.disk != nil {
				n.disk.Release()
			}
		}
		os.RemoveAll(s.dir)
		os.Exit(1)
	}()
}

// directory is kept when the test fails: the logs and the streams are in it.
func directory(t *testing.T) string {
	dir, err := os.MkdirTemp("", "tidemark-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs and the streams are in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return dir
}

// TempDir has servers keep their streams in the run's directory, which a failed run leaves.
func (s *soak) TempDir() string {
	s.Helper()
	dir, err := os.MkdirTemp(s.dir, "server-")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// choose takes the kinds of this run.
func (s *soak) choose() {
	only := strings.Split(*onlyFlag, ",")
	switch {
	case *soakFlag == 0 && *onlyFlag == "":
		only = []string{"kill -9 of a node", "zombie"}
	}
	for _, k := range kinds {
		named := slices.ContainsFunc(only, func(part string) bool { return strings.Contains(k.name, part) })
		if named && s.hasServersFor(k) {
			s.kinds = append(s.kinds, k)
		}
	}
	if len(s.kinds) == 0 && *onlyFlag != "none" {
		s.Fatalf("no kind of fault has %q in its name", *onlyFlag)
	}
	s.first = slices.Clone(s.kinds)
	s.random.Shuffle(len(s.first), func(i, j int) { s.first[i], s.first[j] = s.first[j], s.first[i] })
}

// wants says whether the run has a kind that needs something.
func (s *soak) wants(part string) bool {
	return slices.ContainsFunc(s.kinds, func(k kind) bool { return strings.Contains(k.name, part) })
}

// without takes out the kinds that cannot be done here.
func (s *soak) without(part string, why error) {
	cannot := func(k kind) bool { return strings.Contains(k.name, part) }
	s.kinds, s.first = slices.DeleteFunc(s.kinds, cannot), slices.DeleteFunc(s.first, cannot)
	s.report.left = append(s.report.left, fmt.Sprintf("%s: %v", part, why))
	if len(s.kinds) == 0 {
		s.Skipf("nothing is left to do: %s", s.report.left)
	}
}

// newNode makes a node that holds; settings are what it has besides what all have.
func (s *soak) newNode(name, zone, settings string) *node {
	s.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	n := &node{name: name, zone: zone}
	data := filepath.Join(dir, "data")
	if s.wants("disk full") {
		path := filepath.Join(dir, "disk")
		var err error
		if n.disk, err = e2e.NewDisk(s, path, diskBytes); err != nil {
			s.without("disk full", err)
		} else {
			data = filepath.Join(path, "data")
		}
	}
	n.data = data
	n.Process = e2e.Prepare(s, e2e.Setup{
		URL: s.url(), NATS: s.natsSettings(), Dir: dir, DataDir: data,
		Settings: settings + fmt.Sprintf(`node: %s
zone: %q
shards: %d
cluster: {replicas: 2, replace_after: %s}
windows: {events: %d}
router: {lease_renew: %s, lease_expiry: %s}
checkpoint: {interval: 200ms, rows: 2048}
badger: {memtable: 8MiB, block_cache: 2MiB}
memory: {budget: %s}
`, name, zone, s.shards, replaceAfter, s.windowEvents, s.leaseRenew, s.leaseExpiry, s.memory) + s.bounds.Settings("timeout_max: 60s"),
	})
	return n
}

// rate is how many events are published in a second.
func (s *soak) rate() float64 {
	if *rateFlag > 0 {
		return *rateFlag
	}
	return min(rateMost/float64(s.servers), eventsMost/max(soakFlag.Seconds(), 1))
}

const (
	compareEvery = 40 * time.Second
	sample       = 300 // communities that nothing has happened to
)

func (s *soak) run() {
	s.Helper()
	s.begun = time.Now()
	end := s.begun.Add(*soakFlag)
	s.calm()
	compared := time.Now()
	pause := 2 * time.Second
	for time.Now().Before(end) || *soakFlag == 0 && len(s.first) > 0 {
		time.Sleep(s.between(0, pause))
		pause = 2 * time.Second
		if chosen := s.draw(); len(chosen) > 0 && chosen[0].begin == nil {
			s.powerCut(chosen[0].name)
			pause = time.Second // the next one while nodes put EVENTS in order
		} else {
			s.inject(chosen...)
		}
		if time.Since(compared) > compareEvery {
			s.settleAndCompare(sample)
			s.publishers.resume()
			s.calm()
			compared = time.Now()
		}
	}
	s.settleAndCompare(-1)
}

// settleAndCompare has abuse rest, too.
func (s *soak) settleAndCompare(sample int) {
	s.Helper()
	s.asked()
	s.abuse.rest()
	s.comparison(sample)
}

// note writes into the history.
func (s *soak) note(format string, args ...any) {
	s.Helper()
	line := fmt.Sprintf("%7.1fs  ", time.Since(s.begun).Seconds()) + fmt.Sprintf(format, args...)
	s.history = append(s.history, line)
	s.Log(line)
}

// fail ends the run.
func (s *soak) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s\n\nseed %d; the faults until then:\n%s", fmt.Sprintf(format, args...), s.seed, strings.Join(s.history, "\n"))
}
