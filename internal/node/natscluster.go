package node

import (
	"errors"
	"net/http"

	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// inCluster says that the embedded server is a member of a NATS cluster. Then a start
// waits for the other servers without a limit: an operator may take any time to start
// three processes one after the other.
func (n *Node) inCluster() bool { return n.server != nil && n.config.NATS.Cluster.On() }

func (n *Node) clusterOptions() embed.ClusterOptions {
	c := &n.config.NATS.Cluster
	if !c.On() {
		return embed.ClusterOptions{}
	}
	return embed.ClusterOptions{Name: c.ClusterName(), Listen: c.Listen, Routes: c.Routes}
}

// awaitCluster waits until the cluster of the embedded server has a leader. While it
// waits, the log and /readyz say for which servers.
func (n *Node) awaitCluster() error {
	if !n.inCluster() {
		return nil
	}
	n.http = n.serveHTTP(n.startPages())
	defer n.trouble.Clear(led.Part)
	return n.server.WaitLeader(n.ctx, func(s embed.Standing) {
		n.trouble.Set(led.Part, errors.New(s.String()))
		n.log.Info("tidemark: waiting for other servers of the NATS cluster", "cluster", n.config.NATS.Cluster.ClusterName(),
			"connected", s.Servers, "needed", s.Needed, "of", s.Size, "routes", n.config.NATS.Cluster.Routes)
	})
}

// startPages are what the HTTP server has while a start waits for others: it
// lives, and is not ready.
func (n *Node) startPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(func() error { return nil }, nil))
	mux.HandleFunc("GET /readyz", answer(func() error {
		if err := errors.Join(n.trouble.Err(), n.Serving().Wrong()); err != nil {
			return err
		}
		return errors.New("starting")
	}, nil))
	return mux
}

// copying says what the embedded server still lacks of its copies. Counting
// and answering go on all the same. An operator who restarts one server after the other
// waits until it lacks nothing.
func (n *Node) copying() (lines string) {
	if !n.inCluster() {
		return ""
	}
	for _, report := range n.server.Behind() {
		lines += "nats: " + report + "\n"
	}
	return lines
}
