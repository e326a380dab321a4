package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/redistest"
)

// docs/contract.md: "`import --format csv FILE`": "lines `counter,id,column,value`,
// header optional"
func TestImportCSV(t *testing.T) {
	n := newPlace(t).start(t)
	file := filepath.Join(t.TempDir(), "counts.csv")
	text := "counter,id,column,value\npost,42,like,1000\npost,43,like,x\npost,42,comment,7\nuser,0,follower,1\nposts,44,like,5\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	left := `2 lines left out:
  line 3: value "x" is not a whole number
  line 5: 0 is not an id
mended, put them in a file of their own: this one, changed, would be another import
1 line refused (unknown 1):
  line 6: counter posts is not configured
they are kept: tidemark deadletters, tidemark deadletters show 1
`
	r := n.do("import", file, "--format", "csv", "--wait")
	if first, rest, _ := strings.Cut(r.out, "\n"); r.code != 0 || r.err != "" || !strings.HasPrefix(first, "3 lines in 1 pack, ") || rest != left {
		t.Errorf("%+v", r)
	}
	n.want("1000", "get", "42.cntan")
	n.want("7", "get", "42.cntcm")

	// A second run sets nothing back.
	n.want("1001", "incr", "42.cntan")
	r = n.do("import", file, "--format", "csv", "--strict", "--json")
	r.fails(t, 1, "1 line refused")
	if got := document(t, r.out); got["already"] != true || got["bad"] != 2.0 || got["bad_lines"].([]any)[1].(map[string]any)["line"] != 5.0 {
		t.Errorf("%+v", r)
	}
	n.want("1001", "get", "42.cntan")

	n.feed("post,1,like,1\nnothing", "import", "-", "--format", "csv", "--strict").fails(t, 1, "1 line left out")
	if r := n.feed("post,2,like,1", "import", "-", "--format", "csv", "--strict"); r.code != 0 {
		t.Errorf("%+v", r)
	}

	// Packs of up to 1,024 lines.
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "user,%d,follower,%d\n", i+1, i)
	}
	r = n.feed(many.String(), "import", "-", "--format", "csv", "--wait", "--json")
	if got := document(t, r.out); got["lines"] != 3000.0 || got["packs"] != 3.0 {
		t.Errorf("%+v", r)
	}
	n.want("2999", "get", "3000.user.follower")
}

// docs/contract.md: "`import --from-redis URL --pattern P…`": "SCAN, strings and hashes,
// exact when run again after an interruption"
func TestImportFromRedis(t *testing.T) {
	n := newPlace(t).start(t)
	c := redistest.New(t)
	ctx, url, spool := t.Context(), c.URL(), t.TempDir()
	const posts = 20_000
	c.Fill(1, posts+1, func(p redis.Pipeliner, i int) {
		p.Set(ctx, fmt.Sprintf("post:%d:likes", i), 3*i, 0)
		p.HSet(ctx, fmt.Sprintf("post:%d", i), "comment", i, "text", "hello")
	})
	if err := c.Set(ctx, "post:5:likes", "lots", 0).Err(); err != nil {
		t.Fatal(err)
	}
	command := []string{"import", "--from-redis", url, "--pattern", "post:{id}:likes=post.like", "--pattern", "post:{id}=post.*", "--spool", spool, "--pack", "50"}

	n.do(append(command, "--pattern", "a{id}=post.like")...).fails(t, 2, "another pattern is for post.like already")
	n.do("import", "--from-redis", url, "--pattern", "post:{id}=posts.like").fails(t, 2, "the node has no column posts.like")
	n.do("import", "--from-redis", url, "--pattern", "x{id}=post.like", "--spool", spool).fails(t, 1, "no key of Redis fits: x{id}=post.like")
	n.do("import", "--from-redis", "redis://"+freeAddress(t), "--pattern", "x{id}=post.like", "--spool", spool).fails(t, 1, "no Redis answers at")
	n.do(command...).fails(t, 2, "another pattern is for post.like already") // post.* has it
	command[6] = "post:{id}#comment=post.comment"

	// Killed at any moment, and gone on.
	killed := 0
	for ; ; killed++ {
		cmd := exec.Command(binary, command...)
		cmd.Env = slices.Concat(environ, n.env())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(50+100*killed)*time.Millisecond, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if killed > 50 {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(spool); killed == 0 || len(left) != 0 {
		t.Errorf("killed %d times, left: %v", killed, left)
	}
	state := n.do(append(command, "--wait", "--json")...)
	if got := document(t, state.out); state.code != 0 || got["already"] != true || got["skipped"] != 2*posts-1.0 || got["refused"] != 0.0 {
		t.Errorf("%+v", state)
	}
	js := n.connect(t)
	events, err := js.StreamInfo("EVENTS")
	if err != nil || events.State.Msgs != (2*posts-1+49)/50 {
		t.Errorf("%d packs: %v", events.State.Msgs, err)
	}
	for _, post := range []int{1, 6, 777, posts} {
		n.want(strconv.Itoa(3*post), "get", fmt.Sprintf("%d.cntan", post))
		n.want(strconv.Itoa(post), "get", fmt.Sprintf("%d.cntcm", post))
	}
	n.want("0", "get", "5.cntan")

	// docs/contract.md: "the same command again sets nothing back"
	n.want("4", "incr", "1.cntan")
	if r := n.do(append(command, "--wait")...); r.code != 0 || !strings.HasPrefix(r.out, "imported before: nothing to do") {
		t.Errorf("%+v", r)
	}
	n.want("4", "get", "1.cntan")

	// What cannot be read is named and counted; --strict fails.
	r := n.do("import", "--from-redis", url, "--pattern", "post:{id}:likes=post.like", "--spool", spool, "--name", "second", "--strict")
	r.fails(t, 1, "1 key left out")
	if !strings.Contains(r.out, "1 key left out (value 1):\n  \"post:5:likes\": value \"lots\" is not a whole number\n") {
		t.Errorf("%+v", r)
	}
	n.want("3", "get", "1.cntan") // as asked: another name sets it again

	// docs/contract.md: "with more patterns it imports the new columns alone"
	c.Fill(1, 11, func(p redis.Pipeliner, i int) { p.HSet(ctx, fmt.Sprintf("post:%d", i), "repost", 5*i) })
	n.want("4", "incr", "1.cntan")
	r = n.do(append(slices.Clone(command), "--pattern", "post:{id}#repost=post.repost", "--wait")...)
	if r.code != 0 || !strings.HasPrefix(r.out, "10 lines in ") || !strings.Contains(r.err, "import: 2 columns left as they are: imported before from this Redis\n") {
		t.Errorf("%+v", r)
	}
	n.want("4", "get", "1.cntan")
	n.want("10", "get", "2.cntrn")
	if r := n.do("import", "--from-redis", url, "--pattern", "post:{id}:likes=post.like", "--spool", spool); r.code != 0 || !strings.HasPrefix(r.out, "imported before: nothing to do") {
		t.Errorf("%+v", r)
	}
	n.do("import", "--from-redis", url, "--pattern", "p*:{id}:likes=post.like", "--spool", spool).fails(t, 1, "post.like was imported from this Redis before, by the pattern 'post:{id}:likes=post.like'")
	n.want("4", "get", "1.cntan")

	// One that has begun elsewhere goes on there alone.
	begun := []string{"import", "--from-redis", url, "--pattern", "post:{id}:likes=post.like", "--spool", spool, "--name", "begun"}
	cmd := exec.Command(binary, append(begun, "--pack", "1")...)
	cmd.Env = slices.Concat(environ, n.env())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	before := events.State.Msgs + (posts+49)/50 + 2
	e2e.Until(t, "some are imported", func() bool {
		i, err := js.StreamInfo("EVENTS")
		return err == nil && i.State.Msgs > before+100
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	n.do("import", "--from-redis", url, "--pattern", "post:{id}:likes=post.like", "--spool", t.TempDir(), "--name", "begun").
		fails(t, 1, "import begun has begun", "give the --spool where it is")
	if r := n.do(append(begun, "--wait")...); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
