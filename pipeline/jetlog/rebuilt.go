package jetlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// rebuiltMark is a subject that the bucket's stream has from the first rebuild on.
// Nobody publishes there. A version from before there were generations knows nothing of
// the record: it would derive generation 1 again beside what serves, and answer by it. But it
// compares the subjects of all streams before it makes or writes anything, and is refused
// with this word.
const rebuiltMark = InternalPrefix + "rebuilt.needs-a-tidemark-that-knows-generations"

// isRebuilt says whether subjects are those of a bucket with the mark.
func isRebuilt(have, want []string) bool {
	return slices.Equal(have, append(slices.Clone(want), rebuiltMark))
}

// markRebuilt marks the bucket, before a record is written there.
func (s *Streams) markRebuilt(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, BucketStream)
	if err != nil {
		return fmt.Errorf("jetlog: look at stream %s: %w", BucketStream, err)
	}
	c := stream.CachedInfo().Config
	if slices.Contains(c.Subjects, rebuiltMark) {
		return nil
	}
	c.Subjects = append(slices.Clone(c.Subjects), rebuiltMark)
	if _, err := s.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("jetlog: mark stream %s, so that versions that know no generations are refused: %w", BucketStream, err)
	}
	s.logger.Info("stream "+BucketStream+" is marked: versions from before there were generations are refused from now on", "subject", strings.TrimPrefix(rebuiltMark, InternalPrefix))
	return nil
}
