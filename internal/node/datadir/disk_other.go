//go:build !(darwin || dragonfly || freebsd || linux)

package datadir

import "io/fs"

func Free(string) (free uint64, ok bool) { return 0, false }

func Taken(file fs.FileInfo) uint64 { return uint64(file.Size()) }
