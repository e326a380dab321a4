//go:build darwin || dragonfly || freebsd || linux

package kit

import (
	"io/fs"
	"syscall"
)

// DiskFree is how many bytes a disk has left for this process.
func DiskFree(path string) (free uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, false // not every file system knows
	}
	// The types differ from system to system. FreeBSD gives less than nothing
	// where only root may still write.
	blocks, size := int64(s.Bavail), int64(s.Bsize)
	return uint64(max(blocks, 0)) * uint64(size), true
}

// DiskTaken is how many bytes of the disk a file takes: of one with holes, such as
// Badger's logs are, less than its size.
func DiskTaken(file fs.FileInfo) uint64 {
	const block = 512 // of every system's
	if s, is := file.Sys().(*syscall.Stat_t); is {
		return uint64(max(s.Blocks, 0)) * block
	}
	return uint64(file.Size())
}
