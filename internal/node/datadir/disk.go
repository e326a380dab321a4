package datadir

import (
	"fmt"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// FreeMin is what a start needs: Badger's logs and the streams' first blocks.
const FreeMin = 256 << 20

// LacksRoom says whether a disk has too little left for so many bytes and a start. What
// is not known is no reason.
func LacksRoom(bytes, free uint64, known bool) bool { return known && free < bytes+FreeMin }

// CheckFree refuses to start on a full disk, where everything would fail later
// and worse.
func CheckFree(path string) error {
	if free, known := kit.DiskFree(path); LacksRoom(0, free, known) {
		return fmt.Errorf("data_dir %s: the disk has %d MiB free and %d MiB are needed to start: make room, or choose another data_dir", path, free>>20, FreeMin>>20)
	}
	return nil
}
