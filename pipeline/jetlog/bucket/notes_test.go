package bucket_test

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// The lease of who makes a backup is another than the router's.
func TestLeaseKeys(t *testing.T) {
	streams, _ := natstest.Streams(t, natstest.Server(t))
	for _, key := range []string{"", bucket.BackupKey} {
		lease, err := bucket.NewLease(streams, bucket.LeaseOptions{Key: key, Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		_, release, err := lease.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if found, err := bucket.Note(t.Context(), streams, bucket.NoteBackup, new(int)); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	if err := bucket.SetNote(t.Context(), streams, bucket.NoteBackup, strings.Repeat("x", 10)); err != nil {
		t.Error(err)
	}
	var note string
	if found, err := bucket.Note(t.Context(), streams, bucket.NoteBackup, &note); !found || err != nil || len(note) != 10 {
		t.Errorf("%v %v %s", found, err, note)
	}
}
