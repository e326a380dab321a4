package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
)

// newBytesReader hides what else a bytes.Reader can do: readers of objects read
// once, from the beginning.
func newBytesReader(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }

// prune keeps the newest backups and removes the others, and all objects that none
// of those names. First the manifests go: a kill leaves objects too many, never a
// manifest without its objects. Nothing is removed where a manifest cannot be read.
func prune(ctx context.Context, p Place, keep int, log *slog.Logger) error {
	all, err := List(ctx, p)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for i, m := range all {
		if i < keep {
			for name := range m.Objects() {
				named[name] = true
			}
			continue
		}
		if err := p.Delete(ctx, manifestPrefix+m.ID+manifestEnd); err != nil {
			return err
		}
		log.Info("backup: an old backup is removed", "id", m.ID, "position", m.Position)
	}
	there, err := p.List(ctx, objectPrefix)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if !named[name] {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("backup: remove objects that no backup names: %w", err)
			}
			if err := p.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
