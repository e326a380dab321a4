package shardlog

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
)

// What is said of many shards at once is one line; what goes on for long is said ever more
// seldom; nothing that was said is lost.
func TestShardLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out e2e.Lines
		l := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		told := func(want string) {
			t.Helper()
			synctest.Wait()
			if out.String() != strings.TrimPrefix(want, "\n") {
				t.Errorf("got\n%s\nwant%s", out.String(), want)
			}
			out.Reset()
		}
		come := func(s pipeline.Shard, from string) { l.Say(slog.LevelInfo, "come", s, nil, "from", from) }
		for s := range pipeline.Shard(64) {
			come(s, "a")
		}
		come(64, "b")
		l.Say(slog.LevelWarn, "fail", 3, errors.New("first"), "from", "a")
		l.Say(slog.LevelWarn, "fail", 5, errors.New("second"), "from", "a")
		told("\nlevel=WARN msg=fail shards=3 number=1 from=a error=first\n") // at once
		time.Sleep(lineWait)
		synctest.Wait()
		got := strings.Split(out.String(), "\n")
		out.Reset()
		if len(got) != 4 {
			t.Errorf("%q", got)
		}
		for _, want := range []string{
			`level=INFO msg=come shards=0-63 number=64 from=a`, `level=INFO msg=come shards=64 number=1 from=b`,
			`level=WARN msg=fail shards=5 number=1 from=a error=second`,
		} {
			if !strings.Contains("\n"+strings.Join(got, "\n"), "\n"+want+"\n") {
				t.Errorf("%q lacks %q", got, want)
			}
		}
		// One each second for half an hour.
		for range 1800 {
			come(7, "a")
			time.Sleep(time.Second)
		}
		if lines := strings.Count(out.String(), "\n"); lines < 25 || lines > 40 {
			t.Errorf("%d lines in half an hour:\n%s", lines, out.String())
		}
		// After a pause it is said at once again.
		time.Sleep(3 * lineWaitMax)
		out.Reset()
		come(9, "a")
		time.Sleep(lineWait)
		told("\nlevel=INFO msg=come shards=9 number=1 from=a\n")
		come(10, "a")
		l.End()
		told("\nlevel=INFO msg=come shards=10 number=1 from=a\n")
		come(11, "a")
		told("\nlevel=INFO msg=come shards=11 number=1 from=a\n")
	})
}

// An error is said at once, and of each shard soon, however long the same has been said of
// others; what is repeated waits.
func TestShardErrorsAreSaidSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out e2e.Lines
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		fail := func(s pipeline.Shard) { l.Say(slog.LevelError, "fail", s, errors.New("why")) }
		lines := func() int {
			synctest.Wait()
			return strings.Count(out.String(), "\n")
		}
		fail(3)
		if n := lines(); n != 1 {
			t.Errorf("%d lines at once", n)
		}
		for range 600 {
			fail(3)
			time.Sleep(time.Second)
		}
		before := lines()
		if before > 20 {
			t.Errorf("%d lines in ten minutes:\n%s", before, out.String())
		}
		for s := range pipeline.Shard(64) {
			fail(s)
		}
		time.Sleep(lineWait)
		if n := lines(); n != before+1 || !strings.Contains(out.String(), "shards=0-63 number=64") {
			t.Errorf("%d lines of shards that fail now:\n%s", n-before, out.String())
		}
		l.End()
	})
}
