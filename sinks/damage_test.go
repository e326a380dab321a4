package sinks_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// A shard whose run turns out damaged in a merge stops alone: those whose
// changes are written in one commit with its own are checkpointed as before.
func TestDamageFoundByAMerge(t *testing.T) {
	const shards = 2
	dir := t.TempDir()
	store := openStore(t, dir, shards)
	defer store.Close()
	o := options(shards)
	o.Owners, o.CheckpointEvery, o.CommitRows = 1, 2*time.Millisecond, 1<<20
	n, w := newNode(t, store, o), newWorld(shards)
	defer n.Close()
	more := func() {
		w.likes(upTo(200)...)
		follow(t, n, w.tail(n.Sequence()))
		wait(t, n, w.last())
	}
	more()
	await(t, "checkpointed", func() bool { return n.Checkpointed() == uint64(len(w.entries)) })
	files, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 0xff // of its first run
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if more(); n.Failed() > 0 {
			break
		}
		at := n.Stats.Checkpoints.Load() + n.Stats.CheckpointErrors.Load()
		await(t, "a checkpoint", func() bool { return n.Stats.Checkpoints.Load()+n.Stats.CheckpointErrors.Load() > at })
	}
	if n.Failed() != 1 || !errors.Is(n.Err(), cold.ErrCorrupt) {
		t.Fatalf("%d have stopped: %v", n.Failed(), n.Err())
	}
	more()
	await(t, "the other shard is checkpointed", func() bool {
		for number := range pipeline.Shard(shards) {
			if state, err := store.Stack(number).State(); err == nil && state.Applied == w.last() {
				return n.CheckpointErr() == nil
			}
		}
		return false
	})
}
