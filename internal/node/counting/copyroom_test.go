package counting

import (
	"strings"
	"testing"
)

// What is copied from an object store leaves a start its room, and the refusal says how
// much is needed, how much is free, and where.
func TestNoRoomToCopy(t *testing.T) {
	if err := noRoomToCopy("/data", 100<<20, 356<<20, true); err != nil {
		t.Error(err)
	}
	if err := noRoomToCopy("/data", 100<<20, 0, false); err != nil {
		t.Errorf("it is not known: %v", err)
	}
	err := noRoomToCopy("/data", 100<<20, 356<<20-1, true)
	if err == nil || !strings.Contains(err.Error(), "takes 100 MiB in data_dir /data") ||
		!strings.Contains(err.Error(), "has 355 MiB free") {
		t.Error(err)
	}
}
