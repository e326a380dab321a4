package node

// URL is where clients reach the NATS server, without a password. It is the
// real address when the configuration left the port open.
func (n *Node) URL() string { return n.nc.ConnectedUrlRedacted() }

// HTTPAddress is the host and port of /metrics, "" when it is off.
func (n *Node) HTTPAddress() string {
	if n.listener == nil {
		return ""
	}
	return n.listener.Addr().String()
}
