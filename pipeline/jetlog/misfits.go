package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrMisfit says that an existing stream has a setting we cannot work with.
var ErrMisfit = errors.New("jetlog: existing streams do not fit")

// refuseMisfits compares what is there with what is wanted and says all that
// differs in one error.
func (s *Streams) refuseMisfits(ctx context.Context, want []jetstream.StreamConfig) error {
	var all []string
	for _, w := range want {
		stream, err := s.js.Stream(ctx, w.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("jetlog: look at stream %s: %w", w.Name, orNoJetStream(err))
		}
		all = append(all, misfits(stream.CachedInfo().Config, w)...)
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w (nothing was changed): %s; set the configuration to what the stream has, "+
		"or the stream with `nats stream edit`; what cannot be edited needs a new stream",
		ErrMisfit, strings.Join(all, "; "))
}

// misfits lists the settings of have that would break a promise or that
// differ from the configuration. Those that do neither (placement,
// compression, a longer duplicate window, republishing) are the operator's.
func misfits(have, want jetstream.StreamConfig) []string {
	var list []string
	must := func(fits bool, what string, has, wanted any) {
		if !fits {
			list = append(list, fmt.Sprintf("%s: %s is %v, must be %v", want.Name, what, has, wanted))
		}
	}
	same := func(what string, has, wanted any) { must(has == wanted, what, has, wanted) }

	must(fits(have, want), "subjects", have.Subjects, want.Subjects)
	same("storage", have.Storage, want.Storage)
	same("retention", have.Retention, want.Retention)
	same("discard", have.Discard, want.Discard)
	same("replicas", have.Replicas, want.Replicas)
	same("max bytes", have.MaxBytes, want.MaxBytes)
	same("max age", have.MaxAge, want.MaxAge)
	must(have.MaxMsgs == want.MaxMsgs || want.Name == EventsStream && writesRefused(have), "max messages", have.MaxMsgs, want.MaxMsgs)
	same("max messages per subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	same("max consumers", have.MaxConsumers, want.MaxConsumers)
	same("allow direct", have.AllowDirect, want.AllowDirect)
	same("allow rollup", have.AllowRollup, want.AllowRollup)
	must(have.Duplicates >= want.Duplicates, "duplicate window", have.Duplicates, fmt.Sprintf("at least %v", want.Duplicates))

	least, most := messageBytes(want)
	must(have.MaxMsgSize <= 0 || have.MaxMsgSize >= least, "max message size", have.MaxMsgSize, fmt.Sprintf("at least %d", least))
	must(most <= 0 || have.MaxMsgSize > 0 && have.MaxMsgSize <= most, "max message size", have.MaxMsgSize, fmt.Sprintf("at most %d, the server's max_payload less %d", most, EnvelopeBytes))

	same("no ack", have.NoAck, false)
	same("sealed", have.Sealed, false)
	must(!have.DenyPurge, "deny purge", have.DenyPurge, false)
	same("mirror", have.Mirror != nil, false)
	same("sources", len(have.Sources) > 0, false)
	same("subject transform", have.SubjectTransform != nil, false)
	same("message TTL", have.AllowMsgTTL, false)
	same("message counter", have.AllowMsgCounter, false)
	same("message schedules", have.AllowMsgSchedules, false)
	same("asynchronous persistence", have.PersistMode == jetstream.AsyncPersistMode, false)
	return list
}

func fits(have, want jetstream.StreamConfig) bool {
	return slices.Equal(have.Subjects, want.Subjects) || isDeltas(want.Name) && isEdition(have.Subjects)
}

// messageBytes bounds a stream's own limit on message size. EVENTS may take
// less than the most, but not so little that packs are refused; the others
// take whatever the server does.
func messageBytes(want jetstream.StreamConfig) (least, most int32) {
	if want.Name == EventsStream {
		return min(eventBytesMin, want.MaxMsgSize), want.MaxMsgSize
	}
	return 1<<31 - 1, 0
}
