package node

import "fmt"

// diskFreeMin is what a start needs: Badger's logs and the streams' first blocks.
const diskFreeMin = 256 << 20

// lacksRoom says whether a disk has too little left for so many bytes and a start. What
// is not known is no reason.
func lacksRoom(bytes, free uint64, known bool) bool { return known && free < bytes+diskFreeMin }

// checkFree refuses to start on a full disk, where everything would fail later
// and worse.
func checkFree(path string) error {
	if free, known := diskFree(path); lacksRoom(0, free, known) {
		return fmt.Errorf("data_dir %s: the disk has %d MiB free and %d MiB are needed to start: make room, or choose another data_dir", path, free>>20, diskFreeMin>>20)
	}
	return nil
}
