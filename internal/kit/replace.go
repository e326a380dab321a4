package kit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// NewEnd ends the name of a file that is not whole, beside the one that it is to replace.
const NewEnd = ".new"

// syncFile makes a file durable, or which names a directory has. A test listens.
var syncFile = (*os.File).Sync

// ReplaceFile writes a file, in place of one of that name, at one stroke: after a power cut
// too it is the one before or the new one, whole; when ReplaceFile has returned nil, the
// new one. mode is that of a file that is new, before umask. Of two that replace one file
// at the same time the callers take care.
func ReplaceFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(path+NewEnd, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = syncFile(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+NewEnd, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+NewEnd))
	}
	return SyncDir(filepath.Dir(path))
}

// Bytes writes these, for ReplaceFile.
func Bytes(b []byte) func(io.Writer) error {
	return func(to io.Writer) error {
		_, err := to.Write(b)
		return err
	}
}

// Move moves a file or a directory to a name that is free, and makes that durable.
func Move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(SyncDir(filepath.Dir(to)), SyncDir(filepath.Dir(from)))
}

// SyncDir makes durable which names a directory has.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(f), f.Close())
}
