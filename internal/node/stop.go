package node

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/counting"
)

// Close stops in order: no more queries, no more routing, no more windows; a
// last checkpoint; then the database, the connection and the server.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

// drainWithin bounds the wait for answers under way.
const drainWithin = 5 * time.Second

func (n *Node) close() error {
	n.log.Info("tidemark: stopping")
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	var faults []error
	n.thin.end()
	n.rebuilds.end()
	faults = append(faults, n.answers.Load().Stop(ctx))
	n.cancel()
	faults = append(faults, n.jobs.Close())
	n.work.Wait()
	beside := n.rebuilds.beside.Load()
	faults = append(faults, n.Serving().Close(ctx), beside.Close(ctx))
	n.servers.Close(n.http.own(), n.api.Server())
	n.api.Close()
	n.shared.Lines.End()
	faults = append(faults, n.Serving().CloseStore(), beside.CloseStore())
	n.queries.Close()
	n.nc.Close()
	if n.server != nil {
		n.server.Close()
	}
	if n.dir != nil {
		faults = append(faults, n.dir.Close())
	}
	return errors.Join(faults...)
}

// use returns the generation that serves. It is not closed before the caller calls done.
// Work that takes long must end with the generation's ctx.
func (n *Node) use() (g *counting.Generation, done func()) {
	for {
		g := n.Serving()
		done, closed := g.TryUse()
		switch {
		case done == nil:
			runtime.Gosched()
			continue
		case !closed || n.Serving() == g:
			return g, done
		}
		done()
	}
}

// undo closes what a failed Start has opened.
func (n *Node) undo() {
	n.cancel()
	n.rebuilds.end()
	n.jobs.Close()
	n.servers.Close(n.http.own(), n.api.Server())
	n.api.Close()
	n.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	n.answers.Load().Stop(ctx)
	attached := n.Serving().Undo()
	n.shared.Lines.End()
	if n.queries != nil {
		n.queries.Close()
	}
	if n.nc != nil {
		n.nc.Close()
	}
	if n.server != nil {
		n.server.Close()
	}
	if n.dir != nil {
		// A member of a cluster may hold copies of its streams, and is known to it
		// by its name.
		if !attached && !n.inCluster() {
			n.dir.Abandon()
		} else {
			n.dir.Close()
		}
	}
	if n.listener != nil {
		n.listener.Close()
	}
}
