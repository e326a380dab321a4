// Package shardlog writes log lines about shards: one line for all shards of which the
// same is said within a while. A node has 64 shards or more, and most of what happens to
// one happens to many. A warning or an error is written at once, and then gathered; a shard of
// which it was not said yet waits for a second at most.
package shardlog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

const (
	// lineWait is how long a line waits for more shards of which the same is said;
	// then twice as long each time, while there are more.
	lineWait    = time.Second
	lineWaitMax = time.Minute
)

// Lines are what is said of shards and not all written yet. Safe for concurrent use.
type Lines struct {
	log  *slog.Logger
	mu   sync.Mutex
	open map[string]*waiting // by level, text and attributes; nil: ended
}

// waiting is what waits to be written.
type waiting struct {
	level  slog.Level
	text   string
	args   []any
	shards cluster.ShardSet
	said   cluster.ShardSet // shards of which it has been written since it was opened
	err    error            // of the first of them that has one
	wait   time.Duration
	timer  *time.Timer
	until  time.Time // when the timer ends
}

// waits has the line be written after a while.
func (w *waiting) waits(wait time.Duration) {
	w.until = time.Now().Add(wait)
	w.timer.Reset(wait)
}

// New makes one that writes to a log. Its caller calls End.
func New(log *slog.Logger) *Lines {
	return &Lines{log: log, open: make(map[string]*waiting)}
}

// Say has a line be written, at once or within a while, about this shard and others of which
// the same is said. Of their errors it has one.
func (l *Lines) Say(level slog.Level, text string, s pipeline.Shard, err error, args ...any) {
	one := waiting{level: level, text: text, args: args, err: err}
	one.shards.Add(s)
	key := fmt.Sprint(level, text, args)
	l.mu.Lock()
	line := l.open[key]
	urgent, now := level >= slog.LevelWarn, l.open == nil
	switch {
	case now:
	case line == nil:
		gathers := one
		if now = urgent; now {
			gathers.shards, gathers.said, gathers.err = cluster.ShardSet{}, one.shards, nil
		}
		gathers.wait, gathers.until = lineWait, time.Now().Add(lineWait)
		gathers.timer = time.AfterFunc(lineWait, func() { l.due(key) })
		l.open[key] = &gathers
	default:
		if urgent && !line.said.Has(s) && time.Until(line.until) > lineWait {
			line.waits(lineWait)
		}
		line.shards.Add(s)
		if line.err == nil {
			line.err = err
		}
	}
	l.mu.Unlock()
	if now {
		l.write(one)
	}
}

// due writes what a line has gathered, and has it gather for twice as long; one that has
// gathered nothing is forgotten.
func (l *Lines) due(key string) {
	l.mu.Lock()
	line := l.open[key]
	if line == nil { // it has ended
		l.mu.Unlock()
		return
	}
	now := *line
	if now.shards.Len() == 0 {
		delete(l.open, key)
	} else {
		for s := range now.shards.All() {
			line.said.Add(s)
		}
		line.shards, line.err = cluster.ShardSet{}, nil
		line.wait = min(2*line.wait, lineWaitMax)
		line.waits(line.wait)
	}
	l.mu.Unlock()
	l.write(now)
}

func (l *Lines) write(line waiting) {
	if line.shards.Len() == 0 {
		return
	}
	args := append([]any{"shards", line.shards.String(), "number", line.shards.Len()}, line.args...)
	if line.err != nil {
		args = append(args, "error", line.err)
	}
	l.log.Log(context.Background(), line.level, line.text, args...)
}

// End writes what has been gathered. What is said afterwards is written at once.
func (l *Lines) End() {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for _, line := range open {
		line.timer.Stop()
		l.write(*line)
	}
}
