package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// moreColumns are the contract's counters and rules with two columns more, which
// events of before have, too: how often a post was touched by others, and how often
// a user was replied to by somebody else.
const moreColumns = `
counters:
  post: {repost: {bits: 16, suffix: cntrn}, comment: {bits: 16, suffix: cntcm}, like: {bits: 8, suffix: cntan}, touched: {bits: 8}}
  user: {post: {bits: 16}, original: {bits: 16}, following: {bits: 16}, follower: {bits: 16}, friend: {bits: 16},
         reposted: {bits: 16}, commented: {bits: 16}, mentioned: {bits: 16}, liked: {bits: 16}, replied_to: {bits: 8}}
  unread: {repost: {bits: 8}, comment: {bits: 8}, mention: {bits: 8}, like: {bits: 8}, follower: {bits: 8}, message: {bits: 8}}
rules:
  post:
    - {add: user.post, key: actor}
    - {add: user.original, key: actor, unless: repost_of}
    - {add: post.repost, key: repost_of, if: repost_of}
    - {add: post.touched, key: repost_of, if: repost_of}
    - {add: user.reposted, key: author, if: repost_of}
    - {add: unread.repost, key: author, if: repost_of, unless: self}
  comment:
    - {add: post.comment, key: post}
    - {add: post.touched, key: post}
    - {add: user.commented, key: author}
    - {add: user.replied_to, key: author, unless: self}
    - {add: unread.comment, key: author, unless: self}
  like:
    - {add: post.like, key: post}
    - {add: post.touched, key: post}
    - {add: user.liked, key: author}
    - {add: unread.like, key: author, unless: self}
  mention: [{add: user.mentioned, key: target}, {add: unread.mention, key: target, unless: self}]
  message: [{add: unread.message, key: target}]
`

// checkMore compares the columns of moreColumns, for all who are in the feed, with what the
// ledger says of all history.
func checkMore(t *testing.T, nc *nats.Conn, feed *feedOf, at client.Position) {
	t.Helper()
	for counter, of := range map[string]struct {
		column string
		ids    []uint64
	}{"post": {"touched", feed.posts}, "user": {"replied_to", feed.users}} {
		want := table{columns: []string{of.column}, ids: of.ids}
		for _, id := range of.ids {
			count, _ := feed.ledger.between(counter+"."+of.column, id, at, at)
			want.rows = append(want.rows, []int64{count})
		}
		compare(t, nc, counter, "", want, at)
	}
}

// rebuildStatus is what the contract says of `rebuild --status --json`.
type rebuildStatus struct {
	Serving  uint32 `json:"serving"`
	Building uint32 `json:"building"`
	Kept     uint32 `json:"kept"`
	State    string `json:"state"`
	Differs  uint64 `json:"differs"`
	Why      string `json:"why"`
}

// statusOf asks how the newest rebuild stands.
func statusOf(p *e2e.Process) (s rebuildStatus, err error) {
	out, err := p.Command(context.Background(), "rebuild", "--status", "--json").Output()
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("%s: %w", out, err)
	}
	return s, nil
}

// until waits for a state of the rebuild; it gives all those that were seen, the
// same ones once. Who is asked may be killed meanwhile.
func until(t *testing.T, p *e2e.Process, what string, is func(rebuildStatus) bool) (seen []rebuildStatus) {
	t.Helper()
	e2e.Until(t, "the rebuild is "+what, func() bool {
		s, err := statusOf(p)
		if err != nil {
			return false
		}
		if len(seen) == 0 || seen[len(seen)-1] != s {
			seen = append(seen, s)
			t.Logf("%+v", s)
		}
		return is(s)
	})
	return seen
}

// doSoon runs a command and returns what it prints. While it is told to ask again, it
// does.
func doSoon(t *testing.T, p *e2e.Process, args ...string) (printed string) {
	t.Helper()
	e2e.Until(t, "tidemark "+strings.Join(args, " "), func() bool {
		out, err := p.Command(t.Context(), args...).CombinedOutput()
		if printed = string(out); err != nil && !strings.Contains(printed, "ask again") {
			t.Fatalf("tidemark %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return err == nil
	})
	return printed
}

// stateOf is how the newest rebuild stands, as soon as somebody says.
func stateOf(t *testing.T, p *e2e.Process) rebuildStatus {
	t.Helper()
	return until(t, p, "told of", func(rebuildStatus) bool { return true })[0]
}

func serves(generation uint32) func(rebuildStatus) bool {
	return func(s rebuildStatus) bool { return s.Serving == generation && s.State == "switched" }
}

// rebuildFeed is a part of Higgs, or all of it, of which half is imported and half
// is published later; and what the oracle says of it. Now and then there is an event
// that is refused.
type rebuildFeed struct {
	*feedOf
	want string // directory
	half string // file
	rand *rand.Rand
	seed uint64
}

func newRebuildFeed(t *testing.T, from, to int) *rebuildFeed {
	t.Helper()
	if *full {
		from, to = 0, 1<<62
	}
	_, lines := slice(t, from, to)
	const refusedEvery = 23
	var all [][]byte
	for i, line := range lines {
		if all = append(all, line); i%refusedEvery == 0 {
			all = append(all, fmt.Appendf(nil, `{"type":%q,"actor":%d}`, nonsense, i+1))
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &rebuildFeed{rand: rand.New(rand.NewPCG(seed, 15)), seed: seed}
	half := len(all) / 2 / importPack * importPack
	f.feedOf = newImportedFeed(t, all, half, 60, f.rand)
	f.half, f.want = written(t, string(bytes.Join(all[:half], []byte("\n")))+"\n"), oracleOf(t, all)
	return f
}

// importHalf imports the first half.
func (f *rebuildFeed) importHalf(t *testing.T, p *e2e.Process) {
	t.Helper()
	f.sent.Store(uint64(f.imported))
	p.Do("import", f.half, "--pack", strconv.Itoa(importPack))
	f.acked.Store(uint64(f.imported))
	if nc := p.Connect(); lastPosition(t, nc).Sequence() != uint64(f.imported) {
		t.Fatalf("EVENTS ends with message %d, not %d", lastPosition(t, nc).Sequence(), f.imported)
	}
}

// part is how many messages are published after some of the second half: 0 of it, 1
// of it.
func (f *rebuildFeed) part(of float64) int {
	return f.imported + int(of*float64(len(f.messages)-f.imported))
}

// ends compares everything: all old columns and the new ones, what the program
// itself says of all ids, an explanation, and what is in DEADLETTER.
func (f *rebuildFeed) ends(t *testing.T, p *e2e.Process, nc *nats.Conn) {
	t.Helper()
	at := lastPosition(t, nc)
	if at.Sequence() != uint64(len(f.messages)) {
		t.Fatalf("EVENTS ends with message %d, not %d", at.Sequence(), len(f.messages))
	}
	check(t, nc, f.want, at)
	checkMore(t, nc, f.feedOf, at)
	f.letters(t, nc)
	p.Do("verify", "--all") // fails when anything differs
}

// letters compares DEADLETTER with what is refused: each once.
func (f *rebuildFeed) letters(t *testing.T, nc *nats.Conn) {
	t.Helper()
	want := uint64(len(f.ledger.refused))
	if got := natstest.Stream(t, nc, jetlog.DeadLetterStream).CachedInfo().State.Msgs; got != want {
		t.Errorf("%d dead letters, want %d", got, want)
	}
}
