package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/archive"
)

// Place is where backups are kept: named objects that are there whole or not at
// all. It may be used concurrently.
type Place interface {
	// Put stores an object as the reader gives it, in place of one of that name.
	// Where the reader fails nothing is stored.
	Put(ctx context.Context, name string, from io.Reader) error
	// Get reads an object. ErrMissing: it is not there.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List lists the objects whose names begin with a prefix, with their sizes.
	List(ctx context.Context, prefix string) (map[string]int64, error)
	// Delete removes an object; one that is not there is none.
	Delete(ctx context.Context, name string) error
	// Lock keeps other processes from writing to the place. ErrInUse: one does. A
	// process that loses the lock, suspended, writes no manifest and deletes nothing:
	// Put and Delete return ErrInUse.
	Lock(ctx context.Context) (unlock func(), err error)
	// String is how the place is named on a command line.
	String() string
}

// Errors that callers tell apart.
var (
	// ErrMissing: there is no such object.
	ErrMissing = errors.New("backup: it is not there")
	// ErrInUse: another backup is being made.
	ErrInUse = errors.New("backup: another one is being made")
	// ErrCorrupt wraps every complaint about stored bytes.
	ErrCorrupt = archive.ErrCorrupt
	// ErrForeign: the place holds backups of another system.
	ErrForeign = errors.New("backup: of another system")
	// ErrNone: there is no backup that fits.
	ErrNone = errors.New("backup: there is no backup")
)

// bucketPrefix begins the name of a place that is a JetStream object store.
const bucketPrefix = "nats:"

// IsBucket says whether a place's name is that of an object store.
func IsBucket(name string) bool { return strings.HasPrefix(name, bucketPrefix) }

// OpenPlace opens a place by its name: a directory, or "nats:BUCKET", an object
// store on the server that nc is connected to (nil: there is none). create: it is
// made where it is not there.
func OpenPlace(ctx context.Context, name string, nc *nats.Conn, create bool) (Place, error) {
	bucket, is := strings.CutPrefix(name, bucketPrefix)
	switch {
	case is && nc == nil:
		return nil, fmt.Errorf("backup: %s is an object store, and no server is connected", name)
	case is:
		return openBucket(ctx, nc, bucket, create)
	case name == "":
		return nil, errors.New("backup: no place is named")
	}
	return openDirectory(name, create)
}

// read reads a small object.
func read(ctx context.Context, p Place, name string, most int64) ([]byte, error) {
	r, err := p.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrCorrupt, name, most)
	}
	return b, err
}
