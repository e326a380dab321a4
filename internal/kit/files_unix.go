//go:build unix

package kit

import "syscall"

// OpenFilesMax is how many files a process may open: the hard limit, to which Go raises the
// soft one at its start.
func OpenFilesMax() (uint64, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(max(limit.Max, 0)), true
}
