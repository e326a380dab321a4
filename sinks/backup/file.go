package backup

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/tidemark-io/tidemark/pipeline/archive"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// file is an object that is read at any byte.
type file struct {
	*os.File
	size int64
}

func (f file) Size() int64 { return f.size }

// openObject opens an object to be read at any byte. Where its place gives objects
// from the beginning only, it is copied to a directory, in a file without a name, and
// compared with its sum on the way; room says before why it may not be.
func openObject(ctx context.Context, p Place, sum archive.Sum, bytes int64, dir string, room func() error) (cold.File, error) {
	r, err := p.Get(ctx, object(sum))
	if err != nil {
		return nil, err
	}
	if f, is := r.(*os.File); is {
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("backup: %w", err)
		}
		return file{f, info.Size()}, nil
	}
	defer r.Close()
	if err := room(); err != nil {
		return nil, fmt.Errorf("backup: copy %s from %s: %w", object(sum), p, err)
	}
	f, err := os.CreateTemp(dir, "base-*")
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("backup: %w", err)
	}
	if _, err := io.Copy(f, &summed{from: io.LimitReader(r, bytes), hash: sha256.New(), want: sum}); err != nil {
		f.Close()
		return nil, fmt.Errorf("backup: read %s in %s: %w", object(sum), p, err)
	}
	return file{f, bytes}, nil
}
