// Natsd is a NATS server with JetStream in a process of its own, for tests that
// kill it.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

func main() {
	listen := flag.String("listen", "", "host:port")
	store := flag.String("store", "", "directory of the streams")
	flag.Parse()
	server, err := jetlog.StartServer(jetlog.ServerOptions{
		Listen: *listen, StoreDir: *store, StoreBytesMax: 1 << 40, SyncInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	<-end
	server.Close()
}
