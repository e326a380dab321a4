package node

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
	// shardLineWait is how long a line waits for more shards of which the same is said;
	// then twice as long each time, while there are more.
	shardLineWait    = time.Second
	shardLineWaitMax = time.Minute
)

// shardLines write log lines that are about shards: one for all of which the same is said
// within a while. A node has 64 shards or more, and most of what happens to one happens
// to many.
type shardLines struct {
	log  *slog.Logger
	mu   sync.Mutex
	open map[string]*shardLine // by level, text and attributes; nil: ended
}

// shardLine is what waits to be written.
type shardLine struct {
	level  slog.Level
	text   string
	args   []any
	shards cluster.ShardSet
	err    error // of the first of them that has one
	wait   time.Duration
	timer  *time.Timer
}

func newShardLines(log *slog.Logger) *shardLines {
	return &shardLines{log: log, open: make(map[string]*shardLine)}
}

// say has a line be written within a while, about this shard and others of which the same
// is said. Of their errors it has one.
func (l *shardLines) say(level slog.Level, text string, s pipeline.Shard, err error, args ...any) {
	one := shardLine{level: level, text: text, args: args, err: err}
	one.shards.Add(s)
	key := fmt.Sprint(level, text, args)
	l.mu.Lock()
	line := l.open[key]
	ended := l.open == nil
	switch {
	case ended:
	case line == nil:
		one.wait = shardLineWait
		one.timer = time.AfterFunc(one.wait, func() { l.due(key) })
		l.open[key] = &one
	default:
		line.shards.Add(s)
		if line.err == nil {
			line.err = err
		}
	}
	l.mu.Unlock()
	if ended {
		l.write(one)
	}
}

// due writes what a line has gathered, and has it gather for twice as long; one that has
// gathered nothing is forgotten.
func (l *shardLines) due(key string) {
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
		line.shards, line.err = cluster.ShardSet{}, nil
		line.wait = min(2*line.wait, shardLineWaitMax)
		line.timer.Reset(line.wait)
	}
	l.mu.Unlock()
	l.write(now)
}

func (l *shardLines) write(line shardLine) {
	if line.shards.Len() == 0 {
		return
	}
	args := append([]any{"shards", line.shards.String(), "number", line.shards.Len()}, line.args...)
	if line.err != nil {
		args = append(args, "error", line.err)
	}
	l.log.Log(context.Background(), line.level, line.text, args...)
}

// end writes what has been gathered. What is said afterwards is written at once.
func (l *shardLines) end() {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for _, line := range open {
		line.timer.Stop()
		l.write(*line)
	}
}
