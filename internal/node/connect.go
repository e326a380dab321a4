package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/led"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// led is the server, as a start asks it.
func (n *Node) led() led.Asker { return led.Asker{NC: n.nc, Trouble: &n.trouble, Log: n.log} }

// connect makes a connection; suffix sets its name apart from the others'.
func (n *Node) connect(url, suffix string) (*nats.Conn, error) {
	c := n.config.NATS
	nc, err := jetlog.Connect(jetlog.ConnectOptions{
		URL:             url,
		Name:            "tidemark-" + n.name + suffix,
		CredentialsFile: c.Credentials,
		NkeySeedFile:    n.KeyFile(),
		TLS:             jetlog.TLSOptions{CA: c.TLS.CA, Certificate: c.TLS.Cert, Key: c.TLS.Key},
		Logger:          n.log,
	})
	if advice := refused(&c, err); advice != "" {
		return nil, fmt.Errorf("%w: %s", err, advice)
	}
	return nc, err
}

// connectPause is how long a start waits before it tries again to connect.
const connectPause = time.Second

// connectOnceThere connects. It waits for servers that do not listen yet: who starts
// several processes together need not start them one after the other. While it waits,
// the log and /readyz say for what.
func (n *Node) connectOnceThere(url string) (*nats.Conn, error) {
	defer n.trouble.Clear(led.Part)
	for told := false; ; told = true {
		nc, err := n.connect(url, "")
		if !errors.Is(err, nats.ErrNoServers) || n.config.NATS.URL == "" {
			return nc, err
		}
		if n.trouble.Set(led.Part, fmt.Errorf("waiting for a NATS server at %s", kit.Address(url))); !told {
			n.http = n.serveHTTP(n.startPages())
			n.log.Info("tidemark: waiting for a NATS server; it goes on as soon as one listens", "nats", kit.Address(url))
		}
		select {
		case <-n.ctx.Done():
			return nil, n.ctx.Err()
		case <-time.After(connectPause):
		}
	}
}

// insideSubject is one that only nodes may publish to. Nobody subscribes to it.
const insideSubject = jetlog.InternalPrefix + "hello"

// checkInside ends a start without credentials on a server that wants some of nodes: to
// such a process it would look like a server without streams.
func (n *Node) checkInside() error {
	c := &n.config.NATS
	if c.Credentials != "" || n.KeyFile() != "" || c.TLS.Cert != "" || strings.Contains(c.URL, "@") {
		return nil
	}
	if err := errors.Join(n.nc.Publish(insideSubject, nil), n.nc.FlushTimeout(led.LookWithin)); err != nil {
		return nil // what comes next says so
	}
	if denial := jetlog.Denial(n.nc.LastError()); denial != "" {
		return fmt.Errorf("the NATS server lets this process publish events and ask, and nothing else (%s): "+
			"set nats.nkey to its nodes' key; of an embedded server that is %s in the data directory of its node", denial, walls.KeyFile)
	}
	return nil
}

// refused says what to set when the server is there and the two cannot agree.
func refused(c *config.NATS, err error) string {
	switch {
	case errors.Is(err, jetlog.ErrCredentials) && c.Credentials == "" && c.NKey == "":
		return "set nats.credentials or nats.nkey"
	case errors.Is(err, jetlog.ErrCredentials):
		return "nats.credentials or nats.nkey is not what it wants"
	case errors.Is(err, jetlog.ErrAuthority):
		return "set nats.tls.ca to the authority that signed it, and name the server in nats.url as its certificate does"
	case errors.Is(err, jetlog.ErrCertificate):
		return "set nats.tls.cert and nats.tls.key to a certificate that it trusts"
	}
	return ""
}
