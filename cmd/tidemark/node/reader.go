package node

import "github.com/tidemark-io/tidemark/query"

// Reader is the state that queries are answered from, for a program that holds
// a node within itself and asks it without NATS.
func (n *Node) Reader() query.Reader { return n.sinks }
