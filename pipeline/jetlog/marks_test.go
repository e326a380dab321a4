package jetlog_test

import (
	"context"
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
