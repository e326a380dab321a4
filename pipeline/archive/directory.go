package archive

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// The files of a segment whose first sequence is 1:
//
//	events-00000000000000000001.ndjson.zst
//	events-00000000000000000001.index.zst
//	events-00000000000000000001.json        what the two are; written last
const (
	filePrefix = "events-"
	bodiesEnd  = ".ndjson.zst"
	indexEnd   = ".index.zst"
	sealedEnd  = ".json"
	lockName   = "LOCK"
)

// Directory is a directory of segments that follow on one another. One process
// at a time adds to it; any may read.
type Directory struct {
	// Version is that of pipeline.FormatBackups in which Add writes segments.
	Version int

	files    Files
	segments []Segment
	kept     *kept // nil: what was read is not kept
}

// OpenDirectory opens a directory on disk.
func OpenDirectory(path string) (*Directory, error) { return OpenOn(osFiles(path)) }

// OpenOn reads what a directory says that it has; one that is not there has
// nothing. A segment that is missing, doubled, damaged, or of another EVENTS than
// the others, is an error that names it.
func OpenOn(files Files) (*Directory, error) {
	names, err := files.Names()
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	d := &Directory{files: files, Version: pipeline.FormatBackups.Newest}
	for _, file := range names {
		name, sealed := strings.CutSuffix(file, sealedEnd)
		first, named := strings.CutPrefix(name, filePrefix)
		if !sealed || !named {
			continue
		}
		var s Segment
		b, err := files.Read(file)
		if err == nil {
			err = Unseal(b, &s)
		}
		if err == nil {
			err = d.look(&s)
		}
		if n, bad := strconv.ParseUint(first, 10, 64); err == nil && (bad != nil || n != s.First) {
			err = fmt.Errorf("%w: it is of messages %d to %d, and has another's name", ErrCorrupt, s.First, s.Last)
		}
		if err != nil {
			return nil, fmt.Errorf("archive %s: %s: %w", files, file, err)
		}
		d.segments = append(d.segments, s)
	}
	slices.SortFunc(d.segments, func(a, b Segment) int { return int(int64(a.First - b.First)) })
	if err := Chain(d.segments); err != nil {
		return nil, fmt.Errorf("archive %s: %w", files, err)
	}
	return d, nil
}

// look sees that the two files of a segment are there.
func (d *Directory) look(s *Segment) error {
	for name, f := range map[string]*File{s.name(bodiesEnd): &s.Bodies, s.name(indexEnd): &s.Index} {
		bytes, err := d.files.Size(name)
		if err != nil {
			return err
		}
		if bytes != f.Bytes {
			return fmt.Errorf("%w: %s has %d bytes, and had %d", ErrCorrupt, name, bytes, f.Bytes)
		}
	}
	return nil
}

func (s *Segment) name(end string) string { return fmt.Sprintf("%s%020d%s", filePrefix, s.First, end) }

// String is how it is named on a command line.
func (d *Directory) String() string { return d.files.String() }

// Segments are those that are there, in order.
func (d *Directory) Segments() []Segment { return d.segments }

// Extent is the first and the last sequence covered, and of which EVENTS; zeros
// where there is nothing.
func (d *Directory) Extent() (first, last uint64, events time.Time) {
	if len(d.segments) == 0 {
		return 0, 0, time.Time{}
	}
	end := &d.segments[len(d.segments)-1]
	return d.segments[0].First, end.Last, end.Events
}

// Source reads on after a position, to the end of what is there: then it returns
// io.EOF.
func (d *Directory) Source(from pipeline.Position) (*Source, error) {
	source, err := NewSource(d.segments, from, func(_ context.Context, s *Segment) (bodies, index []byte, err error) {
		if bodies, err = d.files.Read(s.name(bodiesEnd)); err == nil {
			index, err = d.files.Read(s.name(indexEnd))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("archive: %w", err)
		}
		return bodies, index, nil
	})
	if err == nil && d.kept != nil {
		source.read = d.kept.reads(source.read)
	}
	return source, err
}

// Verify reads everything, from message 1 on, and compares it with its checksums.
// progress is called with each segment that is good.
func (d *Directory) Verify(ctx context.Context, progress func(s *Segment)) error {
	source, err := d.Source(0)
	for err == nil && len(source.segments) > 0 {
		s := &source.segments[0]
		if err = source.advance(ctx); err == nil {
			progress(s)
		}
	}
	return err
}

// Add appends the messages up to a sequence, of the EVENTS created then. open gives a
// source of it that begins after a position. A process that is killed during Add leaves
// whole segments, and files that the next Add replaces. An archive of another EVENTS is
// refused, and one that another process writes to ([ErrInUse]); so is one with a gap,
// where EVENTS begins later than it ends. progress is called with each segment that is
// durable.
func (d *Directory) Add(ctx context.Context, events time.Time, begins, last uint64, open func(from pipeline.Position) (pipeline.Source, error), progress func(s *Segment)) error {
	unlock, err := d.files.Lock()
	if err != nil {
		return fmt.Errorf("archive %s: %w", d.files, err)
	}
	defer unlock()
	now, err := OpenOn(d.files) // somebody may have added since
	if err != nil {
		return err
	}
	d.segments = now.segments
	_, end, of := d.Extent()
	next := max(end+1, 1)
	switch {
	case end == 0:
		next = max(begins, 1)
	case !of.Equal(events):
		return fmt.Errorf("archive %s: it is of the EVENTS created at %v, and this one was created at %v: choose another directory", d.files, of, events)
	case begins > next:
		return fmt.Errorf("archive %s: %w: it ends with message %d, and EVENTS begins with %d: begin another archive in another directory", d.files, pipeline.ErrGap, end, begins)
	}
	if next > last {
		return nil
	}
	source, err := open(pipeline.EndOf(next - 1))
	if err != nil {
		return err
	}
	defer source.Close()
	return Write(ctx, source, d.Version, events, next, last, func(s Segment, bodies, index []byte) error {
		if err := d.put(&s, bodies, index); err != nil {
			return fmt.Errorf("archive: messages %d to %d: %w", s.First, s.Last, err)
		}
		d.segments = append(d.segments, s)
		progress(&s)
		return nil
	})
}

// put makes a segment durable: what says that it is there comes last.
func (d *Directory) put(s *Segment, bodies, index []byte) error {
	sealed, err := Seal(s)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		end  string
		data []byte
	}{{bodiesEnd, bodies}, {indexEnd, index}, {sealedEnd, sealed}} {
		if err := d.files.Write(s.name(f.end), f.data); err != nil {
			return err
		}
	}
	return nil
}
