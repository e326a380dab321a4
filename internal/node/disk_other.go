//go:build !(darwin || dragonfly || freebsd || linux)

package node

import "io/fs"

func diskFree(string) (free uint64, ok bool) { return 0, false }

func diskTaken(file fs.FileInfo) uint64 { return uint64(file.Size()) }
