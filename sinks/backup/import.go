package backup

import (
	"context"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// Import fills a store with all shards of a backup, each as of where it stood, and
// compares all that comes. progress is called with the shards; nil: nobody is.
func Import(ctx context.Context, to *cold.Store, p Place, m *Manifest, progress func(done, of int)) error {
	if err := to.SetStreams(cold.Streams{Events: m.Events}); err != nil {
		return err
	}
	if m.Nothing() {
		return nil
	}
	var dictionary cold.Dictionary
	var err error
	for i := range m.Parts {
		if dictionary, err = cold.Union(dictionary, m.Parts[i].Dictionary); err != nil {
			return err
		}
	}
	if err := to.Adopt(dictionary); err != nil {
		return err
	}
	for s := range m.Parts {
		if err := importShard(ctx, to, p, m, pipeline.Shard(s)); err != nil {
			return err
		}
		if progress != nil {
			progress(s+1, len(m.Parts))
		}
	}
	return nil
}

func importShard(ctx context.Context, to *cold.Store, p Place, m *Manifest, shard pipeline.Shard) error {
	i, err := to.Import(shard)
	if err != nil {
		return err
	}
	defer i.Close()
	from := Shard(p, m, shard)
	defer from.Close()
	if err := i.Copy(ctx, from); err != nil {
		return err
	}
	return i.Commit()
}
