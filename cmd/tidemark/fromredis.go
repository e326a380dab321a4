package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/cmd/tidemark/importer"
	"github.com/tidemark-io/tidemark/cmd/tidemark/importer/snapshot"
	"github.com/tidemark-io/tidemark/query/client"
)

// fromRedis takes a snapshot and imports that. What the bucket knows of the
// import decides first: one that is done is not read again, and one that has
// begun with another snapshot goes on with that one alone.
func (i *importCommand) fromRedis(ctx context.Context, t *terminal, nc *nats.Conn) error {
	o := snapshot.Options{URL: i.FromRedis, Progress: t.err}
	source, err := snapshot.Server(i.FromRedis)
	if err != nil {
		return usageError{err}
	}
	if o.Schema, err = i.columns(ctx, nc); err != nil {
		return err
	}
	if o.Patterns, err = snapshot.Expand(i.Pattern, o.Schema); err != nil {
		return usageError{err}
	}
	name := i.Name
	if name == "" {
		all := len(o.Patterns)
		if name, o.Patterns, err = i.rest(ctx, nc, source, o.Patterns); err != nil {
			return err
		}
		if left := all - len(o.Patterns); left > 0 {
			fmt.Fprintf(t.err, "import: %s left as they are: imported before from this Redis\n", count(left, "column"))
		}
	}
	if o.Dir, err = i.spool(name); err != nil {
		return err
	}
	known, begun, err := importer.Imported(ctx, nc, name)
	switch {
	case err != nil:
		return i.explain(err)
	case begun && known.Already && !snapshot.Begun(o.Dir):
		return i.finish(ctx, t, nc, known, nil)
	case begun && !snapshot.Begun(o.Dir):
		return fmt.Errorf("import %s has begun (%s) with a snapshot that is not in %s: give the --spool where it is; --name NAME reads Redis again and sets all counts to what it holds now",
			known.Import, count(int(known.Skipped), "count"), o.Dir)
	}
	taken, err := snapshot.Take(ctx, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted while reading Redis: the same command goes on from there")
	case err != nil:
		return err
	}
	defer taken.Close()
	if taken.Counts == 0 && taken.Faults.Keys == 0 {
		return errors.Join(fmt.Errorf("no key of Redis fits: %s", strings.Join(i.Pattern, ", ")), taken.Remove())
	}
	if err := importer.AddSource(ctx, nc, source, importer.SourceImport{Import: name, Patterns: o.Patterns}); err != nil {
		return i.explain(err)
	}
	result, err := i.importFile(ctx, t, nc, taken.Path, name)
	if err != nil {
		return err
	}
	if err := taken.Remove(); err != nil {
		return fmt.Errorf("all is imported; what is left of the snapshot in %s is not needed any more: %w", o.Dir, err)
	}
	return i.finish(ctx, t, nc, result, &taken.Faults)
}

// rest is what of patterns is to be imported from a Redis, and the name of that import:
// what an earlier command has imported is left as it is. Where all of it was, it is the
// import that has it.
func (i *importCommand) rest(ctx context.Context, nc *nats.Conn, source string, patterns []string) (name string, rest []string, err error) {
	earlier, err := importer.Sources(ctx, nc, source)
	if err != nil {
		return "", nil, i.explain(err)
	}
	by := map[string]string{} // the pattern by which a column was imported
	rest = patterns
	var open []importer.SourceImport
	last := importer.SourceImport{Patterns: patterns}
	for _, e := range earlier {
		known, begun, err := importer.Imported(ctx, nc, e.Import)
		switch {
		case err != nil:
			return "", nil, i.explain(err)
		case !begun:
		case !known.Already:
			open = append(open, e)
		default:
			if len(without(patterns, e.Patterns)) < len(patterns) {
				last = e
			}
			rest = without(rest, e.Patterns)
			for _, p := range e.Patterns {
				by[snapshot.ColumnOf(p)] = p
			}
		}
	}
	if len(rest) == 0 {
		return last.Import, patterns, nil
	}
	for _, e := range open {
		switch others := without(rest, e.Patterns); {
		case len(others) == len(rest): // it has nothing of these
		case len(others) == 0 && len(e.Patterns) == len(rest):
			return e.Import, rest, nil
		default:
			return "", nil, fmt.Errorf("import %s was interrupted: finish it first, by the same command with --pattern '%s'", e.Import, strings.Join(e.Patterns, "' --pattern '"))
		}
	}
	for _, p := range rest {
		if before := by[snapshot.ColumnOf(p)]; before != "" {
			return "", nil, fmt.Errorf("%s was imported from this Redis before, by the pattern '%s': '%s' would set the counts of ids that both have back to what Redis holds now. If that is meant, give the import a name: --name NAME",
				snapshot.ColumnOf(p), before, p)
		}
	}
	name, err = snapshot.Name(i.FromRedis, rest)
	return name, rest, err
}

// without is what of a is not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// columns is what the node counts.
func (i *importCommand) columns(ctx context.Context, nc *nats.Conn) (columns snapshot.Schema, err error) {
	ctx, cancel := context.WithTimeout(ctx, i.Timeout+answerSlack)
	defer cancel()
	schema, err := client.New(nc).Schema(ctx)
	if err != nil {
		return nil, i.explain(err)
	}
	for _, counter := range sortedKeys(schema.Counters) {
		for _, c := range schema.Counters[counter].Columns {
			largest := int64(math.MaxInt64)
			if c.Max > 0 && c.Max < 63 {
				largest = 1<<c.Max - 1
			}
			columns = append(columns, snapshot.Column{Counter: counter, Name: c.Name, Max: largest})
		}
	}
	return columns, nil
}

// spool is the import's own directory.
func (i *importCommand) spool(name string) (string, error) {
	base := i.Spool
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("where to keep what is read from Redis: %w; give a --spool", err)
		}
		base = filepath.Join(cache, "tidemark")
	}
	return filepath.Join(base, importer.ID(name)), nil
}

// writeBad names lines of CSV that were left out.
func writeBad(b *strings.Builder, bad *importer.Bad) {
	fmt.Fprintf(b, "%s left out:\n", count(int(bad.Lines), "line"))
	for _, line := range bad.Examples {
		fmt.Fprintf(b, "  line %d: %s\n", line.Line, printable(line.Error, refusedShown))
	}
	if more := bad.Lines - uint64(len(bad.Examples)); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	fmt.Fprintln(b, "mended, put them in a file of their own: this one, changed, would be another import")
}

// writeFaults names keys of Redis that were left out.
func writeFaults(b *strings.Builder, faults *snapshot.Faults) {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(faults.Reasons)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, faults.Reasons[reason]))
	}
	fmt.Fprintf(b, "%s left out (%s):\n", count(int(faults.Keys), "key"), strings.Join(reasons, ", "))
	for _, f := range faults.Examples {
		field := ""
		if f.Field != "" {
			field = fmt.Sprintf(" field %q", f.Field)
		}
		fmt.Fprintf(b, "  %q%s: %s\n", f.Key, field, printable(f.Error, refusedShown))
	}
	if more := int64(faults.Keys) - int64(len(faults.Examples)); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}
