//go:build !linux

package e2e

import (
	"errors"
	"testing"
)

// Disk is a file system of its own that can be filled; on Linux alone.
type Disk struct{ Path string }

// NewDisk says that there is none.
func NewDisk(testing.TB, string, int64) (*Disk, error) {
	return nil, errors.New("small disks for tests are made on Linux only")
}

// Release is for the disks that there are.
func (*Disk) Release() error { return nil }

// Fill is for the disks that there are.
func (*Disk) Fill(testing.TB) {}

// Free is for the disks that there are.
func (*Disk) Free(testing.TB) {}

// Full is for the disks that there are.
func (*Disk) Full() bool { return false }
