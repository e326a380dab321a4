package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
	"github.com/tidemark-io/tidemark/query/client"
)

// The echo is what the way alone takes: a process with the server that the
// program embeds, and a client in it that answers each request with the same
// bytes, which are one of the program's own answers. Callers ask it as they ask
// the program, in JSON once and then in binary form; what the program takes longer
// is its own.

// echoArgument: `bench echo HOST:PORT DIR`. In DIR are the answers, each in a
// file whose name is its subject, or its subject and inBinary.
const echoArgument = "echo"

const (
	inBinary = ".binary"
	// binaryHeader is how clients and nodes tell that they know the binary form.
	binaryHeader = "Tidemark-Binary"
)

// echo is the main of an echo's process. It returns on errors only.
func echo(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("an echo is HOST:PORT DIR, not %q", arguments)
	}
	answers, err := os.ReadDir(arguments[1])
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // as `tidemark run` has it
	server, err := embed.StartServer(embed.ServerOptions{
		Listen: arguments[0], StoreDir: filepath.Join(filepath.Dir(arguments[1]), "streams"), SyncInterval: time.Minute,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	nc, err := jetlog.Connect(jetlog.ConnectOptions{URL: server.URL()})
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, file := range answers {
		subject, is := strings.CutSuffix(file.Name(), inBinary)
		if !is {
			continue
		}
		answer, err := os.ReadFile(filepath.Join(arguments[1], file.Name()))
		if err != nil {
			return err
		}
		first, err := os.ReadFile(filepath.Join(arguments[1], subject))
		if err != nil {
			return err
		}
		_, err = nc.Subscribe(subject, func(m *nats.Msg) {
			reply := &nats.Msg{Data: answer}
			if len(m.Header) > 0 {
				reply = &nats.Msg{Data: first, Header: nats.Header{binaryHeader: m.Header[binaryHeader]}}
			}
			if err := m.RespondMsg(reply); err != nil {
				fmt.Fprintln(os.Stderr, "echo:", err)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	select {}
}

// echoServer is such a process.
type echoServer struct {
	*child
	url, dir string
}

// asks is a question that the Go client asks, and the subject on which it does.
type asks struct {
	subject string
	ask     func(*client.Client) error
}

// startEcho starts an echo that answers each of these questions as the program does now. The
// program's key lets it hear how the Go client asks.
func (b *bench) startEcho(ctx context.Context, of *program, questions ...asks) (*echoServer, error) {
	nc, err := nats.Connect(of.url, of.inside())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	dir, err := os.MkdirTemp(b.dir, "echo-")
	if err != nil {
		return nil, err
	}
	answers := filepath.Join(dir, "answers")
	if err := os.Mkdir(answers, 0o755); err != nil {
		return nil, err
	}
	for _, q := range questions {
		replies, err := record(ctx, nc, q)
		if err != nil {
			return nil, err
		}
		for i, suffix := range []string{"", inBinary} {
			if err := os.WriteFile(filepath.Join(answers, q.subject+suffix), replies[i], 0o644); err != nil {
				return nil, err
			}
		}
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p, err := b.children.start(filepath.Join(dir, "log"), nil, self, echoArgument, address, answers)
	if err != nil {
		return nil, err
	}
	e := &echoServer{p, "nats://" + address, dir}
	err = p.until(ctx, "wait for the echo", 5*time.Millisecond, func() error {
		c, err := client.Connect(e.url, nats.NoReconnect())
		if err != nil {
			return err
		}
		defer c.Close()
		for _, q := range questions {
			if err := q.ask(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// record has a new client ask twice, in JSON and in binary form, asks the same by
// hand, and gives both answers.
func record(ctx context.Context, nc *nats.Conn, q asks) (replies [2][]byte, err error) {
	tap, err := nc.SubscribeSync(q.subject)
	if err != nil {
		return replies, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	c := client.New(nc)
	var asked [2]*nats.Msg
	for i := range asked {
		if err := q.ask(c); err != nil {
			return replies, err
		}
		if asked[i], err = tap.NextMsgWithContext(ctx); err != nil {
			return replies, err
		}
	}
	if err := tap.Unsubscribe(); err != nil {
		return replies, err
	}
	for i, m := range asked {
		reply, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: q.subject, Header: m.Header, Data: m.Data})
		if err != nil {
			return replies, err
		}
		if text := reply.Header.Get("Nats-Service-Error"); text != "" {
			return replies, errors.New(text)
		}
		replies[i] = reply.Data
	}
	return replies, nil
}

// stop ends the echo; there is nothing to keep.
func (e *echoServer) stop() {
	e.end(syscall.SIGKILL)
	os.RemoveAll(e.dir)
}
