package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/check"
)

// PrepareAsk asks a node whether it can have one generation more.
type PrepareAsk struct {
	Counting json.RawMessage `json:"counting,omitempty"` // by which it would count; none: it is not asked
}

// Prepared says which generations a node knows of, and what speaks against one more.
type Prepared struct {
	Node        string          `json:"node"`
	Generations generations.Set `json:"generations"`
	Beside      string          `json:"beside,omitempty"` // what is wrong with the one that is open beside
	Against     []string        `json:"against"`          // with numbers; empty: nothing
	Disk        *RebuildDisk    `json:"disk,omitempty"`   // what one more needs here; nil: nothing, or it is not asked
}

// rebuildJobs are those that this process does.
func (n *Node) rebuildJobs() map[string]job.Handler {
	jobs := map[string]job.Handler{generationsVerb: n.prepared}
	if n.config.Thin() {
		return jobs
	}
	jobs[RebuildPlanVerb] = n.leading(n.planned)
	jobs[RebuildVerb] = n.leading(func(ctx context.Context, request []byte) (any, error) {
		var ask RebuildAsk
		if err := json.Unmarshal(request, &ask); err != nil {
			return nil, job.Bad("the request is not of this form: %v", err)
		}
		return n.beginRebuild(ctx, &ask)
	})
	changing := func(ready func(context.Context), change func(generations.Set) (generations.Set, error)) job.Handler {
		return n.leading(func(ctx context.Context, _ []byte) (any, error) {
			ready(ctx)
			next, err := n.changeRecord(ctx, change)
			if err == nil {
				err = n.untilKnown(ctx, func(s generations.Set) bool { return s.Epoch >= next.Epoch })
			}
			if err != nil {
				return nil, err
			}
			return n.rebuildStatus(ctx)
		})
	}
	jobs[RebuildStatusVerb] = n.leading(func(ctx context.Context, _ []byte) (any, error) { return n.rebuildStatus(ctx) })
	atOnce := func(context.Context) {}
	jobs[RebuildAbortVerb] = changing(atOnce, func(s generations.Set) (generations.Set, error) { return s.Abort("it was told to") })
	jobs[RebuildAcceptVerb] = changing(atOnce, generations.Set.Accepted)
	jobs[RebuildBackVerb] = changing(n.awaitKept, func(s generations.Set) (generations.Set, error) {
		if b := n.rebuilds.beside.Load(); !mayServeAgain(b, s) {
			return s, fmt.Errorf("generation %d is kept, and not all of its shards are there and up to date: %s: ask again in a moment", s.Kept, waitsHere(b))
		}
		return s.Back(n.lettersTo())
	})
	return jobs
}

// caughtUp says whether each node that is to hold shards of a generation has them ready
// and does not lag.
func caughtUp(g *counting.Generation) bool { return g.View().CaughtUp(g.Config.Shards) }

// waitsFor says which nodes and shards keep a generation from having caught up; "": none.
// Before it is at the end of the log, only what is not a matter of time.
func waitsFor(g *counting.Generation, atEnd bool) string {
	return g.View().WaitsFor(g.Config.Shards, atEnd)
}

// mayServeAgain says that what is open beside (nil: nothing) is up to date, if it is what
// a record keeps.
func mayServeAgain(g *counting.Generation, s generations.Set) bool {
	return s.Kept == 0 || g != nil && g.Number == s.Kept && caughtUp(g)
}

// waitsHere is waitsFor of a generation beside; nil: it is not open here.
func waitsHere(g *counting.Generation) string {
	if g == nil {
		return "it is not open on the node that routes"
	}
	return waitsFor(g, true)
}

// awaitKept waits until what is kept is up to date, for settleWithin: just after a switch
// the nodes have not said yet how far it is.
func (n *Node) awaitKept(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for !mayServeAgain(n.rebuilds.beside.Load(), n.rebuilds.set()) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rebuildsEvery / 10):
		}
	}
}

// leading is a job of the leader's alone.
func (n *Node) leading(do func(ctx context.Context, request []byte) (any, error)) job.Handler {
	return func(ctx context.Context, request []byte, _ func(any)) (any, error) {
		if !n.leads() {
			return nil, &job.Error{Code: job.CodeGone, Text: "node " + n.name + " does not route: another one is to be asked"}
		}
		result, err := do(ctx, request)
		for _, refusal := range []error{generations.ErrUnderWay, generations.ErrNone, generations.ErrKept, generations.ErrNotYet, generations.ErrDiffers} {
			if errors.Is(err, refusal) {
				err = job.Bad("%v", err)
			}
		}
		return result, err
	}
}

// rebuildStatus is how the newest rebuild stands.
func (n *Node) rebuildStatus(ctx context.Context) (*RebuildStatus, error) {
	set, g := n.rebuilds.set(), n.Serving()
	events, err := g.LogEnd(ctx)
	if err != nil {
		return nil, err
	}
	s := &RebuildStatus{
		Serving: set.Serving, Building: set.Building, Kept: set.Kept, Newest: set.Newest, State: set.State,
		Differs: set.Differs, Lost: set.Lost, Why: set.Why, Of: uint64(pipeline.EndOf(events)),
		Waits:    set.Compared && set.Differs > 0 && !set.Accept && set.Building != 0,
		Examples: []check.Difference{}, Nodes: []RebuildNode{},
	}
	if events == 0 {
		s.Of = 0
	}
	s.Position = uint64(g.Applied())
	l := &n.rebuilds.leader
	l.mu.Lock()
	if l.of == set.Building || set.Building == 0 {
		s.Examples = append(s.Examples, l.examples...)
	}
	if set.State == generations.Building { // how long a comparison takes is not known
		s.ETA = l.etaLocked(pipeline.Position(s.Of))
	}
	why, left := l.saidLocked(set.Building), l.left
	l.mu.Unlock()
	if set.Building != 0 {
		s.Position = 0
		g = nil
		if b := n.rebuilds.beside.Load(); b != nil && b.Number == set.Building {
			s.Position = uint64(b.View().Come(b.Config.Shards))
			g = b
		}
		if err := n.rebuilds.trouble.Err(); why == "" && err != nil {
			why = err.Error()
		}
		if why == "" && g != nil && !s.Waits {
			why = toldWaits("it waits", waitsFor(g, set.State != generations.Building || s.Position >= s.Of))
		}
		if s.Why == "" {
			s.Why = why
		}
	} else {
		if set.State == generations.Switched { // what was accepted needs no words
			s.Why = ""
		}
		if set.Kept != 0 && why == "" {
			why = toldWaits(fmt.Sprintf("generation %d is kept until all have the one that serves", set.Kept), waitsFor(g, true))
		}
		s.Why = joinWords(s.Why, why, toldWaits("what a generation has left on the server is not removed yet", left))
	}
	s.Position = min(s.Position, s.Of) // which may have grown since
	s.Nodes = n.rebuildNodes(ctx, g, set.Building != 0)
	return s, nil
}

// toldWaits is what is waited for, in words; "": nothing.
func toldWaits(what, why string) string {
	if why == "" {
		return ""
	}
	return what + ": " + why
}

// joinWords joins what there is of several.
func joinWords(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// rebuildNodes are those that hold a generation; of one beside that which serves,
// each is asked what is wrong with it, also where it is not open here (nil).
func (n *Node) rebuildNodes(ctx context.Context, g *counting.Generation, ask bool) []RebuildNode {
	nodes := []RebuildNode{}
	var work sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var members []cluster.State
	if g != nil {
		members = g.View().Members
	}
	for _, m := range members {
		if !m.Roles.Has(cluster.Hold) || m.Status == cluster.Away && m.Ready.Len() == 0 {
			continue
		}
		nodes = append(nodes, RebuildNode{Node: m.Node, Shards: m.Ready.Len(), Position: uint64(m.Applied)})
		if m.Status == cluster.Away {
			nodes[len(nodes)-1].Trouble = "it is away"
		}
	}
	if !ask {
		return nodes
	}
	serving := n.Serving().View()
	for _, m := range serving.Members { // those that have it not open yet
		if m.Status != cluster.Away && m.Roles.Has(cluster.Hold) && !slices.ContainsFunc(nodes, func(r RebuildNode) bool { return r.Node == m.Node }) {
			nodes = append(nodes, RebuildNode{Node: m.Node})
		}
	}
	for i := range nodes {
		if nodes[i].Trouble != "" {
			continue
		}
		work.Go(func() {
			p, err := n.askPrepared(ctx, nodes[i].Node, nil)
			if nodes[i].Trouble = p.Beside; err != nil {
				nodes[i].Trouble = err.Error()
			}
		})
	}
	work.Wait()
	return nodes
}

// prepare asks all nodes whether there can be one generation more, and refuses it with
// all that speaks against it. The record may have changed a moment ago, so that some
// have not heard of it, as long as they are amid a switch: they are asked again for settleWithin.
func (n *Node) prepare(ctx context.Context, counting json.RawMessage) ([]RebuildDisk, error) {
	for end := time.Now().Add(settleWithin); ; {
		disks, against, elsewhere := n.speaksAgainst(ctx, n.rebuilds.set(), counting)
		if len(against)+len(elsewhere) == 0 {
			return byNode(disks), nil
		}
		if len(against) == 0 && time.Now().Before(end) {
			select {
			case <-time.After(rebuildsEvery / 5):
				continue
			case <-ctx.Done():
			}
		}
		against = append(against, elsewhere...)
		slices.Sort(against)
		return nil, job.Bad("no rebuild was begun: %s", strings.Join(against, "; "))
	}
}

// speaksAgainst is what all nodes have against a generation more, and which of them know
// another record than this one; disks are what it needs.
func (n *Node) speaksAgainst(ctx context.Context, set generations.Set, counting json.RawMessage) (disks []RebuildDisk, against, elsewhere []string) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	var mu sync.Mutex
	var work sync.WaitGroup
	say := func(to *[]string, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, fmt.Sprintf(format, args...))
	}
	for _, m := range n.Serving().View().Members {
		if m.Status == cluster.Away {
			if m.Ready.Len() > 0 && m.Roles.Has(cluster.Hold) {
				say(&against, "node %s, which holds %d shards, is away: start it, or 'tidemark nodes forget' it", m.Node, m.Ready.Len())
			}
			continue
		}
		work.Go(func() {
			p, err := n.askPrepared(ctx, m.Node, counting)
			switch {
			case err != nil:
				say(&against, "node %s, version %s, does not say whether it can: %v", m.Node, m.Version, err)
			case !p.Generations.Equal(set):
				say(&elsewhere, "node %s knows other generations (epoch %d) than this one (%d): ask again in a moment", m.Node, p.Generations.Epoch, set.Epoch)
			}
			for _, why := range p.Against {
				say(&against, "node %s: %s", m.Node, why)
			}
			if p.Disk != nil {
				mu.Lock()
				disks = append(disks, RebuildDisk{Node: m.Node, Needs: p.Disk.Needs, Free: p.Disk.Free})
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return disks, against, elsewhere
}

// prepared is the job of a node that is asked so.
func (n *Node) prepared(_ context.Context, request []byte, _ func(any)) (any, error) {
	var ask PrepareAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	p := &Prepared{Node: n.name, Generations: n.rebuilds.set(), Against: []string{}}
	if err := n.rebuilds.trouble.Err(); err != nil {
		p.Beside = err.Error()
	}
	if b := n.rebuilds.beside.Load(); b != nil && p.Beside == "" {
		if err := b.WrongBeside(); err != nil {
			p.Beside = err.Error()
		}
	}
	if len(ask.Counting) > 0 && !n.config.Thin() {
		p.Against, p.Disk = n.against(ask.Counting)
	}
	return p, nil
}

// against is what speaks against a generation more on this node, and what it needs here.
func (n *Node) against(counting json.RawMessage) (why []string, disk *RebuildDisk) {
	why = []string{}
	if _, err := n.config.CountingBy(counting); err != nil {
		why = append(why, "it does not fit this node's configuration: "+err.Error())
	}
	if err := n.config.TwoFit(); err != nil {
		why = append(why, err.Error())
	}
	size, err := sizeOf(n.dir.Of(n.Serving().Number, datadir.BadgerDir))
	if err != nil {
		return append(why, fmt.Sprintf("cannot determine the size of the stored generation: %v", err)), nil
	}
	// As much again, and what a start needs: the new counts may have more columns,
	// and less that waits to be merged.
	free, known := kit.DiskFree(n.dir.Path)
	if datadir.LacksRoom(size, free+n.unnamedBytes(), known) {
		why = append(why, fmt.Sprintf("the disk of data_dir %s has %d MiB free, and another generation takes %d MiB or so, as the one that is there does, and %d MiB must stay free", n.dir.Path, free>>20, size>>20, datadir.FreeMin>>20))
	}
	return why, &RebuildDisk{Node: n.name, Needs: size, Free: free}
}

// sizeOf is what all files in a directory take of the disk. Files may be deleted while it
// counts.
func sizeOf(dir string) (bytes uint64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += kit.DiskTaken(info)
		}
		return err
	})
	return bytes, err
}

// remarks are what a node that is ready has to say of the generation beside the one
// that serves, a line each.
func (r *rebuilds) remarks() (lines string) {
	if err := r.trouble.Err(); err != nil {
		for line := range strings.Lines(err.Error()) {
			lines += "generations: " + strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	if left := r.left.Load(); left != nil {
		lines += *left
	}
	return lines
}
