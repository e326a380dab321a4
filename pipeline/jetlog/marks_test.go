package jetlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// overtaken is a process that is overtaken between its read of the settings of EVENTS and
// its first change of them.
type overtaken struct {
	jetstream.JetStream
	by func()
}

func (o *overtaken) UpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if by := o.by; by != nil {
		o.by = nil
		by()
	}
	return o.JetStream.UpdateStream(ctx, c)
}

// No process undoes what another one has EVENTS say, whichever of them is the last to
// write its settings.
func TestMarksAreNotUndone(t *testing.T) {
	set := map[string]func(context.Context, *jetlog.Streams) error{
		"archive": func(ctx context.Context, s *jetlog.Streams) error { return s.SetArchive(ctx, "/archive") },
		"backups": func(ctx context.Context, s *jetlog.Streams) error { return s.SetBackups(ctx, "/backups") },
		"trimmed": func(ctx context.Context, s *jetlog.Streams) error {
			_, err := s.Trim(ctx, 11, "/backups", nil)
			return err
		},
		"refuse": func(ctx context.Context, s *jetlog.Streams) error {
			_, err := s.RefuseWrites(ctx, true)
			return err
		},
	}
	says := func(b *bench, what string) bool {
		state, err := b.streams.State(b.ctx, jetlog.EventsStream)
		b.must(err)
		decides, err := b.streams.MarkedEvents(b.ctx)
		b.must(err)
		switch what {
		case "archive":
			return state.Archive == "/archive" && decides.Archive == "/archive"
		case "backups":
			return state.Backups == "/backups" && decides.Backups == "/backups"
		case "trimmed":
			return state.Trimmed.Below == 11 && decides.Trimmed.Below == 11
		}
		return true // the router sees to it each second
	}
	for first := range set {
		for second := range set {
			if first == second {
				continue
			}
			t.Run(first+" then "+second, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.publish(20)
				other, err := jetlog.AttachEvents(b.ctx, natstest.Connect(t, b.server), 0, nil)
				b.must(err)
				b.streams.WithJetStream(func(js jetstream.JetStream) jetstream.JetStream {
					return &overtaken{js, func() { b.must(set[first](b.ctx, other)) }}
				})
				b.must(set[second](b.ctx, b.streams))
				for _, what := range []string{first, second} {
					if !says(b, what) {
						t.Errorf("EVENTS does not say %s", what)
					}
				}
			})
		}
	}
}

// A process undoes a mark and is killed before it writes it again: a trim that is given up
// then leaves that mark, which the bucket alone has.
func TestTrimGivenUpLeavesTheMarkBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish(20)
	_, err := b.streams.Trim(b.ctx, 6, "/backups", nil)
	b.must(err)
	c := b.stream(jetlog.EventsStream).CachedInfo().Config
	delete(c.Metadata, "tidemark-trimmed")
	_, err = b.js.UpdateStream(b.ctx, c)
	b.must(err)
	no := errors.New("a rebuild has begun")
	if _, err := b.streams.Trim(b.ctx, 11, "/backups", func(context.Context) error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	state, err := b.streams.MarkedEvents(b.ctx)
	b.must(err)
	if state.Trimmed.Below != 6 || state.First != 6 {
		t.Errorf("EVENTS begins with %d, and says that it was trimmed below %d", state.First, state.Trimmed.Below)
	}
}

// An operator may delete the key of the marks: they are written again.
func TestMarksAreDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.must(b.streams.SetArchive(b.ctx, "/archive"))
	bucket, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	for _, remove := range []func(context.Context, string, ...jetstream.KVDeleteOpt) error{bucket.Delete, bucket.Purge} {
		b.must(remove(b.ctx, "events"))
		state, err := b.streams.MarkedEvents(b.ctx)
		if err != nil || state.Archive != "/archive" {
			t.Errorf("%q %v", state.Archive, err)
		}
		b.must(remove(b.ctx, "events"))
		b.must(b.streams.SetBackups(b.ctx, "/backups"))
	}
}
