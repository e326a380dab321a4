package jetlog

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/kit"
)

const (
	// reconnectWait is the pause between attempts to reach a lost server.
	reconnectWait = 500 * time.Millisecond
	// pingEvery and pingsMax find a server that is gone without a word, or
	// stands still, within nine seconds: about what its cluster takes to elect
	// others. By nats.go's own it would be six minutes.
	pingEvery = 3 * time.Second
	pingsMax  = 2
)

// ConnectOptions say how to reach a server. The credentials are passed
// through to nats.go; empty ones are not used. An embedded server is reached
// by its socket, too: nats.go's in-process pipe, unbuffered, was measured to
// take about a third more CPU for each message read.
type ConnectOptions struct {
	URL             string // one, or several with commas
	Name            string // shown by the server's monitoring; default "tidemark"
	CredentialsFile string
	NkeySeedFile    string
	TLS             TLSOptions
	Once            bool          // do not reconnect: for commands that ask one thing
	Timeout         time.Duration // of the first connect; default 2 s
	Logger          *slog.Logger  // default: none
}

// TLSOptions name PEM files. Certificate and Key go together.
type TLSOptions struct {
	CA, Certificate, Key string
}

// What Connect's errors wrap when a server is there and the two cannot agree.
var (
	// ErrCredentials: the server wants credentials, or others.
	ErrCredentials = errors.New("jetlog: the server refuses these credentials")
	// ErrAuthority: the server's certificate is none that is trusted here.
	ErrAuthority = errors.New("jetlog: the server's certificate is not trusted")
	// ErrCertificate: the server wants a certificate of its client, or another.
	ErrCertificate = errors.New("jetlog: the server refuses this client's certificate")
	// ErrNotNATS: the port is open, and what comes from it is not NATS.
	ErrNotNATS = errors.New("jetlog: what listens there does not speak NATS")
	// ErrMute: the port is open, and nothing comes from it.
	ErrMute = errors.New("jetlog: what listens there does not greet as a NATS server does: it is another service, or a server that is suspended or stops")
)

// Denial is what the server says where err is of missing permissions, and "" for any other error.
func Denial(err error) string {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	_, words, _ := strings.Cut(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	return cmp.Or(words, "permissions violation")
}

// Connect connects. A first connect that fails is an error naming the URL,
// without its password; after that the connection is kept up for ever, also
// through refusals, and losing it and having it back are logged. The caller
// closes it.
func Connect(o ConnectOptions) (*nats.Conn, error) {
	options, err := o.natsOptions()
	if err != nil {
		return nil, fmt.Errorf("jetlog: connect %s: %w", kit.Address(o.URL), err)
	}
	nc, err := nats.Connect(o.URL, options...)
	if _, is := errors.AsType[*url.Error](err); is { // which quotes what it takes for the port
		err = errors.New("it is no URL, like nats://127.0.0.1:4222")
	}
	if err != nil {
		return nil, fmt.Errorf("jetlog: connect %s: %w", kit.Address(o.URL), classified(err))
	}
	return nc, nil
}

func (o ConnectOptions) natsOptions() ([]nats.Option, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name(cmp.Or(o.Name, "tidemark")),
		nats.Timeout(cmp.Or(o.Timeout, nats.DefaultTimeout)),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a server that refuses us now may not tomorrow
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsMax),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: we closed it
				log.Warn("nats: connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("nats: connected again", "url", Address(nc))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrBadHeaderMsg) {
				return // any client can publish such a message, as often as it wants to
			}
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			if errors.Is(err, nats.ErrSlowConsumer) && strings.HasPrefix(subject, "$SRV.") {
				return // so can many requests of discovery come, of which most are dropped
			}
			log.Warn("nats: asynchronous error", "subject", subject, "error", err)
		}),
	}
	if o.Once {
		options = append(options, nats.NoReconnect())
	}
	if o.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(o.CredentialsFile))
	}
	if o.NkeySeedFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(o.NkeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("nkey seed %s: %w", o.NkeySeedFile, err)
		}
		options = append(options, nkey)
	}
	if o.TLS.CA != "" {
		options = append(options, nats.RootCAs(o.TLS.CA))
	}
	if o.TLS.Certificate != "" || o.TLS.Key != "" {
		options = append(options, nats.ClientCert(o.TLS.Certificate, o.TLS.Key))
	}
	return options, nil
}

// classified adds what an error of nats.go means for its setup.
func classified(err error) error {
	var class error
	text := err.Error()
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	read, reading := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, nats.ErrNoInfoReceived):
		class = ErrNotNATS
	case errors.Is(err, io.EOF), reading && read.Op == "read" && read.Timeout():
		class = ErrMute
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		class = ErrCredentials
	case unverified:
		class = ErrAuthority
	case strings.Contains(text, "remote error: tls:") && strings.Contains(text, "certificate"), // no type tells it
		strings.Contains(text, "after TLS handshake"): // nor this: it was told, and the line cut before it was read
		class = ErrCertificate
	default:
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

// orNoJetStream adds to an error of the first request to JetStream that there is none.
func orNoJetStream(err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("the server has no JetStream for this account (%w): enable it there", err)
	}
	return err
}

// Address is where a connection leads, as it may be shown; "" while it leads nowhere.
func Address(nc *nats.Conn) string { return kit.Address(nc.ConnectedUrl()) }
