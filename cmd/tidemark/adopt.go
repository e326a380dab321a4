package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

type adoptCommand struct {
	Config string `placeholder:"FILE" help:"The file to change (config.yaml here)."`
	remote
}

func (adoptCommand) Help() string {
	return `Has a configuration file say what serves. What is counted belongs to the generation: a node whose file counts something else counts by the generation, and says so in its log, at /readyz and in 'tidemark nodes'. This ends that by changing the file; 'tidemark rebuild --config FILE' ends it by counting everything again as the file says.

Only the keys that decide what is counted are set: counters, rules, channels, channels_open, feed, limits.channels, limits.notices, inactive_after and shards. Comments and all other keys stay. The file as it was is kept as FILE.bak. A variable of the environment, as TIDEMARK_FEED_RETENTION, wins over the file: where one says something else, the command names it and changes nothing.

EXAMPLE

    tidemark config adopt
    tidemark config adopt --config /etc/tidemark.yaml`
}

// adopted is what the command has done.
type adopted struct {
	File    string   `json:"file"`
	Before  string   `json:"before,omitempty"` // where the file is kept as it was
	Changes []string `json:"changes"`
}

func (a *adoptCommand) Run(t *terminal) error {
	serving, err := a.serving()
	if err != nil {
		return err
	}
	done, err := adopt(cmp.Or(a.Config, defaultFile), serving)
	if err != nil {
		return err
	}
	if a.JSON {
		return printJSON(t.out, done)
	}
	if len(done.Changes) == 0 {
		_, err := fmt.Fprintf(t.out, "%s: counts as what serves; nothing is changed\n", done.File)
		return err
	}
	for _, change := range done.Changes {
		if _, err := fmt.Fprintf(t.out, "%s: %s\n", done.File, change); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(t.out, "%s is the file as it was. A node reads its file when it starts; a TIDEMARK_ variable in its environment wins over it.\n", done.Before)
	return err
}

// serving is the generation that serves.
func (a *adoptCommand) serving() (g generation.Generation, err error) {
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	nc, err := a.dial(true)
	if err != nil {
		return g, err
	}
	defer nc.Close()
	ctx, done := a.reach.untilDenied(ctx)
	defer done()
	set, err := bucket.LoadGenerations(ctx, nc)
	switch {
	case errors.Is(err, jetlog.ErrNoBucket):
		return g, a.silence()
	case err != nil:
		return g, a.explain(err)
	case set.Epoch == 0:
		return g, fmt.Errorf("%w: start a node", generation.ErrGone)
	}
	return set.All[set.Serving], nil
}

// adopt changes a file, and keeps it as it was.
func adopt(file string, serving generation.Generation) (*adopted, error) {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real // else a link would be replaced by a file
	}
	done := &adopted{File: file, Changes: []string{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageError{fmt.Errorf("there is no file %s: name one with --config", file)}
	}
	if err != nil {
		return nil, usageError{err}
	}
	next, words, err := config.Adopt(file, text, os.Environ(), serving.Counting)
	if err != nil || len(words) == 0 {
		return done, err
	}
	done.Changes, done.Before = words, file+".bak"
	info, err := os.Stat(file)
	if err == nil {
		err = kit.ReplaceFile(done.Before, info.Mode().Perm(), kit.Bytes(text))
	}
	if err == nil {
		err = kit.ReplaceFile(file, info.Mode().Perm(), kit.Bytes(next))
	}
	return done, err
}
