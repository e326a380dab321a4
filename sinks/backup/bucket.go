package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bucket is a place that is a JetStream object store.
type bucket struct {
	name  string
	js    jetstream.JetStream
	store jetstream.ObjectStore
	held  atomic.Pointer[held] // the lock; nil: this process does not have it
}

func openBucket(ctx context.Context, nc *nats.Conn, name string, create bool) (*bucket, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	store, err := js.ObjectStore(ctx, name)
	if create && errors.Is(err, jetstream.ErrBucketNotFound) {
		store, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: name, Description: "backups of tidemark"})
	}
	if err != nil {
		return nil, fmt.Errorf("backup: object store %s: %w", name, err)
	}
	return &bucket{name: name, js: js, store: store}, nil
}

func (b *bucket) String() string { return bucketPrefix + b.name }

// Put implements Place.
func (b *bucket) Put(ctx context.Context, name string, from io.Reader) error {
	if h := b.held.Load(); h != nil && strings.HasPrefix(name, manifestPrefix) {
		return h.put(ctx, name, from)
	}
	if _, err := b.store.Put(ctx, jetstream.ObjectMeta{Name: name}, from); err != nil {
		return fmt.Errorf("backup: write %s to %s: %w", name, b, err)
	}
	return nil
}

// Get implements Place.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.store.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: %s in %s", ErrMissing, name, b)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: read %s from %s: %w", name, b, err)
	}
	return r, nil
}

// List implements Place.
func (b *bucket) List(ctx context.Context, prefix string) (map[string]int64, error) {
	all, err := b.store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("backup: list %s: %w", b, err)
	}
	out := map[string]int64{}
	for _, o := range all {
		if strings.HasPrefix(o.Name, prefix) && !o.Deleted {
			out[o.Name] = int64(o.Size)
		}
	}
	return out, nil
}

// Delete implements Place.
func (b *bucket) Delete(ctx context.Context, name string) error {
	if h := b.held.Load(); h != nil {
		return h.remove(ctx, name)
	}
	if err := b.store.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("backup: delete %s from %s: %w", name, b, err)
	}
	return nil
}
