// Natsd is a NATS server with JetStream in a process of its own, for tests that
// kill it: like the embedded one, or as a configuration file of nats-server's
// says.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

func main() {
	listen := flag.String("listen", "", "host:port")
	store := flag.String("store", "", "directory of the streams")
	file := flag.String("config", "", "a configuration of nats-server's, instead of the others")
	flag.Parse()
	start := func() (func(), error) { return embedded(*listen, *store) }
	if *file != "" {
		start = func() (func(), error) { return configured(*file) }
	}
	stop, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	<-end
	stop()
}

func embedded(listen, store string) (stop func(), err error) {
	s, err := embed.StartServer(embed.ServerOptions{
		Listen: listen, StoreDir: store, StoreBytesMax: 1 << 40, SyncInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, err
	}
	return s.Close, nil
}

// configured starts a server as `nats-server -c FILE` does. It may be one of a
// cluster whose others are not there yet.
func configured(file string) (stop func(), err error) {
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, err
	}
	o.NoSigs = true
	s, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return nil, errors.New("not ready within a minute")
	}
	return func() {
		s.Shutdown()
		s.WaitForShutdown()
	}, nil
}
