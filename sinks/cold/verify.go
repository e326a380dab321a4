package cold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Damage is a file whose bytes are not what was written.
type Damage struct {
	File        string
	First, Last pipeline.Shard // whose shards' it may be
	Err         error
}

func (d Damage) Error() string {
	return fmt.Sprintf("cold: the file %s is damaged: %v; its shards are stopped. Stop the node, move generations/ away and run 'tidemark repair --replay'", d.File, d.Err)
}

// Unwrap makes a damage an [ErrCorrupt].
func (d Damage) Unwrap() error { return ErrCorrupt }

// verifyShare is the part of one core that Verify takes: it runs beside the
// start, and nobody waits for it.
const verifyShare = 0.1

// verifyPause bounds a rest: ending the verification waits for as long.
const verifyPause = 250 * time.Millisecond

// Verify reads all that is stored and compares it with its checksums, until
// more says no. A run is read from its file again, its index too. It rests most
// of the time.
func (s *Store) Verify(more func() bool, damaged func(Damage)) {
	more = s.rested(more)
	s.engine.Verify(more, damaged)
	for _, k := range s.stacks {
		v := k.View()
		for _, l := range v.layers.all {
			if !more() {
				break
			}
			switch err := l.verify(more); {
			case err == nil, errors.Is(err, ErrClosed), !slices.Contains(k.list(), l): // no longer a run of the shard
			case !errors.Is(err, ErrCorrupt): // no descriptor left, say
				s.log.Error("cold: a run cannot be read to be verified", "shard", k.number, "file", l.file.name(), "error", err)
			default:
				damaged(Damage{File: l.file.name(), First: k.number, Last: k.number, Err: fmt.Errorf("shard %d, the run at byte %d: %w", k.number, l.at, err)})
			}
		}
		v.Close()
	}
}

// rested is more, and rests for what was worked since it was last called.
func (s *Store) rested(more func() bool) func() bool {
	begun := time.Now()
	return func() bool {
		if worked := time.Since(begun); worked > mergePiece {
			s.pause(min(time.Duration(float64(worked)*(1-verifyShare)/verifyShare), verifyPause))
			begun = time.Now()
		}
		return more()
	}
}

// verify reads a run as it is on disk.
func (l *layer) verify(more func() bool) error {
	r, err := run.Open(l.file, l.at, l.info)
	if err != nil {
		return err
	}
	const askEvery = 1 << 12
	i := r.Iterator(&run.Scratch{Ahead: walkAhead})
	n := 0
	for ; i.Next(); n++ {
		if n%askEvery == 0 && !more() {
			return nil
		}
	}
	if err := i.Err(); err != nil {
		return err
	}
	if n != l.info.Entries {
		return fmt.Errorf("%w: %d entries of %d", ErrCorrupt, n, l.info.Entries)
	}
	return nil
}

// Verify implements [Engine]. Badger itself does not compare: a lookup that
// meets a damaged block says that there is no such key, and with that a counter
// would answer 0.
func (e *badgerEngine) Verify(more func() bool, damaged func(Damage)) {
	for _, t := range e.db.Tables() {
		if !more() {
			return
		}
		file := table.NewFilename(t.ID, e.dir)
		if err := verifyListed(file, func() bool { return e.lists(t.ID) }); err != nil {
			damaged(Damage{File: filepath.Base(file), First: 0, Last: math.MaxUint16, Err: err})
		}
	}
}

// lists says whether a table is still one of the database.
func (e *badgerEngine) lists(id uint64) bool {
	return slices.ContainsFunc(e.db.Tables(), func(t badger.TableInfo) bool { return t.ID == id })
}

// verifyListed checks a table that was listed. One that no longer is has been compacted away:
// Badger takes it off its list, then cuts the file to no bytes, then removes it.
func verifyListed(path string, listed func() bool) error {
	err := verifyTable(path)
	if err != nil && !listed() {
		return nil
	}
	return err
}

var errChecksum = errors.New("the checksum does not match")

// verifyTable checks a table file: its index, and every block that the index
// names. A table ends in
//
//	… blocks │ index │ size 4 B │ checksum │ size of the checksum 4 B
//
// and a block in checksum │ size 4 B. It is read block by block: a memtable of
// badger.memtable bytes becomes one table, and compaction makes larger ones.
func verifyTable(path string) (err error) {
	defer recovered(&err) // VerifyChecksum panics on a kind of checksum that it does not know
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
