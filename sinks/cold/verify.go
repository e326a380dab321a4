package cold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
// and a block in checksum │ size 4 B.
func verifyTable(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	index, rest, err := checked(b)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if len(index) < 4 {
		return fmt.Errorf("index: %w", errChecksum)
	}
	size := int(binary.BigEndian.Uint32(index[len(index)-4:]))
	index = index[:len(index)-4]
	if size <= 0 || size > len(index) {
		return fmt.Errorf("index: it has %d of %d bytes", size, len(index))
	}
	index = index[len(index)-size:]
	if err := y.VerifyChecksum(index, rest); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	blocks := fb.GetRootAsTableIndex(index, 0)
	for i := range blocks.OffsetsLength() {
		var block fb.BlockOffset
		blocks.Offsets(&block, i)
		from, to := int(block.Offset()), int(block.Offset())+int(block.Len())
		if from > to || to > len(b) {
			return fmt.Errorf("block %d lies at %d to %d of %d bytes", i, from, to, len(b))
		}
		data, sum, err := checked(b[from:to])
		if err == nil {
			err = y.VerifyChecksum(data, sum)
		}
		if err != nil {
			return fmt.Errorf("block %d at byte %d: %w", i, from, err)
		}
	}
	return nil
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
