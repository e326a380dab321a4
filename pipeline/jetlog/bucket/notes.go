package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// NoteBackup is where the newest backup is: a note that commands leave in the bucket
// for each other. It saves looking around: the backup is looked at where it is.
const NoteBackup = "backup.last"

// SetNote leaves a note.
func SetNote(ctx context.Context, s *jetlog.Streams, key string, value any) error {
	b, err := json.Marshal(value)
	if err == nil {
		_, err = s.KeyValue().Put(ctx, key, b)
	}
	if err != nil {
		return fmt.Errorf("bucket: write %s to bucket %s: %w", key, jetlog.Bucket, err)
	}
	return nil
}

// Note reads one; found is false where there is none.
func Note(ctx context.Context, s *jetlog.Streams, key string, value any) (found bool, err error) {
	e, err := s.KeyValue().Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), value)
	}
	if err != nil {
		return false, fmt.Errorf("bucket: read %s from bucket %s: %w", key, jetlog.Bucket, err)
	}
	return true, nil
}
