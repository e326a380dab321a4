// Natsd is a NATS server with JetStream in a process of its own, for tests that
// kill it: as a configuration file of nats-server's says.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	file := flag.String("config", "", "a configuration of nats-server's")
	flag.Parse()
	stop, err := configured(*file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	<-end
	stop()
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
