package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/query/client"
)

// This program starts itself for what must not share its processor time: `bench load NAME
// URL POSTS USERS` is a load on the node at URL, `bench echo HOST:PORT URL DIR` a server that
// gives the node's answers, `bench server HOST:PORT DIR` a server alone.
const (
	loadArgument   = "load"
	echoArgument   = "echo"
	serverArgument = "server"
)

func me() string { return must(os.Executable()) }

// load asks or publishes until it is killed.
func load(arguments []string) {
	posts, users := must(strconv.Atoi(arguments[2])), must(strconv.Atoi(arguments[3]))
	c := must(client.Connect(arguments[1]))
	if arguments[0] == "producers" {
		produce(c)
	}
	var work errgroup.Group
	for n := range 4 {
		work.Go(func() error { return maximal(must(client.Connect(arguments[1])), n, posts, users) })
	}
	check(work.Wait())
}

// maximal asks for as many posts and users as a request may, which must be answered.
func maximal(c *client.Client, n, posts, users int) error {
	const idsMax, usersMax = 10_000, 7000 // limits.ids; what fits into a reply of 1 MiB
	ids, who := make([]uint64, idsMax), make([]uint64, usersMax)
	for i := range ids {
		ids[i] = postID(uint64((n*7919 + i*31) % posts))
	}
	for i := range who {
		who[i] = few.first + uint64((n*7919+i*3)%users)
	}
	for {
		if _, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids, Columns: columns}); err != nil {
			return err
		}
		if _, err := c.Unread(ctx, who...); err != nil {
			return err
		}
	}
}

// produce publishes packs as fast as they are acknowledged.
func produce(c *client.Client) {
	p := must(c.NewPacker(client.PackOptions{}))
	_, bodies := prepared(community(11), 1<<16)
	for i := 0; ; i++ {
		check(p.AddLine(bodies[i%len(bodies)]))
	}
}

const bareEcho = "a bare echo of the same answers"

// echo starts a server with a client in it that answers each kind of request as the program
// has answered the first: what the way alone takes. Callers ask it as they ask the program;
// what the program takes longer is its own.
func (b *bench) echo(p *program) (c *child, url string) {
	dir := must(os.MkdirTemp(b.dir, "echo-"))
	c, address := b.myself(echoArgument, dir, p.url, dir)
	url = "nats://" + address
	c.until("wait for the echo", 5*time.Millisecond, func() error {
		c, err := client.Connect(url)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Unread(ctx, many.first)
		return err
	})
	return c, url
}

// takeThreads has as many threads run Go as `tidemark run` has.
func takeThreads() { runtime.GOMAXPROCS(4 * runtime.GOMAXPROCS(0)) }

// echo is the main of its process. It does not return.
func echo(arguments []string) {
	takeThreads()
	server := startServer(arguments[0], arguments[2])
	of, nc := must(nats.Connect(arguments[1])), must(nats.Connect(server.URL()))
	var mu sync.Mutex
	answers := map[string]*nats.Msg{} // by subject and headers: a client learns by the first how to ask on
	for _, subject := range []string{"tidemark.get", "tidemark.unread"} {
		must(nc.Subscribe(subject, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			kind := fmt.Sprint(subject, m.Header)
			if answers[kind] == nil {
				answers[kind] = must(of.RequestMsg(&nats.Msg{Subject: subject, Header: m.Header, Data: m.Data}, time.Minute))
			}
			check(m.RespondMsg(&nats.Msg{Header: answers[kind].Header, Data: answers[kind].Data}))
		}))
	}
	select {}
}

// serve is the main of a server's process. It does not return.
func serve(arguments []string) {
	takeThreads()
	startServer(arguments[0], arguments[1])
	select {}
}
