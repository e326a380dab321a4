package node

import (
	"context"
	"errors"
	"time"
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
	faults = append(faults, n.answers.Load().stop(ctx))
	n.cancel()
	faults = append(faults, n.jobs.Close())
	n.work.Wait()
	faults = append(faults, n.gen().close(ctx))
	n.http.close(ctx)
	faults = append(faults, n.gen().closeStore())
	n.queries.Close()
	n.nc.Close()
	if n.server != nil {
		n.server.Close()
	}
	if n.dir != nil {
		faults = append(faults, n.dir.close())
	}
	return errors.Join(faults...)
}

// close stops routing, following and answering other nodes, and makes a last
// checkpoint.
func (n *generation) close(ctx context.Context) error {
	var faults []error
	n.cancel()
	n.work.Wait()
	n.leave() // before others ask in vain
	if n.parts != nil {
		faults = append(faults, n.parts.Stop(ctx), n.runs.Close())
	}
	if n.sinks != nil {
		faults = append(faults, n.sinks.Close())
		n.log.Info("tidemark: checkpointed", "applied", n.sinks.Applied())
	}
	return errors.Join(faults...)
}

// closeStore comes last: figures are read from the store.
func (n *generation) closeStore() error {
	if n.store == nil {
		return nil
	}
	return n.store.Close()
}

// undo closes what a failed Start has opened.
func (n *Node) undo() {
	n.cancel()
	n.jobs.Close()
	if n.http != nil {
		n.http.server.Close()
	}
	n.work.Wait()
	n.gen().stopAnswering()
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	n.answers.Load().stop(ctx)
	n.gen().undo()
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
		if n.gen().streams == nil && !n.inCluster() {
			n.dir.abandon()
		} else {
			n.dir.close()
		}
	}
	if n.listener != nil {
		n.listener.Close()
	}
}

func (n *generation) stopAnswering() {
	n.work.Wait()
	if n.runs != nil {
		n.runs.Close()
	}
	if n.parts != nil {
		n.parts.Stop(context.Background())
	}
}

// undo closes what was opened of a generation that does not begin.
func (n *generation) undo() {
	if n.members != nil {
		n.members.Close()
	}
	if n.sinks != nil {
		n.sinks.Close()
	}
	if n.store != nil {
		n.store.Close()
	}
}
