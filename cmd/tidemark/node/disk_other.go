//go:build !(darwin || dragonfly || freebsd || linux)

package node

func checkFree(string) error { return nil }

func diskFree(string) (free uint64, ok bool) { return 0, false }
