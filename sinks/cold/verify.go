package cold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Damage is a table whose bytes are not what Badger wrote.
type Damage struct {
	File        string
	First, Last pipeline.Shard // whose keys it may hold
	Err         error
}

func (d Damage) Error() string {
	return fmt.Sprintf("cold: the table %s is damaged: %v; its shards are stopped. Stop the node, move badger/ away and run 'tidemark repair --replay'", d.File, d.Err)
}

// Unwrap makes a damage an [ErrCorrupt].
func (d Damage) Unwrap() error { return ErrCorrupt }

// Verify implements [Engine]. Badger itself does not compare: a lookup that
// meets a damaged block says that there is no such key, and with that a counter
// would answer 0.
func (e *badgerEngine) Verify(more func() bool, damaged func(Damage)) {
	for _, t := range e.db.Tables() {
		if !more() {
			return
		}
		file := table.NewFilename(t.ID, e.dir)
		err := verifyTable(file)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // compacted away meanwhile
			continue
		}
		damaged(Damage{File: filepath.Base(file), First: shardOf(t.Left), Last: shardOf(t.Right), Err: err})
	}
}

// shardOf is the shard of a key of Badger's; those that are no shard's come
// before the first.
func shardOf(key []byte) pipeline.Shard {
	if len(key) < 3 || key[0] != prefixShard {
		return 0
	}
	return pipeline.Shard(binary.BigEndian.Uint16(key[1:]))
}

var errChecksum = errors.New("the checksum does not match")

// verifyTable checks a table file: its index, and every block that the index
// names. A table ends in
//
//	… blocks │ index │ size 4 B │ checksum │ size of the checksum 4 B
//
// and a block in checksum │ size 4 B. It is read block by block: a memtable of
// badger.memtable bytes becomes one table, and compaction makes larger ones.
func verifyTable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	tail, err := readTail(f, size)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	index, sum, err := checked(tail)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	index = index[:len(index)-4]
	if err := y.VerifyChecksum(index, sum); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	blocks := fb.GetRootAsTableIndex(index, 0)
	var b []byte
	for i := range blocks.OffsetsLength() {
		var block fb.BlockOffset
		blocks.Offsets(&block, i)
		from, to := int64(block.Offset()), int64(block.Offset())+int64(block.Len())
		if to > size {
			return fmt.Errorf("block %d lies at %d to %d of %d bytes", i, from, to, size)
		}
		b = slices.Grow(b[:0], int(to-from))[:to-from]
		if _, err := f.ReadAt(b, from); err != nil {
			return fmt.Errorf("block %d at byte %d: %w", i, from, err)
		}
		data, sum, err := checked(b)
		if err == nil {
			err = y.VerifyChecksum(data, sum)
		}
		if err != nil {
			return fmt.Errorf("block %d at byte %d: %w", i, from, err)
		}
	}
	return nil
}

// readTail reads a table from its index on.
func readTail(f io.ReaderAt, size int64) (tail []byte, err error) {
	// The length of the checksum, then of the index, say how far it goes back.
	length := int64(0)
	for range 2 {
		length += 4
		if length > size {
			return nil, errChecksum
		}
		var b [4]byte
		if _, err := f.ReadAt(b[:], size-length); err != nil {
			return nil, err
		}
		length += int64(binary.BigEndian.Uint32(b[:]))
	}
	if length > size {
		return nil, errChecksum
	}
	tail = make([]byte, length)
	_, err = f.ReadAt(tail, size-length)
	return tail, err
}

// checked splits off the checksum at the end.
func checked(b []byte) (data []byte, sum *pb.Checksum, err error) {
	if len(b) < 4 {
		return nil, nil, errChecksum
	}
	size := int(binary.BigEndian.Uint32(b[len(b)-4:]))
	b = b[:len(b)-4]
	if size <= 0 || size > len(b) {
		return nil, nil, errChecksum
	}
	sum = new(pb.Checksum)
	if err := proto.Unmarshal(b[len(b)-size:], sum); err != nil {
		return nil, nil, errChecksum
	}
	return b[:len(b)-size], sum, nil
}
