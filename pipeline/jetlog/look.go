package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Look is a stream as it is, beside what OpenStreams would make.
type Look struct {
	Name     string
	There    bool
	Misfits  []string       // settings that OpenStreams refuses
	Leader   string         // "": the server is alone, or there is none
	Replicas int            // as its settings say
	Current  int            // of them, those that have all of it
	Damaged  pipeline.Holes // of EVENTS: what readers have found missing
}

// LookAt looks at all streams and the bucket and changes nothing. A stream that is not
// there is no error; DELTAS of the second slot is in the list only if it is there. now is
// the server's clock as it answered first, within precision.
func LookAt(ctx context.Context, nc *nats.Conn, o StreamOptions) (list []Look, now time.Time, precision time.Duration, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, now, 0, fmt.Errorf("jetlog: look at the streams: %w", err)
	}
	o = o.withDefaults()
	configs := o.configs(nc.MaxPayload())
	second := o
	second.Slot = 1 - o.Slot
	for _, c := range append(configs, second.configs(nc.MaxPayload())[1]) {
		asked := time.Now()
		info, err := lookAt(ctx, js, c.Name)
		if err != nil {
			return nil, now, 0, err
		}
		if info != nil && now.IsZero() {
			precision = time.Since(asked) / 2
			now = info.TimeStamp.Add(precision)
		}
		if info != nil || c.Name != second.Slot.Deltas() {
			list = append(list, lookOf(c, info))
		}
	}
	return list, now, precision, nil
}

// LookInStore looks at the streams that an embedded server, which does not run, has stored
// in a directory, streams of one account: at their settings alone.
func LookInStore(dir string, payloadBytesMax int64, o StreamOptions) (list []Look, err error) {
	o = o.withDefaults()
	for _, c := range o.configs(payloadBytesMax) {
		text, err := os.ReadFile(filepath.Join(dir, c.Name, server.JetStreamMetaFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		info := new(jetstream.StreamInfo)
		if err == nil {
			err = json.Unmarshal(text, &info.Config)
		}
		if err != nil {
			return nil, fmt.Errorf("jetlog: look at stream %s: %w", c.Name, err)
		}
		list = append(list, lookOf(c, info))
	}
	return list, nil
}

// lookAt returns nil for a stream that is not there.
func lookAt(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("jetlog: look at stream %s: %w", name, orNoJetStream(err))
	}
	return stream.CachedInfo(), nil
}

func lookOf(want jetstream.StreamConfig, is *jetstream.StreamInfo) Look {
	l := Look{Name: want.Name}
	if is == nil {
		return l
	}
	l.There, l.Misfits, l.Replicas, l.Current = true, misfits(is.Config, want), is.Config.Replicas, 1
	l.Damaged = damagedOf(is.Config.Metadata[damagedKey])
	if is.Cluster == nil {
		return l
	}
	l.Leader = is.Cluster.Leader
	if l.Leader == "" {
		l.Current = 0
	}
	for _, r := range is.Cluster.Replicas {
		if r.Current && !r.Offline {
			l.Current++
		}
	}
	return l
}
