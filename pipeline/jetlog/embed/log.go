package embed

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
)

// serverLog hands the server's log to slog. Notices, a dozen at each start,
// become debug lines. A fatal one is remembered: StartServer returns it.
type serverLog struct {
	to    *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *serverLog) Noticef(format string, v ...any) { l.to.Debug(line(format, v)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

// outdated are what the server says of a stream's index after a kill: it is
// written now and then, and made again from the messages.
var outdated = []string{"Stream state outdated", "Recovering stream state from index errored: prior state file"}

func (l *serverLog) Warnf(format string, v ...any) {
	s := line(format, v)
	if slices.ContainsFunc(outdated, func(o string) bool { return strings.Contains(s, o) }) {
		l.to.Info(s + " (its index alone, which is behind after a kill; no message is lost)")
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
	l.to.Error(s)
}

func (l *serverLog) Fatalf(format string, v ...any) {
	s := line(format, v)
	l.fatal.Store(&s)
	l.to.Error(s)
}

func line(format string, v []any) string {
	return "nats-server: " + strings.TrimSpace(fmt.Sprintf(format, v...))
}
