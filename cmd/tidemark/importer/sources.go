package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// sourcePrefix begins the keys of what was imported from a source.
const sourcePrefix = "imported."

const (
	// sourceImportsMax bounds the imports of one source.
	sourceImportsMax = 256
	// sourceBytesMax bounds what is kept of them.
	sourceBytesMax = 256 << 10
	// sourceTries bounds how often others may write it at once.
	sourceTries = 20
)

// SourceImport is an import of a part of a source. How far it is, its record says
// ([Imported]).
type SourceImport struct {
	Import   string   `json:"import"`   // its name
	Patterns []string `json:"patterns"` // what of the source it has
}

// Sources are the imports that were begun of a source, such as a Redis, the oldest first.
func Sources(ctx context.Context, nc *nats.Conn, source string) ([]SourceImport, error) {
	s, err := dial(ctx, nc, nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, _, err := s.sources(ctx, source)
	return all, err
}

// AddSource notes that an import of a source begins.
func AddSource(ctx context.Context, nc *nats.Conn, source string, begins SourceImport) error {
	s, err := dial(ctx, nc, nc.NewInbox())
	if err != nil {
		return err
	}
	defer s.close()
	for range sourceTries {
		all, revision, err := s.sources(ctx, source)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(i SourceImport) bool {
			return i.Import == begins.Import && slices.Equal(i.Patterns, begins.Patterns)
		}) {
			return nil
		}
		err = s.writeSources(ctx, source, append(all, begins), revision)
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
	return fmt.Errorf("note import %s of %s: others write there all the time", begins.Import, source)
}

func (s *session) sources(ctx context.Context, source string) (all []SourceImport, revision uint64, err error) {
	e, err := s.bucket.Get(ctx, sourcePrefix+plainName(source))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err == nil:
		err = json.Unmarshal(e.Value(), &all)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("what was imported of %s: %w", source, err)
	}
	return all, e.Revision(), nil
}

func (s *session) writeSources(ctx context.Context, source string, all []SourceImport, revision uint64) error {
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if len(all) > sourceImportsMax || len(b) > sourceBytesMax {
		return fmt.Errorf("%d imports of %s, %d bytes: at most %d, %d bytes, are remembered", len(all), source, len(b), sourceImportsMax, sourceBytesMax)
	}
	key := sourcePrefix + plainName(source)
	if revision == 0 {
		_, err = s.bucket.Create(ctx, key, b)
	} else {
		_, err = s.bucket.Update(ctx, key, b, revision)
	}
	if err != nil {
		err = fmt.Errorf("note what is imported of %s: %w", source, err)
	}
	return err
}
