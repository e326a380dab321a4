package soak

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// kind is a kind of fault. begin does it and says how it ends; nil: it cannot
// be done at the moment, or not here.
type kind struct {
	name   string
	weight int // how often it comes
	begin  func(*soak) *fault
}

// fault is one that has begun.
type fault struct {
	kind  string
	what  string        // whom it hit, for the history
	hold  time.Duration // how long it lasts at least
	until func() bool   // and then until this, nil: no longer
	soon  time.Duration // bounds until; 0: untilWithin
	end   func()        // nil: it ends by itself
	told  []telling
}

var kinds = []kind{
	{"kill -9 of a node", 5, (*soak).killNode},
	{"SIGTERM of a node", 2, (*soak).stopNode},
	{"SIGSTOP of the routing node until it was replaced, then SIGCONT (zombie)", 4, (*soak).zombie},
	{"SIGSTOP of a node that stands by, then SIGCONT", 2, (*soak).stall},
	{nodesPrefix + "kill -9 of a node that only answers", 2, (*soak).killThin},
	{nodesPrefix + "two are killed at once", 3, (*soak).killTwo},
	{nodesPrefix + "one is drained, then undrained", 4, (*soak).drain},
	{nodesPrefix + "one is away for so long that it is replaced", 3, (*soak).replaced},
	{nodesPrefix + "a new one joins", 2, (*soak).join},
	{nodesPrefix + "SIGSTOP of one for 10 to 70 s, then SIGCONT", 4, (*soak).suspend},
	{nodesPrefix + "one gets back an older copy of its directory", 3, (*soak).olderDirectory},
	{serversPrefix + "one is cut off from the others", 5, (*soak).cutServer},
	{serversPrefix + "kill -9 of one", 3, (*soak).killMember},
	{serversPrefix + "SIGSTOP of one, then SIGCONT", 3, (*soak).stallMember},
	{"kill -9 of the NATS server", 4, (*soak).killServer},
	{"SIGTERM of the NATS server", 2, (*soak).stopServer},
	{"SIGSTOP of the NATS server, then SIGCONT", 3, (*soak).stallServer},
	{"disk full, then freed", 3, (*soak).fillDisk},
	{powerCutCounted, 2, nil},
	{powerCutStopped, 1, nil},
	{powerCutUnseen, 1, nil},
}

// nodesPrefix begins the names of kinds for which more than two nodes are needed.
const nodesPrefix = "nodes: "

// untilWithin bounds what a fault waits for that does not say otherwise.
const untilWithin = 30 * time.Second

func (s *soak) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)))
}

// victim is a node that no other fault has in hand.
func (s *soak) victim() *node {
	first := s.random.IntN(len(s.nodes))
	for i := range s.nodes {
		if n := s.nodes[(first+i)%len(s.nodes)]; n.running() {
			return n
		}
	}
	return nil
}

// described says what a node does at the moment.
func (s *soak) described(n *node) string {
	if n.routes() {
		return n.String() + ", which routes"
	}
	return n.String() + ", which stands by"
}

func (s *soak) killNode() *fault {
	n := s.victim()
	if n == nil {
		return nil
	}
	f := &fault{what: s.described(n), hold: s.between(0, 3*time.Second)}
	if n.routes() && s.running() > 1 && f.hold > s.leaseExpiry+time.Second && !s.noServer() {
		f.told = append(f.told, telling{nil, tookOver})
	}
	n.held = true
	n.kill()
	f.end = func() {
		s.up(n)
		n.held = false
	}
	return f
}

func (s *soak) stopNode() *fault {
	n := s.victim()
	if n == nil {
		return nil
	}
	f := &fault{what: s.described(n), hold: s.between(0, 2*time.Second)}
	n.held = true
	s.stop(n)
	f.end = func() {
		s.up(n)
		n.held = false
	}
	return f
}

var (
	tookOver    = regexp.MustCompile(`the holder of the lease is silent, taking over`)
	steppedDown = regexp.MustCompile(`the lease is another's now|lease given up|router: stepped down`)
	connection  = regexp.MustCompile(`nats: connection lost`)
	diskTold    = regexp.MustCompile(`the disk is full|no space left on device`)
	tailTold    = regexp.MustCompile(`stream EVENTS (has|had) lost its tail`)
)

// zombie: the routing process stands still for so long that another routes,
// and wakes up with all it had in hand.
func (s *soak) zombie() *fault {
	var n *node
	if s.noServer() || !s.wait(func() bool { n = s.router(); return n != nil || s.running() < 2 }, untilWithin) || n == nil {
		return nil
	}
	if s.running() < 2 {
		return nil
	}
	n.held = true
	n.Signal(syscall.SIGSTOP)
	return &fault{
		what: n.String(), hold: s.between(s.leaseExpiry, s.leaseExpiry+3*time.Second),
		until: func() bool { return s.router(n) != nil },
		end: func() {
			n.Signal(syscall.SIGCONT)
			n.held = false
		},
		told: []telling{{nil, tookOver}, {n, steppedDown}},
	}
}

func (s *soak) stall() *fault {
	standing := slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return !n.running() || n.routes() })
	if len(standing) == 0 {
		return nil
	}
	n := standing[s.random.IntN(len(standing))]
	n.held = true
	n.Signal(syscall.SIGSTOP)
	return &fault{
		what: n.String(), hold: s.between(500*time.Millisecond, 8*time.Second),
		end: func() {
			n.Signal(syscall.SIGCONT)
			n.held = false
		},
	}
}

func (s *soak) killServer() *fault { return s.serverAway(syscall.SIGKILL) }
func (s *soak) stopServer() *fault { return s.serverAway(syscall.SIGTERM) }

func (s *soak) serverAway(signal syscall.Signal) *fault {
	if s.noServer() {
		return nil
	}
	f := &fault{hold: s.between(0, 4*time.Second), end: s.startServer}
	for _, n := range s.everyone() {
		if n.running() && s.connected(n) {
			f.told = append(f.told, telling{n, connection})
		}
	}
	s.endServer(signal)
	return f
}

// stallServer: nothing is answered for a while, in the end longer than anybody
// waits for an answer; and then all that was asked is done.
func (s *soak) stallServer() *fault {
	if s.noServer() {
		return nil
	}
	s.held = true
	s.server.Signal(syscall.SIGSTOP)
	return &fault{hold: s.between(500*time.Millisecond, 8*time.Second), end: func() {
		s.server.Signal(syscall.SIGCONT)
		s.held = false
	}}
}

// fillDisk leaves a node not a byte until it has said so, and a while longer.
func (s *soak) fillDisk() *fault {
	n := s.victim()
	if n == nil || n.disk == nil || s.diskIsFull() {
		return nil
	}
	from := s.logged(n)
	n.disk.Fill(s)
	return &fault{
		what: n.String(), hold: s.between(2*time.Second, 5*time.Second),
		until: func() bool { return s.saidSince(n, from, diskTold) || n.Ended() != nil },
		end:   func() { n.disk.Free(s) },
		told:  []telling{{n, diskTold}},
	}
}

// counting is whether all nodes that run have come past where EVENTS ends now.
func (s *soak) counting() func() bool {
	var end uint64
	return func() bool {
		if end == 0 {
			ctx, cancel := soon()
			defer cancel()
			var err error
			if end, err = endOf(ctx, s.js); err != nil {
				return false
			}
		}
		for _, n := range s.nodes {
			if n.running() && n.at(end) != nil {
				return false
			}
		}
		return true
	}
}

// soon bounds one question to a server.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}

// wait waits for something, and says whether it came.
func (s *soak) wait(came func() bool, within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if came() {
			return true
		}
	}
	return false
}

func (s *soak) running() (n int) {
	for _, each := range s.nodes {
		if each.running() {
			n++
		}
	}
	return n
}

// inject begins faults, lets them last, and ends them in any order.
func (s *soak) inject(chosen ...kind) {
	s.Helper()
	from := s.marks()
	var begun []*fault
	for _, k := range chosen {
		f := k.begin(s)
		if f == nil {
			s.report.impossible[k.name]++
			continue
		}
		f.kind = k.name
		s.report.injected[k.name]++
		if f.what != "" {
			f.what = ": " + f.what
		}
		s.note("%s%s, for %v", k.name, f.what, f.hold.Round(time.Millisecond))
		begun = append(begun, f)
	}
	hold, end := time.Duration(0), time.Now()
	for _, f := range begun {
		hold = max(hold, f.hold)
	}
	time.Sleep(time.Until(end.Add(hold)))
	if len(begun) > 1 {
		// What one waits for may need the other to be over: none waits.
		s.random.Shuffle(len(begun), func(i, j int) { begun[i], begun[j] = begun[j], begun[i] })
	}
	for _, f := range begun {
		within := cmp.Or(f.soon, untilWithin)
		came := f.until == nil || len(begun) > 1 || s.wait(f.until, within)
		if f.end != nil {
			f.end()
		}
		if !came {
			s.fail("%s%s: what it waits for did not come within %v\n%s", f.kind, f.what, within, s.readiness())
		}
	}
	for _, n := range s.everyone() {
		if n.down { // it was to start while there was no server
			s.up(n)
		}
	}
	s.undrain()
	s.alive()
	for _, f := range begun {
		if len(begun) > 1 {
			f.told = nil // which of them a line is about cannot be said
		}
		s.expect(f.kind, from, f.told)
	}
}

// draw chooses the next fault, or two at once.
func (s *soak) draw() []kind {
	if len(s.first) > 0 { // every kind once
		k := s.first[0]
		s.first = s.first[1:]
		return []kind{k}
	}
	if len(s.kinds) == 0 {
		return nil
	}
	chosen := []kind{s.any()}
	if chosen[0].begin != nil && s.random.IntN(4) == 0 {
		if second := s.any(); second.begin != nil && second.name != chosen[0].name {
			chosen = append(chosen, second)
		}
	}
	return chosen
}

func (s *soak) any() kind {
	total := 0
	for _, k := range s.kinds {
		total += k.weight
	}
	at := s.random.IntN(total)
	i := slices.IndexFunc(s.kinds, func(k kind) bool { at -= k.weight; return at < 0 })
	return s.kinds[i]
}
