package jetlog_test

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// The lease of who makes a backup is another than the router's.
func TestLeaseKeys(t *testing.T) {
	streams, _ := natstest.Streams(t, natstest.Server(t))
	for _, key := range []string{"", jetlog.BackupKey} {
		lease, err := jetlog.NewLease(streams, jetlog.LeaseOptions{Key: key, Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		_, release, err := lease.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if found, err := jetlog.Note(t.Context(), streams, jetlog.NoteBackup, new(int)); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	if err := jetlog.SetNote(t.Context(), streams, jetlog.NoteBackup, strings.Repeat("x", 10)); err != nil {
		t.Error(err)
	}
	var note string
	if found, err := jetlog.Note(t.Context(), streams, jetlog.NoteBackup, &note); !found || err != nil || len(note) != 10 {
		t.Errorf("%v %v %s", found, err, note)
	}
}
