package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// The echo is what the way alone takes: a process with the server that the
// program embeds, and a client in it that answers each request with the same
// bytes, which are one of the program's own answers. Callers ask it as they ask
// the program; what the program takes longer is its own.

// echoArgument: `bench echo HOST:PORT DIR`. In DIR are the answers, each in a
// file whose name is its subject.
const echoArgument = "echo"

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
	server, err := jetlog.StartServer(jetlog.ServerOptions{
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
		answer, err := os.ReadFile(filepath.Join(arguments[1], file.Name()))
		if err != nil {
			return err
		}
		_, err = nc.Subscribe(file.Name(), func(m *nats.Msg) {
			if err := m.Respond(answer); err != nil {
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

// startEcho starts an echo that answers each of these questions as the program
// does now.
func (b *bench) startEcho(ctx context.Context, c *client.Client, questions ...question) (*echoServer, error) {
	dir, err := os.MkdirTemp(b.dir, "echo-")
	if err != nil {
		return nil, err
	}
	answers := filepath.Join(dir, "answers")
	if err := os.Mkdir(answers, 0o755); err != nil {
		return nil, err
	}
	for _, q := range questions {
		reply, err := c.Conn().RequestWithContext(ctx, q.subject, q.body)
		if err != nil {
			return nil, err
		}
		if text := reply.Header.Get("Nats-Service-Error"); text != "" {
			return nil, errors.New(text)
		}
		if err := os.WriteFile(filepath.Join(answers, q.subject), reply.Data, 0o644); err != nil {
			return nil, err
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
		nc, err := nats.Connect(e.url, nats.NoReconnect())
		if err != nil {
			return err
		}
		defer nc.Close()
		for _, q := range questions {
			if _, err := nc.RequestWithContext(ctx, q.subject, q.body); err != nil {
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

// stop ends the echo; there is nothing to keep.
func (e *echoServer) stop() {
	e.end(syscall.SIGKILL)
	os.RemoveAll(e.dir)
}
