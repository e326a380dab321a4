// Package kit has what several rooms need and the standard library lacks. It imports
// nothing of ours.
//
// A file that must be whole after a power cut is written by [ReplaceFile]; a directory is
// moved by [Move]. Both wait until names are on disk, too: a file that is synced and whose
// directory is not may be gone, or be the one before. No other package renames files
// (rules_test.go).
package kit
