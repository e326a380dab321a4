package acceptance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

// Hostile load: requests of maximal size, ids all in one shard, 10^5 unknown ids, slow
// readers, producers at full speed during queries. Memory is bounded, and what is not
// answered gets a clear 4xx or 5xx.
//
// What others' latency comes to is measured, not asserted: `make bench`, the lines of
// small requests.

const (
	idsMax = 10_000 // limits.ids
	// hostilePosts have as many likes as their number; firstUser's followers
	// are as many users as one page may list, and firstUser follows them.
	hostilePosts = 12_000
	firstUser    = 1_000_000
	hostileUsers = 10_000
)

// hostileTown is a node with these, and a connection to it.
func hostileTown(t *testing.T, p *e2e.Process) *nats.Conn {
	t.Helper()
	nc := p.Connect()
	pack(t, nc, func(add func(client.Event)) {
		for i := range uint64(hostilePosts) {
			add(client.AdjustSet("post", i+1, "like", int64(i+1)))
		}
		for i := range uint64(hostileUsers) {
			add(client.Follow(firstUser, firstUser+1+i))
			add(client.Follow(firstUser+1+i, firstUser))
			add(client.Message(1, firstUser+1+i))
		}
		for i := range uint64(hostileUsers) {
			add(client.Post(firstUser+1+i, 1_000_000_000+i))
		}
	})
	return nc
}

// pack publishes events and returns once answers have them in.
func pack(t *testing.T, nc *nats.Conn, write func(add func(client.Event))) {
	t.Helper()
	c := client.New(nc)
	p, err := c.NewPacker(client.PackOptions{LinesMax: pipeline.PackMax, Delay: -1})
	if err != nil {
		t.Fatal(err)
	}
	write(func(e client.Event) {
		if err == nil {
			err = p.Add(e)
		}
	})
	if err := errors.Join(err, p.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(context.Background(), client.GetRequest{Counter: "post", MinPosition: p.Position(), Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// undelivered is what the server says of a request that it cannot hand over.
const undelivered = "503 from the server"

// asked is a reply as it comes: a body, or "code text" of an error.
func asked(m *nats.Msg) string {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return undelivered
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		return code + " " + m.Header.Get("Nats-Service-Error")
	}
	return string(m.Data)
}

func askRaw(t *testing.T, nc *nats.Conn, endpoint, body string) string {
	t.Helper()
	reply, err := nc.Request("tidemark."+endpoint, []byte(body), 30*time.Second)
	if err != nil {
		t.Fatalf("%s %.100s: %v", endpoint, body, err)
	}
	return asked(reply)
}

// list is a JSON array of n ids from the first on.
func list(first uint64, n int) string {
	b := []byte{'['}
	for i := range uint64(n) {
		b = append(strconv.AppendUint(b, first+i, 10), ',')
	}
	return string(append(b[:len(b)-1], ']'))
}

// likesOf is the answer to a get of likes, without its end.
func likesOf(ids []uint64) string {
	var b strings.Builder
	b.WriteString(`{"rows":[`)
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		likes := id
		if id > hostilePosts {
			likes = 0
		}
		fmt.Fprintf(&b, `{"id":"%d","like":%d}`, id, likes)
	}
	b.WriteString(`],"as_of":"`)
	return b.String()
}

func ascending(first uint64, n int) (ids []uint64) {
	for i := range uint64(n) {
		ids = append(ids, first+i)
	}
	return ids
}

// docs/contract.md: "At most 10,000 ids (or users) a request." "400 with what is wrong
// and where, 404 unknown counter or column, 413 too many"
func TestRequestsAtTheirLimits(t *testing.T) {
	// Unread of 10,000 users is some 1.5 MB of answer: more than NATS's usual 1 MiB.
	const payload = 4 << 20
	server, err := embed.StartServer(embed.ServerOptions{
		Listen: "127.0.0.1:0", StoreDir: t.TempDir(), SyncInterval: time.Second, StoreBytesMax: 1 << 40, PayloadBytesMax: payload,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	nc := hostileTown(t, e2e.RunOn(t, server.URL(), "shards: 4\n"))

	likes := func(ids string, more string) string {
		return `{"counter":"post","columns":["like"],"ids":` + ids + more + `}`
	}
	for _, c := range []struct{ endpoint, body, want string }{
		{"get", likes(list(1, idsMax+1), ""), "413 ids: more than 10000 in one request; ask in parts"},
		{"get", likes(strings.Replace(list(1, idsMax), "777,", "0,", 1), ""), "400 ids[776]: 0 is not an id: ids are whole numbers from 1 to 18446744073709551615, as numbers or strings"},
		{"get", likes(list(1, idsMax)[1:], ""), "400 ids: 1 is not a list"},
		{"get", `{"counter":"posts","ids":` + list(1, idsMax) + `}`, `404 counter "posts" is unknown; there are: post, user, unread`},
		{"unread", `{"users":` + list(1, idsMax+1) + `}`, "413 users: more than 10000 in one request; ask in parts"},
		{"feed", `{"user":1000000,"limit":1001}`, "413 limit: 1001 is more than 1000; ask for one page after the other"},
		{"following", `{"user":1000000,"limit":10001}`, "413 limit: 10001 is more than 10000; ask for one page after the other"},
		{"followers", `{"user":1000000,"limit":10001}`, "413 limit: 10001 is more than 10000; ask for one page after the other"},
		{"read", `{"user":7,"what":[` + strings.Repeat(`"all",`, 128) + `"all"]}`, "413 what: more than 128 names"},
	} {
		if got := askRaw(t, nc, c.endpoint, c.body); got != c.want {
			t.Errorf("%s %.60s…\ngot  %.300s\nwant %s", c.endpoint, c.body, got, c.want)
		}
	}

	want := likesOf(ascending(1, idsMax))
	body := likes(list(1, idsMax), "")
	if got := askRaw(t, nc, "get", body); !strings.HasPrefix(got, want) {
		t.Errorf("10,000 ids: %.300s", got)
	}
	// As many bytes as the server takes, and one more.
	body = likes(list(1, idsMax), strings.Repeat(" ", payload-len(body)))
	if got := askRaw(t, nc, "get", body); !strings.HasPrefix(got, want) {
		t.Errorf("%d bytes: %.300s", len(body), got)
	}
	if got := wordsOfRaw(t, server.URL(), fmt.Sprintf("PUB tidemark.get answer %d\r\n", payload+1)); !strings.Contains(got, "Maximum Payload") {
		t.Errorf("%d bytes: %s", payload+1, got)
	}

	unread := askRaw(t, nc, "unread", `{"users":`+list(firstUser+1, hostileUsers)+`}`)
	if n := strings.Count(unread, `"message":1}`); n != hostileUsers {
		t.Errorf("10,000 users: %d with one message: %.300s", n, unread)
	}
	feed := askRaw(t, nc, "feed", `{"user":1000000,"limit":1000}`)
	if n := strings.Count(feed, `{"post":"10000`); n != 1000 || !strings.Contains(feed, `"next":`) {
		t.Errorf("a feed of 1,000 posts: %d: %.300s", n, feed)
	}
	for _, endpoint := range []string{"following", "followers"} {
		got := askRaw(t, nc, endpoint, `{"user":1000000,"limit":10000}`)
		var page struct{ Users []string }
		if err := json.Unmarshal([]byte(got), &page); err != nil || len(page.Users) != hostileUsers || page.Users[9999] != "1010000" {
			t.Errorf("%s: %d users, %v: %.300s", endpoint, len(page.Users), err, got)
		}
	}
}

// docs/contract.md: "At most 10,000 ids (or users) a request": as many are answered by a
// node as it comes, also when ids and counts are long.
func TestAsManyAsTheContractSays(t *testing.T) {
	nc := e2e.Run(t, "").Connect()
	const first = 1<<64 - 1 - idsMax
	pack(t, nc, func(add func(client.Event)) {
		for i := range uint64(idsMax) {
			for _, column := range []string{"post", "original", "following", "follower", "friend", "reposted", "commented", "mentioned", "liked"} {
				add(client.AdjustSet("user", first+i, column, 1<<40))
			}
			for _, column := range []string{"repost", "comment", "mention", "like", "follower", "message"} {
				add(client.AdjustSet("unread", first+i, column, 1<<40))
			}
		}
	})
	for endpoint, body := range map[string]string{
		"get":    `{"counter":"user","ids":` + list(first, idsMax) + `}`,
		"unread": `{"users":` + list(first, idsMax) + `}`,
	} {
		got := askRaw(t, nc, endpoint, body)
		if n := strings.Count(got, fmt.Sprint(1<<40)); n != idsMax*map[string]int{"get": 9, "unread": 6}[endpoint] {
			t.Errorf("%s of 10,000 users: %d counts: %.300s", endpoint, n, got)
		}
	}
}

// A window's rows fit one transaction also where transactions are smallest and
// all of it is for one shard.
func TestSmallTransactions(t *testing.T) {
	const users = 12_000
	p := e2e.Run(t, "shards: 1\ncheckpoint: {rows: 7500}\nbadger: {memtable: 8MiB}\n")
	nc := p.Connect()
	pack(t, nc, func(add func(client.Event)) {
		for i := range uint64(users) { // two edges and four rows each
			add(client.Follow(1+i, 1_000_001+i))
		}
	})
	if got, want := askRaw(t, nc, "get", `{"counter":"user","columns":["follower"],"ids":[1000001,1012000]}`), `{"rows":[{"id":"1000001","follower":1},{"id":"1012000","follower":1}],`; !strings.HasPrefix(got, want) {
		t.Errorf("got %.200s, want %s…", got, want)
	}
}

// wordsOfRaw is what a server says to a client that speaks the protocol itself,
// until it has said an error.
func wordsOfRaw(t *testing.T, url, say string) (all string) {
	t.Helper()
	conn := rawConn(t, url)
	defer conn.Close()
	if _, err := conn.Write([]byte(say)); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if all += lines.Text() + "\n"; strings.Contains(lines.Text(), "-ERR") {
			break
		}
	}
	return all
}

func rawConn(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("CONNECT {\"verbose\":false}\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

// anonymous is the node's memory without pages of files, in MiB.
func anonymous(t *testing.T, p *e2e.Process) int {
	t.Helper()
	held, ok := p.Anonymous()
	if !ok {
		t.Skip("the system does not tell a process's memory")
	}
	return held >> 20
}

// figure sums up a metric of the node over its labels.
func figure(t *testing.T, p *e2e.Process, name string) (sum float64) {
	t.Helper()
	r, err := http.Get(p.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// Ids that are all in one shard, and 10^5 unknown ids: answered like all others, and what
// nobody has heard of leaves nothing behind, on a node that holds everything in memory
// and on one that must look for it on disk.
func TestOneShardAndUnknownIDs(t *testing.T) {
	for name, settings := range map[string]string{
		"all in memory": "shards: 4\n",
		"with a budget": "shards: 4\nmemory: {budget: 36MiB}\nbadger: {memtable: 8MiB}\ncheckpoint: {interval: 50ms, rows: 2048}\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := e2e.Run(t, settings)
			nc := hostileTown(t, p)
			if name != "all in memory" { // rows enough that not all of them fit
				pack(t, nc, func(add func(client.Event)) {
					for i := range uint64(150_000) {
						add(client.AdjustSet("user", 1<<40+i, "liked", 1<<40))
					}
				})
			}
			inShard := make([]uint64, 0, idsMax)
			for id := uint64(1); len(inShard) < idsMax; id = id%hostilePosts + 1 {
				if pipeline.ShardOf(id, 4) == 2 {
					inShard = append(inShard, id)
				}
			}
			oneShard := strings.Join(strings.Fields(fmt.Sprint(inShard)), ",")
			oneShard = `{"counter":"post","columns":["like"],"ids":` + oneShard + `}`
			want := likesOf(inShard)
			var asking sync.WaitGroup
			for range 4 {
				asking.Go(func() {
					for range 5 {
						if got := askRaw(t, nc, "get", oneShard); !strings.HasPrefix(got, want) {
							t.Errorf("%.300s", got)
							return
						}
					}
				})
			}
			asking.Wait()

			unknown := func(first, n uint64) {
				for at := first; at < first+n; at += idsMax {
					if got := askRaw(t, nc, "get", `{"counter":"post","columns":["like"],"ids":`+list(at, idsMax)+`}`); !strings.HasPrefix(got, likesOf(ascending(at, idsMax))) {
						t.Fatalf("%.300s", got)
					}
					got := askRaw(t, nc, "unread", `{"users":`+list(at, 5000)+`}`)
					if n := strings.Count(got, `"feed":0,"counts":{"repost":0,"comment":0,"mention":0,"like":0,"follower":0,"message":0},"channels":{},"dots":{}}`); n != 5000 {
						t.Fatalf("%d of 5,000 users without anything: %.300s", n, got)
					}
				}
			}
			unknown(1<<50, 20_000) // the buffers of large requests are there after this
			rows, memory := figure(t, p, "tidemark_row_bytes"), anonymous(t, p)
			rounds := uint64(2)
			if name != "all in memory" {
				rounds = 1 // each id is looked for on disk
			}
			for round := range rounds {
				unknown(1<<51+round<<40, 100_000)
			}
			// To remember 100,000 ids would take 1.6 MB of rows in each counter.
			// Absences found on disk are kept in the cache of rows read, which is
			// an eighth of the rows' memory.
			if grown := figure(t, p, "tidemark_row_bytes") - rows; grown > 1<<20 {
				t.Errorf("rows take %.0f bytes more than before", grown)
			}
			// The collector lets the heap grow to twice what is in use: with
			// answers of a megabyte under way RssAnon swings by some 100 MiB.
			if grown := anonymous(t, p) - memory; grown > 192 {
				t.Errorf("RssAnon is %d MiB more than the %d before", grown, memory)
			}
			t.Logf("RssAnon %d MiB, before %d; rows %.0f bytes, before %.0f", anonymous(t, p), memory, figure(t, p, "tidemark_row_bytes"), rows)
		})
	}
}

// cutOffWithin bounds how long somebody who does not read is kept, on a machine that
// does much besides.
const cutOffWithin = 2 * time.Minute

// "slow readers": who asks and does not read the answers, or listens to
// everybody's and stalls, is cut off; the others are answered, and the node's
// memory is what the server keeps for a client at most.
func TestSlowReaders(t *testing.T) {
	p := e2e.Run(t, "shards: 4\n")
	nc := hostileTown(t, p)
	before := anonymous(t, p)
	var asking sync.WaitGroup
	eavesdropper := rawConn(t, p.URL)
	if _, err := eavesdropper.Write([]byte("SUB _INBOX.> 1\r\n")); err != nil {
		t.Fatal(err)
	}
	// Nobody reads from these: that one was cut off shows when it cannot be
	// written to any more.
	begun := time.Now()
	var left atomic.Int32
	cutOff := func(conn net.Conn, say []byte, every time.Duration) {
		left.Add(1)
		asking.Go(func() {
			defer left.Add(-1)
			for range time.Tick(every) {
				if _, err := conn.Write(say); err != nil {
					t.Logf("cut off after %v", time.Since(begun))
					return
				}
			}
		})
	}
	cutOff(eavesdropper, []byte("PING\r\n"), 20*time.Millisecond)
	const slow = 3
	body := `{"counter":"post","ids":` + list(1, 1000) + `}`
	publish := fmt.Appendf(nil, "PUB tidemark.get _INBOX.slow %d\r\n%s\r\n", len(body), body)
	for range slow {
		conn := rawConn(t, p.URL)
		if _, err := conn.Write([]byte("SUB _INBOX.slow 1\r\n")); err != nil {
			t.Fatal(err)
		}
		// Answers of 58 kB to each of all: the server keeps 64 MiB.
		cutOff(conn, publish, time.Millisecond)
	}
	most := 0
	small := `{"counter":"post","columns":["like"],"ids":` + list(1, 10) + `}`
	want := likesOf(ascending(1, 10))
	for i := 0; i < 200 || left.Load() > 0; i++ {
		if left.Load() > 0 && time.Since(begun) > cutOffWithin {
			t.Fatalf("%d of %d that do not read are not cut off within %v", left.Load(), slow+1, cutOffWithin)
		}
		if got := askRaw(t, nc, "get", small); !strings.HasPrefix(got, want) {
			t.Fatalf("%.300s", got)
		}
		if got := askRaw(t, nc, "unread", `{"users":[1000001]}`); !strings.Contains(got, `"message":1}`) {
			t.Fatalf("%.300s", got)
		}
		if left.Load() == 1 {
			askRaw(t, nc, "get", body) // the eavesdropper may be the last, and the others have stopped asking
		}
		most = max(most, anonymous(t, p))
		time.Sleep(5 * time.Millisecond)
	}
	asking.Wait()
	// For each of those who do not read the server keeps 64 MiB at most, and
	// the collector may let the heap grow to twice of what is in use.
	if bound := before + 2*64*(slow+1) + 128; most > bound {
		t.Errorf("RssAnon was %d MiB, %d before: more than %d", most, before, bound)
	}
	t.Logf("RssAnon at most %d MiB, %d before", most, before)
}

// "clear 4xx/5xx otherwise": of far more requests at once than the lanes hold,
// each is answered, rightly or with 503 and the reason; small ones all rightly.
func TestMoreRequestsThanLanesHold(t *testing.T) {
	p := e2e.Run(t, "shards: 4\n")
	hostileTown(t, p)
	before := anonymous(t, p)
	maximal := func(bytes int) string {
		body := `{"counter":"post","columns":["like"],"ids":` + list(1, idsMax)
		return body + strings.Repeat(" ", bytes-len(body)-1) + "}"
	}
	all := prefix(likesOf(ascending(1, idsMax)))
	ahead := lastPosition(t, p.Connect()).Sequence() + 1000
	// Together below what the server keeps for the node: see next.
	floods := []flood{
		{"get", maximal(64 << 10), 300, all, busy},
		{"unread", `{"users":` + list(firstUser+1, 7000) + `}`, 300, func(s string) bool { return strings.Count(s, `"message":1}`) == 7000 }, busy},
		{"feed", `{"user":1000000,"limit":1000}`, 300, func(s string) bool { return strings.Count(s, `"post":`) == 1000 }, busy},
		{"get", `{"counter":"post","ids":[5],"min_position":"18446744073709551615"}`, 1200, func(s string) bool { return farPattern.MatchString(s) || busy(s) }, nobody}, // all may be refused
		{"get", fmt.Sprintf(`{"counter":"post","ids":[5],"min_seq":%d,"timeout_ms":100}`, ahead), 1200, func(s string) bool { return late(s) || busy(s) }, nobody},       // the same
		{"get", `{"counter":"post","columns":["like"],"ids":` + list(1, 10) + `}`, 2000, prefix(likesOf(ascending(1, 10))), nobody},
		{"unread", `{"users":[1000001]}`, 2000, func(s string) bool { return strings.Contains(s, `"message":1}`) }, nobody},
	}
	// Once some are refused: a machine that sends slowly may do so a few times.
	e2e.Until(t, "some are refused", func() bool { return atOnce(t, p, floods) > 0 || t.Failed() })
	// 200 MiB: what the node does not take fast enough the server refuses itself.
	atOnce(t, p, []flood{{"get", maximal(1 << 20), 200, all, func(s string) bool { return s == undelivered || busy(s) }}})
	// What the server and the node held of 200 requests of 1 MiB with their
	// lists of ids, answers on their way to this test of 64 MiB a connection;
	// the collector may double that.
	now := anonymous(t, p)
	if now > before+1024 {
		t.Errorf("RssAnon is %d MiB, %d before", now, before)
	}
	t.Logf("RssAnon %d MiB, before %d", now, before)
}

// flood is one request, many times.
type flood struct {
	endpoint, body string
	n              int
	right, refused func(answer string) bool
}

func (f flood) String() string { return fmt.Sprintf("%s %.40s…", f.endpoint, f.body) }

var (
	busyPattern = regexp.MustCompile(`^503 busy: (256 large requests|256 requests for pages|1024 requests that wait for their min_position|256 requests that wait for what the log does not hold yet|8192 requests that wait for the log to say where it ends|no turn for a large request|no turn for a page|more than 32 MiB of requests wait for this node)( are in flight)?; ask again later(, or for less at once)?$`)
	latePattern = regexp.MustCompile(`^504 min_seq \d+ was not reached within 100 ms, applied is \d+$`)
	farPattern  = regexp.MustCompile(`^400 min_position 18446744073709551615 is past the log's end by more than could be under way: the last message known is \d+ \(position \d+\), and at most 65536 more are waited for$`)
)

func busy(answer string) bool { return busyPattern.MatchString(answer) }
func late(answer string) bool { return latePattern.MatchString(answer) }
func nobody(string) bool      { return false }

// floodWithin bounds the answers to a flood, on a machine that does much besides.
const floodWithin = 2 * time.Minute

// atOnce sends all that comes, each kind on a connection of its own, so that
// one does not hold up the other on the way, and looks at every answer. Some of
// each kind must be right. It gives how many the node refused.
func atOnce(t *testing.T, p *e2e.Process, floods []flood) int {
	t.Helper()
	var work sync.WaitGroup
	var busies atomic.Int64
	for _, f := range floods {
		nc := p.Connect()
		right, refused, all := 0, 0, make(chan struct{})
		sub, err := nc.Subscribe(nc.NewInbox(), func(m *nats.Msg) {
			answer := asked(m)
			if busy(answer) {
				busies.Add(1)
			}
			switch {
			case f.right(answer):
				right++
			case f.refused(answer):
				refused++
			default:
				t.Errorf("%v: %.300s", f, answer)
				refused++
			}
			if right+refused == f.n {
				close(all)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		sub.SetPendingLimits(-1, -1) // the test is no slow reader
		work.Go(func() {
			for range f.n {
				if err := nc.PublishRequest("tidemark."+f.endpoint, sub.Subject, []byte(f.body)); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-all:
				t.Logf("%v: %d right, %d refused", f, right, refused)
				if right == 0 {
					t.Errorf("%v: none is right", f)
				}
			case <-time.After(floodWithin):
				t.Errorf("%v: some of %d are without an answer within %v", f, f.n, floodWithin)
			}
		})
	}
	work.Wait()
	return int(busies.Load())
}

func prefix(want string) func(string) bool {
	return func(s string) bool { return strings.HasPrefix(s, want) }
}

// Producers at full speed during queries: an answer that was asked with min_position has
// exactly what was published up to there.
func TestProducersAtFullSpeed(t *testing.T) {
	p := e2e.Run(t, "shards: 4\n")
	nc := p.Connect()
	ctx, over := context.WithCancel(context.Background())
	var producing sync.WaitGroup
	for n := range uint64(2) {
		c := client.New(p.Connect())
		packer, err := c.NewPacker(client.PackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		producing.Go(func() {
			for i := uint64(1); ctx.Err() == nil; i++ {
				err := packer.Add(client.Like(1+i%1000, 1+i%5000, 1+n))
				if err == nil && i%100_000 == 0 { // what is not applied yet stays bounded, also where the node is slower
					_, err = c.Get(context.Background(), client.GetRequest{Counter: "post", MinPosition: packer.Position(), Timeout: time.Minute})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if err := packer.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	var asking sync.WaitGroup
	for n := range uint64(4) {
		asking.Go(func() {
			c := client.New(nc)
			own, likes := 1<<40+n, int64(0)
			for range 50 {
				at, err := c.Publish(ctx, client.Like(7, own, firstUser+n))
				if err != nil {
					t.Error(err)
					return
				}
				likes++
				got, _, err := c.Counts(ctx, "post", own, client.Wait(at), client.Within(30*time.Second))
				if err != nil || got["like"] != likes {
					t.Errorf("post %d has %v, not %d likes; %v", own, got["like"], likes, err)
					return
				}
				unread, err := c.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{firstUser + n}, MinPosition: at, Timeout: 30 * time.Second})
				if err != nil || unread.Users[0].Counts["like"] != likes {
					t.Errorf("user %d: %+v, not %d likes; %v", firstUser+n, unread.Users, likes, err)
					return
				}
			}
		})
	}
	asking.Wait()
	over()
	producing.Wait()
	t.Logf("%.0f events beside them", figure(t, p, "tidemark_events_total"))
}
