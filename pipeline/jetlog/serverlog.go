package jetlog

import (
	"fmt"
	"log/slog"
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
func (l *serverLog) Warnf(format string, v ...any)   { l.to.Warn(line(format, v)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.to.Error(line(format, v)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) Fatalf(format string, v ...any) {
	s := line(format, v)
	l.fatal.Store(&s)
	l.to.Error(s)
}

func line(format string, v []any) string {
	return "nats-server: " + strings.TrimSpace(fmt.Sprintf(format, v...))
}
