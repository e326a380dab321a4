package embed

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// serverLog hands the server's log to slog. Notices, a dozen at each start,
// become debug lines. A fatal one is remembered: StartServer returns it.
type serverLog struct {
	to    *slog.Logger
	fatal atomic.Pointer[string]
	// unwritable is the first line that says that a stream cannot be written any more.
	unwritable atomic.Pointer[string]
	// deniedAt is when the log last had what a client was denied, in Unix seconds.
	deniedAt atomic.Int64
}

func (l *serverLog) Noticef(format string, v ...any) { l.to.Debug(line(format, v)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

// unwritableStream begins the line of a stream that cannot be written. A line that a client
// has caused begins with its address, and may have any words after it.
const unwritableStream = "nats-server: JetStream stream '"

// outdated are what the server says of a stream's index after a kill: it is
// written now and then, and made again from the messages.
var outdated = []string{"Stream state outdated", "Recovering stream state from index errored: prior state file"}

func (l *serverLog) Warnf(format string, v ...any) {
	s := line(format, v)
	if strings.Contains(s, "Plaintext passwords detected") {
		l.to.Debug(s) // of clients without credentials: they have none
		return
	}
	if slices.ContainsFunc(outdated, func(o string) bool { return strings.Contains(s, o) }) {
		l.to.Info(s + " (its index, which is behind after a kill, is made again from the messages)")
		return
	}
	l.to.Warn(s)
}

func (l *serverLog) Errorf(format string, v ...any) {
	s := line(format, v)
	if strings.Contains(s, "trying to connect to route") {
		l.to.Info(s + " (it may not have started yet; tried again)")
		return
	}
	if strings.Contains(s, " Violation - ") {
		l.denied(s)
		return
	}
	if strings.HasPrefix(s, unwritableStream) && strings.Contains(s, "critical write error") {
		l.unwritable.CompareAndSwap(nil, &s)
	}
	l.to.Error(s)
}

// denied logs what a client was denied: one line a minute, for a client can do it as often
// as it wants to.
func (l *serverLog) denied(s string) {
	now := time.Now().Unix()
	if last := l.deniedAt.Load(); now-last >= 60 && l.deniedAt.CompareAndSwap(last, now) {
		l.to.Warn(s + " (at most one line a minute says so)")
	}
}

func (l *serverLog) Fatalf(format string, v ...any) {
	s := line(format, v)
	l.fatal.Store(&s)
	l.to.Error(s)
}

func line(format string, v []any) string {
	return "nats-server: " + strings.TrimSpace(fmt.Sprintf(format, v...))
}
