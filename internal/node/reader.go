package node

import "github.com/tidemark-io/tidemark/query"

// Reader is the state that queries are answered from, for a program that holds
// a node within itself and asks it without NATS; of a process that only answers,
// it is the other nodes'.
func (n *Node) Reader() query.Reader {
	if n.dir == nil {
		return n.answers.Load().Reader
	}
	return n.Serving().Sinks()
}
