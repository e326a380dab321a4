package node

import (
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// What is said of many shards at once is one line; what goes on for long is said ever more
// seldom; nothing that was said is lost.
func TestShardLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out syncBuffer
		reset := func() {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.b.Reset()
		}
		l := newShardLines(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
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
			reset()
		}
		come := func(s pipeline.Shard, from string) { l.say(slog.LevelInfo, "come", s, nil, "from", from) }
		for s := range pipeline.Shard(64) {
			come(s, "a")
		}
		come(64, "b")
		l.say(slog.LevelWarn, "fail", 3, errors.New("first"), "from", "a")
		l.say(slog.LevelWarn, "fail", 5, errors.New("second"), "from", "a")
		told("\n")
		time.Sleep(shardLineWait)
		synctest.Wait()
		got := strings.Split(out.String(), "\n")
		reset()
		if len(got) != 4 {
			t.Errorf("%q", got)
		}
		for _, want := range []string{
			`level=INFO msg=come shards=0-63 number=64 from=a`, `level=INFO msg=come shards=64 number=1 from=b`,
			`level=WARN msg=fail shards=3,5 number=2 from=a error=first`,
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
		time.Sleep(3 * shardLineWaitMax)
		reset()
		come(9, "a")
		time.Sleep(shardLineWait)
		told("\nlevel=INFO msg=come shards=9 number=1 from=a\n")
		come(10, "a")
		l.end()
		told("\nlevel=INFO msg=come shards=10 number=1 from=a\n")
		come(11, "a")
		told("\nlevel=INFO msg=come shards=11 number=1 from=a\n")
	})
}

// A node that takes all shards from another one says so in a line or two.
func TestStartHasFewLines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.start("a")
	f.publish(50)
	f.until("all likes", func() bool { return f.likes(50, 1) })
	b := f.start("b")
	f.until("a part each", func() bool { return settled(a, b) })
	f.stop(a)
	f.stop(b)
	log := f.log.String()
	for _, text := range []string{"tidemark: shards have come", "tidemark: shards are given up, and stay stored"} {
		n := strings.Count(log, text)
		if n == 0 || n > 2 || !regexp.MustCompile(regexp.QuoteMeta(text)+`[^\n]* shards=\d[-,\d]* number=\d`).MatchString(log) {
			t.Errorf("%d lines %q:\n%s", n, text, log)
		}
	}
}
