package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// ErrOvertaken is what Put returns when the key is not at the revision that was
// to be replaced.
var ErrOvertaken = errors.New("sim: the key was written by another process meanwhile")

// bucketState is the server's side of the keys that say which nodes there are and
// what they hold. The server's lock guards it.
type bucketState struct {
	revision uint64
	keys     map[string]cluster.Entry
	assigned cluster.Assignment // the one stored
	epoch    uint64             // the greatest stored
	back     bool               // an assignment was stored that is not newer than one before
}

func (b *bucketState) putLocked(e cluster.Entry) {
	b.revision++
	e.Revision, e.Nanos = b.revision, time.Now().UnixNano()
	b.keys[e.Key] = e
	if e.Key == cluster.AssignmentKey {
		a, err := cluster.DecodeAssignment(e.Value)
		b.back = b.back || err != nil || a.Epoch <= b.epoch
		b.assigned, b.epoch = a, max(b.epoch, a.Epoch)
	}
}

// Tell writes a key as people do, whatever it is; no value deletes it.
func (s *Server) Tell(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucket.putLocked(cluster.Entry{Key: key, Value: value, Deleted: value == nil})
}

// Assignment is the one stored. inOrder says that each that was ever stored has
// a greater epoch than all before it.
func (s *Server) Assignment() (a cluster.Assignment, inOrder bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucket.assigned, !s.bucket.back
}

// Put replaces a revision of a key; 0 makes a key that is not there. A request
// that lands late is compared when it does.
func (c *Client) Put(ctx context.Context, key string, value []byte, revision uint64) error {
	put := func() error {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		if c.s.bucket.keys[key].Revision != revision {
			return ErrOvertaken
		}
		c.s.bucket.putLocked(cluster.Entry{Key: key, Value: value})
		return nil
	}
	fate, err := c.pass(ctx, Call{Kind: Put, Key: sum([]byte(key)), Land: func() { _ = put() }})
	switch {
	case err != nil:
		return err
	case fate.Err != nil && fate.Done:
		_ = put()
		return fate.Err
	case fate.Err != nil:
		return fate.Err
	}
	return put()
}

// Watch is what keys are now that have changed since a revision, in the order of
// their revisions, and the bucket's revision.
func (c *Client) Watch(ctx context.Context, after uint64) (entries []cluster.Entry, revision uint64, err error) {
	fate, err := c.pass(ctx, Call{Kind: Watch})
	if err = cmp.Or(err, fate.Err); err != nil {
		return nil, 0, err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, e := range c.s.bucket.keys {
		if e.Revision > after {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b cluster.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return entries, c.s.bucket.revision, nil
}
