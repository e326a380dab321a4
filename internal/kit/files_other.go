//go:build !unix

package kit

// OpenFilesMax is how many files a process may open: it is not known.
func OpenFilesMax() (uint64, bool) { return 0, false }
