package pipeline

import (
	"log/slog"
	"strings"
	"time"
)

const (
	// refusalLogEvery is how often a log hears of refused events: a producer
	// with a fault sends thousands a second.
	refusalLogEvery = time.Minute
	// refusalDetailMax bounds what a line says of one event.
	refusalDetailMax = 256
)

// refusalLog reports dead letters in a log, the first at once and then in one
// line a minute at most, which counts those since the line before and shows the
// first of them. What has not been reported when the process ends, the metrics
// say.
type refusalLog struct {
	reported time.Time
	count    int // since then
	position Position
	reason   Reason // these three of the first since then
	detail   string
}

// report takes more letters, or none: a caller that calls it from time to time gets the
// rest reported.
func (r *refusalLog) report(log *slog.Logger, now time.Time, letters []DeadLetter) {
	if r.count == 0 && len(letters) > 0 {
		l := &letters[0]
		r.position, r.reason, r.detail = l.Position, l.Reason, strings.Clone(l.Detail[:min(len(l.Detail), refusalDetailMax)])
	}
	r.count += len(letters)
	if r.count == 0 || !r.reported.IsZero() && now.Sub(r.reported) < refusalLogEvery {
		return
	}
	log.Warn("router: events are refused; they are kept in DEADLETTER", "events", r.count,
		"position", r.position, "reason", r.reason, "detail", r.detail)
	*r = refusalLog{reported: now}
}
