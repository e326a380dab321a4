package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// JetStream has no compare-and-set for the settings of a stream: a process that has read
// them, to change something else, undoes what another one has written since, and none
// of the two learns of it. So what the metadata of EVENTS must not lose, its marks, is
// written to the bucket first, with compare-and-set; and each process that has changed the
// settings reads them, then the bucket, and writes them again until they have all marks.
// The last one to write settings so finds every mark that it may have undone.
//
// The metadata have the marks too, for the bucket may be deleted.

// marksKey is the key of marks in the bucket.
const marksKey = "events"

// settingsMax bounds how often others may undo a change at once.
const settingsMax = 5

// marks are what the metadata of EVENTS must say.
type marks struct {
	Events time.Time         `json:"events"` // when it was created; of another one they say nothing
	Marks  map[string]string `json:"marks"`
}

// marksOf reads the marks of the EVENTS created then, and the revision of the key.
func (s *Streams) marksOf(ctx context.Context, created time.Time) (m marks, revision uint64, err error) {
	none := marks{created, map[string]string{}}
	e, err := s.bucket.Get(ctx, marksKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return none, 0, nil
	case err != nil:
		return none, 0, fmt.Errorf("jetlog: read %s from bucket %s: %w", marksKey, Bucket, err)
	}
	if json.Unmarshal(e.Value(), &m) != nil || m.Marks == nil || !m.Events.Equal(created) { // somebody else's text is none
		return none, e.Revision(), nil
	}
	return m, e.Revision(), nil
}

// changeMarks changes the marks in the bucket, and returns them as they are then. They are
// written also where nothing changes: a copy of the bucket that lags may answer a read;
// only a write is sure.
func (s *Streams) changeMarks(ctx context.Context, created time.Time, change func(marks map[string]string)) (marks, error) {
	for range settingsMax {
		m, revision, err := s.marksOf(ctx, created)
		if err != nil {
			return m, err
		}
		change(m.Marks)
		if err := s.storeMarks(ctx, m, revision); !overtaken(err) {
			return m, err
		}
	}
	return marks{}, fmt.Errorf("jetlog: %s in bucket %s is changed by others all the time", marksKey, Bucket)
}

// setMark writes a mark to the bucket, as change says, which is given the one there is; "":
// none.
func (s *Streams) setMark(ctx context.Context, created time.Time, key string, change func(was string) string) error {
	_, err := s.changeMarks(ctx, created, func(marks map[string]string) {
		if marks[key] = change(marks[key]); marks[key] == "" {
			delete(marks, key)
		}
	})
	return err
}

// marksNow reads the marks as they are, not as they were.
func (s *Streams) marksNow(ctx context.Context, created time.Time) (marks, error) {
	return s.changeMarks(ctx, created, func(map[string]string) {})
}

// storeMarks writes marks over those of a revision; 0: there are none, or the key was
// deleted.
func (s *Streams) storeMarks(ctx context.Context, m marks, revision uint64) error {
	b, err := json.Marshal(m)
	switch {
	case err != nil:
	case revision == 0:
		_, err = s.bucket.Create(ctx, marksKey, b)
	default:
		_, err = s.bucket.Update(ctx, marksKey, b, revision)
	}
	if err != nil {
		return fmt.Errorf("jetlog: write %s to bucket %s: %w", marksKey, Bucket, err)
	}
	return nil
}

// firstMarks writes the key of marks where there is none, so that it is there from the
// first start on and not left behind by what first needs it. Nothing depends on it.
func (s *Streams) firstMarks(ctx context.Context) {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return
	}
	if m, revision, err := s.marksOf(ctx, stream.CachedInfo().Created); err == nil && revision == 0 {
		_ = s.storeMarks(ctx, m, 0)
	}
}

// overtaken says of an error of storeMarks that another process has written the marks.
func overtaken(err error) bool {
	return WrongSequence(err) || errors.Is(err, jetstream.ErrKeyExists)
}

// marked is a stream's settings with the marks.
func marked(c jetstream.StreamConfig, m marks) jetstream.StreamConfig {
	metadata := maps.Clone(c.Metadata)
	if metadata == nil {
		metadata = make(map[string]string)
	}
	for key, value := range m.Marks {
		if key == trimmedKey && trimmedBy(value).Below < trimmedOf(c).Below {
			continue // of a version that writes no marks
		}
		metadata[key] = value
	}
	c.Metadata = metadata
	return c
}

// changeEvents changes the settings of EVENTS, and returns what it is then. change changes
// them where they are not as they should be; its metadata may be written to. It may be
// called more than once.
func (s *Streams) changeEvents(ctx context.Context, change func(c *jetstream.StreamConfig, is jetstream.StreamState)) (*jetstream.StreamInfo, error) {
	look := func(ctx context.Context, created time.Time) (marks, error) {
		m, _, err := s.marksOf(ctx, created)
		return m, err
	}
	for range settingsMax {
		stream, err := s.js.Stream(ctx, EventsStream)
		if err != nil {
			return nil, fmt.Errorf("jetlog: look at stream %s: %w", EventsStream, err)
		}
		info := stream.CachedInfo()
		m, err := look(ctx, info.Created) // after the settings
		if err != nil {
			return nil, err
		}
		c := marked(info.Config, m)
		change(&c, info.State)
		if c.MaxMsgs == info.Config.MaxMsgs && maps.Equal(c.Metadata, info.Config.Metadata) {
			return info, nil
		}
		if _, err := s.js.UpdateStream(ctx, c); err != nil {
			return nil, fmt.Errorf("jetlog: change the settings of stream %s: %w", EventsStream, err)
		}
		look = s.marksNow
	}
	return nil, fmt.Errorf("jetlog: the settings of stream %s are changed by others all the time", EventsStream)
}

// MarkedEvents is State of EVENTS for a process that decides by its marks. It has also those
// that another process has undone a moment ago.
func (s *Streams) MarkedEvents(ctx context.Context) (StreamState, error) {
	stream, err := s.js.Stream(ctx, EventsStream)
	if err != nil {
		return StreamState{}, fmt.Errorf("jetlog: state of stream %s: %w", EventsStream, err)
	}
	info := stream.CachedInfo()
	m, err := s.marksNow(ctx, info.Created)
	info.Config = marked(info.Config, m)
	return stateOf(info), err
}
