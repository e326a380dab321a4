package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

// The nodes share the work: holders, of whom one routes, in two zones with a copy
// of every shard in each; and two that only answer. So each zone alone has
// everything, and each of the two that answer can be asked alone.

const (
	// replaceAfter is how long a node may be away before others take its shards.
	replaceAfter = 8 * time.Second
	// holdersMax bounds how many join.
	holdersMax = 6
)

var zones = []string{"x", "y"}

func (s *soak) makeNodes() {
	s.Helper()
	for range 4 {
		s.nodes = append(s.nodes, s.newHolder())
	}
	for _, name := range []string{"t", "u"} {
		n := s.newNode(name, "", "roles: [answer]\n")
		n.thin = true
		s.thin = append(s.thin, n)
	}
}

// newHolder makes the next one: a, b, c …, in one zone and the other.
func (s *soak) newHolder() *node {
	s.Helper()
	i := len(s.nodes)
	return s.newNode(string(rune('a'+i)), zones[i%len(zones)], "roles: [route, hold]\n")
}

// everyone is each process but for the NATS server.
func (s *soak) everyone() []*node { return slices.Concat(s.nodes, s.thin) }

// halves are those who have everything and answer, without the others.
func (s *soak) halves() (halves [][]*node) {
	for i, zone := range zones {
		half := slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return n.zone != zone })
		halves = append(halves, append(half, s.thin[i]))
	}
	return halves
}

// assigned is what is held where, as who answers knows it.
func (s *soak) assigned() (client.Shards, error) {
	ctx, cancel := soon()
	defer cancel()
	return client.New(s.nc).Shards(ctx)
}

// lacks is nil when every shard has a ready copy in each zone, and no other.
func (s *soak) lacks() error {
	now, err := s.assigned()
	if err != nil {
		return err
	}
	if len(now.Shards) != s.shards {
		return fmt.Errorf("%d shards are assigned, not %d", len(now.Shards), s.shards)
	}
	zone := map[string]string{}
	for _, n := range s.nodes {
		zone[n.name] = n.zone
	}
	for _, shard := range now.Shards {
		in := map[string]bool{}
		for _, h := range shard.Holders {
			if in[zone[h.Node]] = true; h.State != "ready" {
				in = nil
				break
			}
		}
		if len(in) != len(zones) || len(shard.Holders) != len(zones) {
			return fmt.Errorf("epoch %d, shard %d: %+v", now.Epoch, shard.Shard, shard.Holders)
		}
	}
	return nil
}

const (
	// readyFor is how long it must look so: nodes say each second how they are,
	// and one that was just started did so before it was killed.
	readyFor = 2500 * time.Millisecond
	// readyWithin bounds moves of everything.
	readyWithin = 3 * time.Minute
)

// allReady waits until every shard has its copies. A node that is behind is none
// that a copy can be left to, so everybody must have come to the end before, or
// keep up.
func (s *soak) allReady() {
	s.Helper()
	begun := time.Now()
	since := begun
	for err := s.lacks(); err != nil || time.Since(since) < readyFor; err = s.lacks() {
		s.alive()
		if err != nil {
			since = time.Now()
		}
		if time.Since(begun) > readyWithin {
			s.fail("not every shard has a ready copy in each zone after %v: %v\n%s", readyWithin, err, s.readiness())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// heldWithout says whether a node is assigned nothing, and all is ready elsewhere.
func (s *soak) heldWithout(n *node) bool {
	now, err := s.assigned()
	if err != nil || len(now.Shards) == 0 {
		return false
	}
	for _, shard := range now.Shards {
		for _, h := range shard.Holders {
			if h.Node == n.name || h.State != "ready" {
				return false
			}
		}
	}
	return true
}

func (s *soak) killThin() *fault {
	n := s.thin[s.random.IntN(len(s.thin))]
	if !n.running() {
		return nil
	}
	n.held = true
	n.kill()
	return &fault{what: n.String(), hold: s.between(0, 2*time.Second), end: func() {
		s.up(n)
		n.held = false
	}}
}

// killTwo: what both had alone is missing until one is back.
func (s *soak) killTwo() *fault {
	var gone []*node
	for range 2 {
		if n := s.victim(); n != nil {
			n.held = true
			n.kill()
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return &fault{what: fmt.Sprint(gone), hold: s.between(0, 3*time.Second), end: func() {
		for _, n := range gone {
			s.up(n)
			n.held = false
		}
	}}
}

// drain has a node hold nothing any more. It is undrained when every fault is
// over.
func (s *soak) drain() *fault {
	n := s.victim()
	if n == nil || s.drained != nil || s.noServer() || s.command("nodes", "drain", n.name) != nil {
		return nil
	}
	s.drained = n
	return &fault{
		what: s.described(n), hold: s.between(0, 2*time.Second),
		until: func() bool { return s.heldWithout(n) }, soon: readyWithin,
	}
}

func (s *soak) undrain() {
	s.Helper()
	if s.drained == nil {
		return
	}
	var err error
	if !s.wait(func() bool { err = s.command("nodes", "undrain", s.drained.name); return err == nil }, patience) {
		s.fail("%v cannot be undrained: %v", s.drained, err)
	}
	s.drained = nil
}

// command runs one of the program's.
func (s *soak) command(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := s.nodes[0].Command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tidemark %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return err
}

// replaced: a node is away until others have all that it had.
func (s *soak) replaced() *fault {
	n := s.victim()
	if n == nil || s.running() < len(s.nodes) {
		return nil
	}
	f := &fault{
		what: s.described(n), hold: replaceAfter,
		until: func() bool { return s.heldWithout(n) }, soon: readyWithin,
	}
	n.held = true
	if s.random.IntN(2) == 0 {
		n.kill()
	} else {
		s.stop(n)
	}
	f.end = func() {
		s.up(n)
		n.held = false
	}
	return f
}

// join adds a node, which stays.
func (s *soak) join() *fault {
	if len(s.nodes) == holdersMax || s.noServer() {
		return nil
	}
	n := s.newHolder()
	s.nodes = append(s.nodes, n)
	s.up(n)
	return &fault{what: n.String(), hold: s.between(0, 2*time.Second), until: func() bool { return s.lacks() == nil }, soon: readyWithin}
}
