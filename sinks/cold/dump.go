package cold

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
)

// Dump writes what an engine holds, a line a key, and of each run how large it
// is and the checksum of its bytes. Names of files are left out: stores that
// hold the same, shard by shard, have the same dump.
func Dump(engine Engine, to io.Writer) error {
	return engine.Scan(nil, func(key, value []byte) error {
		if bytes.Equal(key, metaKey) {
			_, err := fmt.Fprintf(to, "meta: %s\n", value)
			return err
		}
		number, err := parseShardKey(key)
		if err != nil {
			return err
		}
		state, runs, err := decodeList(key, value)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "shard %d: %+v\n", number, state)
		for _, r := range runs {
			f, err := openListed(engine, r.file)
			if err != nil {
				return err
			}
			sum := crc32.New(castagnoli)
			_, err = io.Copy(sum, io.NewSectionReader(f, r.at, r.info.Bytes))
			f.Close()
			if err != nil {
				return err
			}
			fmt.Fprintf(to, "  %d entries, %d bytes, %08x\n", r.info.Entries, r.info.Bytes, sum.Sum32())
		}
		return nil
	})
}
