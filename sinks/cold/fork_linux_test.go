package cold

import (
	"os"
	"syscall"
	"testing"
)

// Badger locks its directory, and releases that by closing a file. A process that is just being
// started has a copy of the file until it runs its own program, and holds the lock so long: a store
// could not be opened again behind Close. So Badger's lock is off. That of the data directory is
// released without regard to copies, and keeps other processes out.
func TestForkHoldsNoStore(t *testing.T) {
	dir := t.TempDir()
	copied, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if err := syscall.Flock(int(copied.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, "post: like").Close(); err != nil {
		t.Error(err)
	}
}
