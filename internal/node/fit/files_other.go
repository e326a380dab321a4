//go:build !unix

package fit

func filesMax() (uint64, bool) { return 0, false }
