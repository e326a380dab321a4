package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"log/slog"

	"github.com/tidemark-io/tidemark/cmd/tidemark/config"
	"github.com/tidemark-io/tidemark/cmd/tidemark/node"
)

func main() {
	c := config.Default()
	if len(os.Args) > 1 { c.DataDir = os.Args[1] }
	n, err := node.Start(c, node.Options{Version: "0.1.0", Logger: slog.Default()})
	if err != nil { fmt.Println(err); os.Exit(1) }
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	<-ch
	fmt.Println(n.Close())
}
