package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

var (
	// ErrDecided: another process has written the assignment since the view was
	// made. Look at the next view.
	ErrDecided = errors.New("bucket: it was written by another process meanwhile")
	// ErrUnknownNode: no process has said that this node exists.
	ErrUnknownNode = errors.New("bucket: there is no such node")
	// ErrNodeUp: the node cannot be forgotten, it is there.
	ErrNodeUp = errors.New("bucket: the node is up")
)

// tidyAfter is how long the key of a process that holds nothing stays when it is
// away, and the mark that a key was deleted.
const tidyAfter = 10 * time.Minute

// Assign stores an assignment that was computed from a view, if what is stored
// is still what that view says; else ErrDecided, and nothing is written.
func (m *Members) Assign(ctx context.Context, from *cluster.View, next cluster.Assignment) error {
	value, err := next.Encode()
	if err != nil {
		return fmt.Errorf("bucket: assign: %w", err)
	}
	_, err = m.write(ctx, slotKey(m.streams.Slot(), cluster.AssignmentKey), value, from.Revision)
	if errors.Is(err, errOvertaken) {
		return ErrDecided
	}
	if err != nil {
		return fmt.Errorf("bucket: assign epoch %d: %w", next.Epoch, err)
	}
	return nil
}

// Drain takes all shards from a node, for as long as it is drained.
func (m *Members) Drain(ctx context.Context, node string) error {
	if err := m.known(node); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if _, err := m.streams.KeyValue().PutString(ctx, cluster.DrainPrefix+node, "{}"); err != nil {
		return fmt.Errorf("bucket: drain node %s: %w", node, err)
	}
	return nil
}

// Undrain lets a node hold shards again. One that is not drained may be named: also
// one whose drain this process has not heard of yet.
func (m *Members) Undrain(ctx context.Context, node string) error {
	if !slices.Contains(m.View().Drained, node) {
		if err := m.known(node); err != nil {
			return fmt.Errorf("undrain: %w", err)
		}
	}
	if err := m.streams.KeyValue().Delete(ctx, cluster.DrainPrefix+node); err != nil {
		return fmt.Errorf("bucket: undrain node %s: %w", node, err)
	}
	return nil
}

// Forget takes a node that is away out for good: its shards are placed
// elsewhere at once, and DELTAS does not wait for it.
func (m *Members) Forget(ctx context.Context, node string) error {
	if err := m.known(node); err != nil {
		return fmt.Errorf("forget: %w", err)
	}
	var err error
	for range claimsMax { // its last beat may come late, or it is back: look again
		if err = m.purge(ctx, node); !jetlog.WrongSequence(err) {
			break
		}
	}
	if errors.Is(err, ErrNodeUp) {
		return err
	}
	if err == nil {
		err = m.streams.KeyValue().Delete(ctx, cluster.DrainPrefix+node)
	}
	if err != nil {
		return fmt.Errorf("bucket: forget node %s: %w", node, err)
	}
	return NewCheckpoints(m.streams).Forget(ctx, node)
}

// purge takes the key of a node that is away, as it was when that was looked at. To purge
// says that it is meant: a key of a holder that is merely deleted is taken for a mistake.
func (m *Members) purge(ctx context.Context, node string) error {
	is, revision, err := m.read(ctx, node)
	there := false
	if err == nil && is != nil && !is.Stopped {
		there, err = m.present(ctx, node)
	}
	switch {
	case there:
		return fmt.Errorf("%w: %s must be stopped before it is forgotten", ErrNodeUp, node)
	case err != nil:
		return err
	}
	return m.streams.KeyValue().Purge(ctx, m.memberKey(node), jetstream.LastRevision(revision))
}

// known refuses a name that nobody has, and names those there are.
func (m *Members) known(node string) error {
	v := m.View()
	if _, there := v.Member(node); there || slices.Contains(v.Assignment.Nodes(), node) {
		return nil
	}
	var names []string
	for _, s := range v.Members {
		names = append(names, s.Node)
	}
	return fmt.Errorf("%w as %.80q; there are: %.500s", ErrUnknownNode, node, strings.Join(names, ", "))
}

// Degrade sets what all nodes leave undone; cluster.Normal ends it.
func (m *Members) Degrade(ctx context.Context, d cluster.Degrade) error {
	_, err := m.DegradeBy(ctx, func(cluster.Degrade) (cluster.Degrade, error) { return d, nil })
	return err
}

// DegradeBy changes what all nodes leave undone, and returns what it is then.
// Of two callers that change different things at once both succeed.
func (m *Members) DegradeBy(ctx context.Context, change func(cluster.Degrade) (cluster.Degrade, error)) (next cluster.Degrade, err error) {
	for range claimsMax {
		is, revision := m.View().Degrade, uint64(0) // also where somebody else's value stands
		switch e, err := m.streams.KeyValue().Get(ctx, cluster.DegradeKey); {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			is = cluster.Normal
		case err != nil:
			return next, fmt.Errorf("bucket: degrade: %w", err)
		default:
			revision = e.Revision()
			if d, err := cluster.DecodeDegrade(e.Value()); err == nil {
				is = d
			}
		}
		if next, err = change(is); err == nil {
			err = next.Check()
		}
		var value []byte
		if err == nil {
			value, err = json.Marshal(next)
		}
		if err == nil {
			_, err = m.write(ctx, cluster.DegradeKey, value, revision)
		}
		switch {
		case err == nil:
			return next, nil
		case !errors.Is(err, errOvertaken):
			return next, fmt.Errorf("bucket: degrade: %w", err)
		}
	}
	return next, fmt.Errorf("bucket: degrade: %w", err)
}

// Tidy removes keys that are no longer needed: of processes that held nothing and are
// gone, and the marks of deleted ones. One process does it now and then: the one that routes.
func (m *Members) Tidy(ctx context.Context) error { return m.tidy(ctx, tidyAfter) }

// tidyMax bounds the keys that one Tidy removes for good.
const tidyMax = 500

func (m *Members) tidy(ctx context.Context, age time.Duration) error {
	m.mu.Lock()
	deleted, away := m.roster.Forgotten(time.Now(), age)
	m.mu.Unlock()
	for node, revision := range away {
		err := m.streams.KeyValue().Delete(ctx, m.memberKey(node), jetstream.LastRevision(revision))
		if err != nil && !jetlog.WrongSequence(err) { // wrong: it is back
			return fmt.Errorf("bucket: tidy members: %w", err)
		}
	}
	if len(deleted) == 0 {
		return nil
	}
	stream, err := m.streams.JetStream().Stream(ctx, jetlog.BucketStream)
	if err != nil {
		return fmt.Errorf("bucket: tidy members: %w", err)
	}
	tidied := make(map[string]uint64)
	for node, revision := range deleted {
		if len(tidied) == tidyMax {
			break
		}
		// What was written since stays: its revision is higher.
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(keyPrefix+m.memberKey(node)), jetstream.WithPurgeSequence(revision+1))
		if err != nil {
			err = fmt.Errorf("bucket: tidy members: %w", err)
			break
		}
		tidied[node] = revision
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roster.Tidied(tidied)
	return err
}
