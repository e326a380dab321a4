package node

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/led"
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
