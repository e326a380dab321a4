package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/redistest"
)

// docs/contract.md: "`import --format csv FILE`": "lines `counter,id,column,value`,
// header optional"
func TestImportCSV(t *testing.T) {
	n := shared(t)
	letters := n.lettersEnd(t)
	file := filepath.Join(t.TempDir(), "counts.csv")
	text := "counter,id,column,value\npost,1642,like,1000\npost,1643,like,x\npost,1642,comment,7\nuser,0,follower,1\nposts,44,like,5\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf(`2 lines left out:
  line 3: value "x" is not a whole number
  line 5: 0 is not an id
mended, put them in a file of their own: this one, changed, would be another import
1 line refused (unknown 1):
  line 6: counter posts is not configured
they are kept: tidemark deadletters, tidemark deadletters show %d
`, letters+1)
	r := n.do("import", file, "--format", "csv", "--wait")
	if first, rest, _ := strings.Cut(r.out, "\n"); r.code != 0 || r.err != "" || !strings.HasPrefix(first, "3 lines in 1 pack, ") || rest != left {
		t.Errorf("%+v", r)
	}
	n.want("1000", "get", "1642.cntan")
	n.want("7", "get", "1642.cntcm")

	// A second run sets nothing back.
	n.want("1001", "incr", "1642.cntan")
	r = n.do("import", file, "--format", "csv", "--strict", "--json")
	r.fails(t, 1, "1 line refused")
	got := document(t, r.out)
	if got["already"] != true || got["bad"] != 2.0 || got["bad_lines"].([]any)[1].(map[string]any)["line"] != 5.0 {
		t.Errorf("%+v", r)
	}
	n.want("1001", "get", "1642.cntan")

	n.feed("post,1601,like,1\nnothing", "import", "-", "--format", "csv", "--strict").fails(t, 1, "1 line left out")
	if r := n.feed("post,1602,like,1", "import", "-", "--format", "csv", "--strict"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// docs/contract.md: "`import --from-redis URL --pattern P…`": "SCAN, strings and hashes,
// exact when run again after an interruption"
func TestImportFromRedis(t *testing.T) {
	n := shared(t)
	c := redistest.New(t)
	ctx, url, spool := t.Context(), c.URL(), t.TempDir()
	const posts, first = 3000, 1_000_000
	c.Fill(first+1, first+posts+1, func(p redis.Pipeliner, i int) {
		p.Set(ctx, fmt.Sprintf("post:%d:likes", i), 3*i, 0)
		p.HSet(ctx, fmt.Sprintf("post:%d", i), "comment", i, "text", "hello")
	})
	if err := c.Set(ctx, fmt.Sprintf("post:%d:likes", first+5), "lots", 0).Err(); err != nil {
		t.Fatal(err)
	}
	from := func(pattern string, more ...string) []string {
		return append([]string{"import", "--from-redis", url, "--spool", spool, "--pattern", pattern}, more...)
	}
	const likes = "post:{id}:likes=post.like"
	n.do(from(likes, "--pattern", "post:{id}=post.*")...).fails(t, 2, "another pattern is for post.like already") // post.* has it
	n.do(from("post:{id}=posts.like")...).fails(t, 2, "the node has no column posts.like")
	n.do(from("x{id}=post.like")...).fails(t, 1, "no key of Redis fits: x{id}=post.like")
	n.do("import", "--from-redis", "redis://"+freeAddress(t), "--pattern", "x{id}=post.like", "--spool", spool).fails(t, 1, "no Redis answers at")

	// One that is killed goes on where it has begun, and there alone.
	before := n.eventsEnd(t)
	command := from(likes, "--pattern", "post:{id}#comment=post.comment", "--pack", "1")
	cmd := exec.Command(binary, append(n.flags(), command...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "some are imported", func() bool { return n.eventsEnd(t) > before+100 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	n.do(from(likes, "--pattern", "post:{id}#comment=post.comment", "--spool", t.TempDir())...).fails(t, 1, "has begun", "give the --spool where it is")
	n.good(command...)
	if left, _ := os.ReadDir(spool); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	r := n.do(append(command, "--wait", "--json")...)
	if got := document(t, r.out); r.code != 0 || got["already"] != true || got["skipped"] != 2*posts-1.0 || got["refused"] != 0.0 {
		t.Errorf("%+v", r)
	}
	if packs := n.eventsEnd(t) - before; packs != 2*posts-1 {
		t.Errorf("%d packs", packs)
	}
	for _, post := range []int{first + 1, first + 6, first + posts} {
		n.want(strconv.Itoa(3*post), "get", fmt.Sprintf("%d.cntan", post))
		n.want(strconv.Itoa(post), "get", fmt.Sprintf("%d.cntcm", post))
	}
	n.want("0", "get", fmt.Sprintf("%d.cntan", first+5))

	// docs/contract.md: "the same command again sets nothing back"
	one := fmt.Sprintf("%d.cntan", first+1)
	changed := strconv.Itoa(3*(first+1) + 1)
	n.want(changed, "incr", one)
	if r := n.do(append(command, "--wait")...); r.code != 0 || !strings.HasPrefix(r.out, "imported before: nothing to do") {
		t.Errorf("%+v", r)
	}
	// docs/contract.md: "with more patterns it imports the new columns alone"
	c.Fill(first+1, first+11, func(p redis.Pipeliner, i int) { p.HSet(ctx, fmt.Sprintf("post:%d", i), "repost", 5) })
	r = n.do(append(slices.Clone(command), "--pattern", "post:{id}#repost=post.repost", "--wait")...)
	if r.code != 0 || !strings.HasPrefix(r.out, "10 lines in ") || !strings.Contains(r.err, "import: 2 columns left as they are: imported before from this Redis\n") {
		t.Errorf("%+v", r)
	}
	n.want("5", "get", fmt.Sprintf("%d.cntrn", first+2))
	n.do(from("p*:{id}:likes=post.like")...).fails(t, 1, "post.like was imported from this Redis before, by the pattern '"+likes+"'")
	n.want(changed, "get", one)

	// What cannot be read is named and counted; --strict fails.
	r = n.do(from(likes, "--name", "second", "--strict")...)
	r.fails(t, 1, "1 key left out")
	if !strings.Contains(r.out, fmt.Sprintf("1 key left out (value 1):\n  \"post:%d:likes\": value \"lots\" is not a whole number\n", first+5)) {
		t.Errorf("%+v", r)
	}
	n.want(strconv.Itoa(3*(first+1)), "get", one) // as asked: another name sets it again
}
