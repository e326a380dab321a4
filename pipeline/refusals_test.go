package pipeline

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// shortLog writes what varies in a line.
func shortLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func letters(n int, from uint64) []DeadLetter {
	var list []DeadLetter
	for i := range n {
		list = append(list, DeadLetter{Position: At(from+uint64(i), 0), Reason: ReasonID, Detail: "actor is missing\n"})
	}
	return list
}

// One line for the first, then one a minute that counts the others.
func TestRefusalLog(t *testing.T) {
	var out strings.Builder
	log := shortLog(&out)
	var r refusalLog
	now := time.Unix(1_700_000_000, 0)
	r.report(log, now, nil)
	r.report(log, now, letters(3, 1))
	for second := range 59 {
		r.report(log, now.Add(time.Duration(second)*time.Second), letters(100, 10))
	}
	r.report(log, now.Add(refusalLogEvery), nil)
	long := letters(1, 5000)
	long[0].Detail = strings.Repeat("x", 5000)
	r.report(log, now.Add(refusalLogEvery), long)
	r.report(log, now.Add(refusalLogEvery), letters(7, 6000))
	r.report(log, now.Add(2*refusalLogEvery), letters(1, 7000))
	r.report(log, now.Add(9*refusalLogEvery), nil)
	want := `events=3 position=1024 reason=id detail="actor is missing\n"
events=5900 position=10240 reason=id detail="actor is missing\n"
events=9 position=5120000 reason=id detail=` + strings.Repeat("x", refusalDetailMax) + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// stillLog is a log that nobody writes to.
type stillLog struct{ Log }

func (stillLog) Tail(context.Context) (Header, uint64, error) { return Header{}, 0, nil }

// What is refused within the minute after a line is reported when the minute is
// over, though nothing else comes.
func TestRefusalsOfAnIdleRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := &Router{Log: stillLog{}, Logger: shortLog(&out)}
		r.refusals.report(r.Logger, time.Now(), letters(1, 1))
		r.refusals.report(r.Logger, time.Now(), letters(2, 5))
		runs := make(chan *run)
		time.AfterFunc(3*refusalLogEvery, func() { close(runs) })
		if _, err := r.next(t.Context(), runs, Header{}, 0); err != nil {
			t.Fatal(err)
		}
		want := `events=1 position=1024 reason=id detail="actor is missing\n"
events=2 position=5120 reason=id detail="actor is missing\n"
`
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
	})
}
