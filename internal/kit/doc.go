// Package kit has what several rooms need and the standard library lacks. It imports
// nothing of ours.
//
// A file that must be whole after a power cut is written by [ReplaceFile]; a directory is
// moved by [Move]. Both wait until names are on disk, too: a file that is synced and whose
// directory is not may be gone, or be the one before. No other package renames files
// (rules_test.go).
//
// [Paced] keeps the log of what is tried again and again short; [Troubles] has the errors that
// hold at the moment. [SinceBoot] is a clock that a suspension of the machine does not stop.
// The metrics of Prometheus are in kit/figures. [Address] shows an address and [Clean] a text
// without secrets.
//
//	replace.go                                     files and directories that are whole
//	paced.go troubles.go                           what is logged, and what is wrong
//	secret.go                                      what is not shown
//	clock.go boottime_linux.go boottime_other.go   a clock that goes on during a suspension, and Sleep
//	disk_unix.go disk_other.go                     room on a disk
//	files_unix.go files_other.go                   how many files may be open
package kit
