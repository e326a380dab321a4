package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// load is one way of being hostile. It runs in a process of its own until that
// is killed: `bench load NAME URL POSTS PERSONS`.
type load struct {
	name, what string
	run        func(*attacker) error
	says       string // on standard output, once it is what it is called
}

const loadArgument = "load"

// The control comes first, when the node is at rest; producers last: what they
// leave to write and compact is in none of the others.
var loads = []load{
	{control, "who asks nothing and computes", (*attacker).compute, ""},
	{"maximal", "maximal requests of 4 clients", (*attacker).maximal, ""},
	{"shard", "those, all ids in one shard", (*attacker).oneShard, ""},
	{"unknown", "those, of unknown ids", (*attacker).unknown, ""},
	{"kinds", "maximal requests of 7 kinds, 16 of each at a time", (*attacker).kinds, ""},
	{"slow", "4 who ask and do not read", (*attacker).slow, cutOff},
	{"producers", "producers at full speed", (*attacker).produce, ""},
}

// control is the load that has nothing to do with the node: what small
// requests take beside it is the machine's doing.
const control = "control"

const (
	attackers  = 4      // clients at once
	eachKind   = 16     // clients at once of each kind, where there are several
	maximalIDs = 10_000 // limits.ids
	// maximalUsers is what fits into a reply of NATS's usual 1 MiB.
	maximalUsers = 7000
	// A slow reader asks so often for so much, and so much is sent to it before
	// it comes again: the 64 MiB that the server keeps for a client, and some
	// that the system keeps.
	slowAsks  = 125 // a second
	slowIDs   = 1000
	slowBytes = 72 << 20
	slowInbox = "_INBOX.slow"
	cutOff    = "cut off"
)

// attacker is the load's process.
type attacker struct {
	url     string
	posts   uint64 // rows that there are
	persons int
}

// attack is the main of a load's process. It returns on errors only.
func attack(arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("a load is NAME URL POSTS PERSONS, not %q", arguments)
	}
	posts, err := strconv.ParseUint(arguments[2], 10, 64)
	if err != nil {
		return err
	}
	persons, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	a := &attacker{arguments[1], posts, persons}
	for _, l := range loads {
		if l.name == arguments[0] {
			return l.run(a)
		}
	}
	return fmt.Errorf("no load is called %q", arguments[0])
}

// question is a request as it goes over the wire.
type question struct {
	subject string
	body    []byte
}

// askOnAndOn asks one thing after the other, on a connection for each client,
// and does not look at the answers beyond that they are none of errors: taking
// them apart would cost as much as making them.
func (a *attacker) askOnAndOn(next func(client, n int) (question, error)) error {
	return a.askWith(attackers, next, func(text string) error { return errors.New(text) })
}

// askWith is askOnAndOn with so many clients; refused says what becomes of a refusal.
func (a *attacker) askWith(clients int, next func(client, n int) (question, error), refused func(text string) error) error {
	var work errgroup.Group
	for n := range clients {
		work.Go(func() error {
			nc, err := nats.Connect(a.url)
			if err != nil {
				return err
			}
			defer nc.Close()
			for i := 0; ; i++ {
				q, err := next(n, i)
				if err != nil {
					return err
				}
				reply, err := nc.Request(q.subject, q.body, time.Minute)
				if err != nil {
					return err
				}
				if text := reply.Header.Get("Nats-Service-Error"); text != "" {
					if err := refused(text); err != nil {
						return err
					}
				}
			}
		})
	}
	return work.Wait()
}

func getOf(ids []uint64) (question, error) {
	body, err := (&client.GetRequest{Counter: "post", IDs: ids, Columns: columns}).AppendJSON(nil)
	return question{"tidemark.get", body}, err
}

func unreadOf(users []uint64) question {
	body := []byte(`{"users":[`)
	for i, user := range users {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendUint(body, user, 10)
	}
	return question{"tidemark.unread", append(body, "]}"...)}
}

// prepared are questions that are made once: making them is not the subject.
func prepared(all []question) func(client, n int) (question, error) {
	return func(client, n int) (question, error) { return all[(client+n)%len(all)], nil }
}

func (a *attacker) maximal() error {
	var all []question
	for n := range uint64(8) {
		q, err := getOf(firstOf(maximalIDs, func(i uint64) (uint64, bool) {
			return postID((n*7919*maximalIDs + i*31) % a.posts), true
		}))
		if err != nil {
			return err
		}
		all = append(all, q, unreadOf(firstOf(maximalUsers, func(i uint64) (uint64, bool) {
			return person(int((n*7919 + i*3) % uint64(a.persons))), true
		})))
	}
	return a.askOnAndOn(prepared(all))
}

// kinds asks for as much as may be asked for of each kind, by 16 clients at once:
// more than there is room for, so some are answered that the node is busy.
func (a *attacker) kinds() error {
	get, err := getOf(firstOf(maximalIDs, func(i uint64) (uint64, bool) { return postID(i * 31 % a.posts), true }))
	if err != nil {
		return err
	}
	all := []question{
		get,
		unreadOf(firstOf(maximalUsers, func(i uint64) (uint64, bool) { return person(int(i % uint64(a.persons))), true })),
		{"tidemark.feed", fmt.Appendf(nil, `{"user":"%d","limit":1000}`, hub)},
		{"tidemark.following", fmt.Appendf(nil, `{"user":"%d","limit":10000}`, hub)},
		{"tidemark.followers", fmt.Appendf(nil, `{"user":"%d","limit":10000}`, hub)},
		{"tidemark.explain", fmt.Appendf(nil, `{"number":"user.following","id":"%d","limit":1000}`, hub)},
		{"tidemark.stats", []byte("{}")},
	}
	return a.askWith(eachKind*len(all), func(client, _ int) (question, error) { return all[client%len(all)], nil }, func(text string) error {
		if strings.HasPrefix(text, "busy: ") {
			return nil
		}
		return errors.New(text)
	})
}

// firstOf are the first n ids that there are.
func firstOf(n int, id func(i uint64) (uint64, bool)) (ids []uint64) {
	for i := uint64(0); len(ids) < n; i++ {
		if id, ok := id(i); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

const defaultShards = 64

// oneShard asks for ids of one shard, with repeats where there are too few.
func (a *attacker) oneShard() error {
	inShard := func(id uint64) (uint64, bool) { return id, pipeline.ShardOf(id, defaultShards) == 5 }
	q, err := getOf(firstOf(maximalIDs, func(i uint64) (uint64, bool) { return inShard(postID(i % a.posts)) }))
	if err != nil {
		return err
	}
	users := firstOf(maximalUsers, func(i uint64) (uint64, bool) { return inShard(person(int(i % uint64(a.persons)))) })
	return a.askOnAndOn(prepared([]question{q, unreadOf(users)}))
}

// unknown asks for ids that nobody has heard of, never the same twice.
func (a *attacker) unknown() error {
	return a.askOnAndOn(func(client, n int) (question, error) {
		from := uint64(client+1)<<56 + uint64(n)*maximalIDs
		ids := firstOf(maximalIDs, func(i uint64) (uint64, bool) { return from + i, true })
		if n%2 == 1 {
			return unreadOf(ids[:maximalUsers]), nil
		}
		return getOf(ids)
	})
}

// slow asks at a pace and never reads an answer: the server cuts such a client off at
// what it may keep, and the client comes again. Each is sent what all asked for; one
// more client reads it, to know how much that is. They begin at a different amount
// each, so that one is always in the last quarter.
func (a *attacker) slow() error {
	q, err := getOf(firstOf(slowIDs, func(i uint64) (uint64, bool) { return postID(i % a.posts), true }))
	if err != nil {
		return err
	}
	server, err := url.Parse(a.url)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(a.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	var sent atomic.Int64
	if _, err := nc.Subscribe(slowInbox, func(m *nats.Msg) { sent.Add(int64(len(m.Data))) }); err != nil {
		return err
	}
	var work errgroup.Group
	for n := range int64(attackers) {
		work.Go(func() error {
			for most := slowBytes * (n + 1) / attackers; ; most = slowBytes {
				conn, err := net.Dial("tcp", server.Host)
				if err != nil {
					return err
				}
				before := sent.Load()
				askUnread(conn, q, func() bool { return sent.Load()-before >= most })
				conn.Close()
				if most == slowBytes {
					fmt.Println(cutOff)
				}
			}
		})
	}
	return work.Wait()
}

// askUnread speaks as much of NATS's protocol as it takes to ask, and returns
// when enough was sent to it, or the server has closed the connection: it does
// so when it could not write for 10 s, also to a client that was cut off before.
func askUnread(conn net.Conn, q question, enough func() bool) {
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\n", slowInbox); err != nil {
		return
	}
	publish := fmt.Appendf(nil, "PUB %s %s %d\r\n%s\r\n", q.subject, slowInbox, len(q.body), q.body)
	for range time.Tick(time.Second / slowAsks) {
		if _, err := conn.Write(publish); err != nil || enough() {
			return
		}
	}
}

// compute keeps all processors busy.
func (a *attacker) compute() error {
	var work errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() error {
			for i := uint64(1); i > 0; i++ {
				if pipeline.Mix(i) == i {
					fmt.Println(i) // so that it must be computed
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// produce publishes packs as fast as they are acknowledged.
func (a *attacker) produce() error {
	c, err := client.Connect(a.url)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.NewPacker(client.PackOptions{})
	if err != nil {
		return err
	}
	community := newCommunity(11)
	var bodies [1 << 16][]byte
	for i := range bodies {
		_, bodies[i] = community.event(nil)
	}
	for i := 0; err == nil; i++ {
		err = p.AddLine(bodies[i%len(bodies)])
	}
	return errors.Join(err, p.Close(context.Background()))
}
