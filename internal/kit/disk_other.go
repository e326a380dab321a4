//go:build !(darwin || dragonfly || freebsd || linux)

package kit

import "io/fs"

// DiskFree is how many bytes a disk has left for this process: it is not known.
func DiskFree(string) (free uint64, ok bool) { return 0, false }

// DiskTaken is how many bytes of the disk a file takes, as far as is known.
func DiskTaken(file fs.FileInfo) uint64 { return uint64(file.Size()) }
