package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tidemark-io/tidemark/pipeline"
)

// keptFor is how long a segment is kept after it was read last.
const keptFor = 10 * time.Second

// kept is the segment that was read last, decoded: 16 MiB of bodies and what says
// where they stood. One segment is read at a time.
type kept struct {
	mu       sync.Mutex
	first    uint64 // of the segment; 0: there is none
	messages []pipeline.Message
	used     int // counts

	bytes atomic.Int64 // that they take
}

// messageBytes is what a message takes besides its body: itself, its subject and header.
const messageBytes = int(unsafe.Sizeof(pipeline.Message{})) + 64

// Bytes is what is kept in memory of what was read. It does not block.
func (d *Directory) Bytes() int {
	if d.kept == nil {
		return 0
	}
	return int(d.kept.bytes.Load())
}

// holds notes which segment is kept.
func (k *kept) holds(first uint64, messages []pipeline.Message) {
	k.first, k.messages = first, messages
	bytes := len(messages) * messageBytes
	for i := range messages {
		bytes += len(messages[i].Data)
	}
	k.bytes.Store(int64(bytes))
}

// Keeping is the directory for readers of a little here and a little there: a segment
// is read and decoded whole, so the last one is kept for a while. Its sources share
// their messages: a caller must not change one.
func (d *Directory) Keeping() *Directory {
	return &Directory{files: d.files, segments: d.segments, kept: new(kept)}
}

func (k *kept) reads(read func(ctx context.Context, s *Segment) ([]pipeline.Message, error)) func(ctx context.Context, s *Segment) ([]pipeline.Message, error) {
	return func(ctx context.Context, s *Segment) ([]pipeline.Message, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if err := ctx.Err(); err != nil { // it ended while another segment was read
			return nil, err
		}
		if k.first != s.First {
			k.holds(0, nil) // before there are two
			messages, err := read(ctx, s)
			if err != nil {
				return nil, err
			}
			k.holds(s.First, messages)
		}
		k.used++
		used := k.used
		time.AfterFunc(keptFor, func() { k.drop(used) })
		return k.messages, nil
	}
}

// drop lets go of what nobody has read since.
func (k *kept) drop(used int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used == used {
		k.holds(0, nil)
	}
}
