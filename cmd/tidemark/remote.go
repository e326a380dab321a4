package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/query/client"
)

// remote are the flags of every command that speaks to a running node.
type remote struct {
	NATS    string        `name:"nats" env:"NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"The NATS server that tidemark is on (${default})." group:"Connection:"`
	Creds   string        `type:"existingfile" placeholder:"FILE" help:"Credentials file for the server." group:"Connection:"`
	NKey    string        `name:"nkey" env:"TIDEMARK_NKEY" type:"path" placeholder:"FILE" help:"NKey seed file for the server (node.nk in the data directory, if it is here)." group:"Connection:"`
	TLSCA   string        `name:"tls-ca" type:"existingfile" placeholder:"FILE" help:"Authority to trust, PEM; the system's by default." group:"Connection:"`
	TLSCert string        `name:"tls-cert" type:"existingfile" placeholder:"FILE" help:"Certificate for the server, PEM." group:"Connection:"`
	TLSKey  string        `name:"tls-key" type:"existingfile" placeholder:"FILE" help:"Private key of --tls-cert, PEM." group:"Connection:"`
	Timeout time.Duration `default:"5s" help:"The longest to wait for an answer." group:"Connection:"`
	JSON    bool          `name:"json" help:"Print one JSON document." group:"Output:"`

	reach *reach // nil before dial
	key   usedKey
}

// usedKey is the key that dial has tried.
type usedKey struct {
	path    string // "": none
	from    string // where it was found
	refused bool   // the server does not know it, and lets the command in without
}

// Validate is called by kong.
func (r *remote) Validate() error {
	r.NATS = cmp.Or(r.NATS, nats.DefaultURL) // NATS_URL= is the same as none
	switch {
	case r.Timeout <= 0:
		return fmt.Errorf("--timeout %s is not a time to wait", r.Timeout)
	case r.Creds != "" && r.NKey != "":
		return errors.New("--creds and --nkey are both given; give one of them")
	case (r.TLSCert == "") != (r.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together; give both or none")
	}
	return nil
}

// dial connects for one question, or to stay connected.
func (r *remote) dial(once bool) (*nats.Conn, error) {
	o := r.options(once)
	nc, err := (*nats.Conn)(nil), error(nil)
	for _, r.key = range r.keys() {
		if o.NkeySeedFile = r.key.path; r.key.refused {
			o.NkeySeedFile = "" // those that are here are of other servers
		}
		if nc, err = jetlog.Connect(o); !errors.Is(err, nats.ErrNkeysNotSupported) && !errors.Is(err, jetlog.ErrCredentials) {
			break
		}
	}
	switch {
	case err == nil:
		r.reach = newReach(nc)
	case errors.Is(err, nats.ErrNoServers):
		return nil, r.silence()
	case errors.Is(err, jetlog.ErrCredentials):
		return nil, fmt.Errorf("%w: %s", err, cmp.Or(r.keyRemedy(), "give credentials that it knows"))
	case errors.Is(err, jetlog.ErrAuthority):
		return nil, fmt.Errorf("%w: give --tls-ca, the authority that signed it", err)
	case errors.Is(err, jetlog.ErrCertificate):
		return nil, fmt.Errorf("%w: give --tls-cert and --tls-key that it trusts", err)
	case errors.Is(err, fs.ErrNotExist) && r.key.path != "":
		return nil, fmt.Errorf("%w (%s)", err, r.key.from)
	}
	return nc, err
}

// keys are those to try, one after the other: that of the flag or of the environment; else
// those of nodes whose data directories are here, of a demo too, and then none.
func (r *remote) keys() (list []usedKey) {
	switch {
	case r.NKey != "" && r.NKey == kong.ExpandPath(os.Getenv(keyVariable)):
		return []usedKey{{path: r.NKey, from: "of $" + keyVariable}}
	case r.NKey != "":
		return []usedKey{{path: r.NKey, from: "of --nkey"}}
	}
	for _, path := range r.keysHere() {
		list = append(list, usedKey{path: path, from: "of the data directory here"})
	}
	without := usedKey{}
	if len(list) > 0 {
		without = list[0]
		without.refused = true
	}
	return append(list, without)
}

const keyVariable = "TIDEMARK_NKEY"

// keyRemedy says which key was tried, and what to type; "" where the command has credentials
// of another kind.
func (r *remote) keyRemedy() string {
	give := "give --nkey DATA_DIR/" + walls.KeyFile + " of the node, or set " + keyVariable
	switch {
	case r.Creds != "" || strings.Contains(r.NATS, "@"):
		return ""
	case r.key.path == "":
		return "no key was given, and there is no data directory with one here; " + give
	case r.key.refused || r.reach == nil:
		return fmt.Sprintf("the key %s (%s) is none of this server's; %s", r.key.path, r.key.from, give)
	}
	return fmt.Sprintf("the key %s (%s) was used", r.key.path, r.key.from)
}

// options are how the flags say to connect.
func (r *remote) options(once bool) jetlog.ConnectOptions {
	return jetlog.ConnectOptions{
		URL:             r.NATS,
		Name:            "tidemark command",
		CredentialsFile: r.Creds,
		NkeySeedFile:    r.NKey,
		TLS:             jetlog.TLSOptions{CA: r.TLSCA, Certificate: r.TLSCert, Key: r.TLSKey},
		Once:            once,
		Timeout:         r.patience(),
	}
}

// asNode are the flags with which a command connects as the node of a configuration does,
// but for those that were given.
func (r *remote) asNode(c *config.Config) *remote {
	n := *r
	n.Creds, n.NKey = cmp.Or(r.Creds, c.NATS.Credentials), cmp.Or(r.NKey, c.NATS.NKey)
	n.TLSCA, n.TLSCert, n.TLSKey = cmp.Or(r.TLSCA, c.NATS.TLS.CA), cmp.Or(r.TLSCert, c.NATS.TLS.Cert), cmp.Or(r.TLSKey, c.NATS.TLS.Key)
	if r.NATS == nats.DefaultURL {
		n.NATS = c.NATS.URL
		if address, err := here(c.NATS.Listen); err == nil && n.NATS == "" {
			n.NATS = "nats://" + address
		}
	}
	if key := filepath.Join(c.DataDir, walls.KeyFile); c.NATS.URL == "" && n.NKey == "" && n.Creds == "" {
		if _, err := os.Stat(key); err == nil {
			n.NKey = key
		}
	}
	return &n
}

// keysHere are the keys of nodes whose data directories are here.
func (r *remote) keysHere() (paths []string) {
	var s settings
	c, _, err := s.load()
	if err != nil || r.Creds != "" || strings.Contains(r.NATS, "@") {
		return nil
	}
	for _, dir := range []string{c.DataDir, demoDir(c.DataDir)} {
		path := filepath.Join(dir, walls.KeyFile)
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// patience is how long one server has to let the command in: where there are several,
// one that is suspended, or gone without a word, leaves time for the next one and for
// the answer.
func (r *remote) patience() time.Duration {
	const least = 500 * time.Millisecond
	servers := strings.Count(r.NATS, ",") + 1
	if servers == 1 {
		return r.Timeout
	}
	return min(r.Timeout, max(r.Timeout/time.Duration(servers+1), least))
}

// silence is why nobody answers.
func (r *remote) silence() error {
	if r.reach.noJetStream() {
		return fmt.Errorf("the NATS server at %s has no JetStream for this account: start it with 'nats-server -js', or enable jetstream in its configuration and in the account's", kit.Address(r.NATS))
	}
	return fmt.Errorf("no tidemark answers at %s: is 'tidemark run' running?", kit.Address(r.NATS))
}

// answerSlack lets the node's own "too late" come before ours.
const answerSlack = 500 * time.Millisecond

// ask connects, does one thing within the timeout, and closes.
func (r *remote) ask(do func(ctx context.Context, c *client.Client) error) error {
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout+answerSlack)
	defer cancel()
	nc, err := r.dial(true)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, done := r.reach.untilDenied(ctx)
	defer done()
	return r.explain(do(ctx, client.New(nc)))
}

// explain says what a user can do about an error of the connection.
func (r *remote) explain(err error) error {
	_, answered := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return nil
	case jetlog.Denial(err) != "":
		return r.denied(err)
	case !answered && unanswered(err) && r.reach.denial() != nil:
		return r.denied(r.reach.denial())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetlog.ErrNoBucket),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return r.silence()
	case errors.Is(err, client.ErrUncertain):
		return fmt.Errorf("%s did not say in time whether it stored the event: look at the count before trying again", kit.Address(r.NATS))
	case !answered && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %s", kit.Address(r.NATS), r.Timeout)
	}
	return err
}

// denied is an error of missing permissions, in the server's words.
func (r *remote) denied(err error) error {
	remedy := r.keyRemedy()
	if remedy != "" {
		remedy = "; " + remedy
	}
	return fmt.Errorf("the NATS server at %s does not let this client do so: %s%s", kit.Address(r.NATS), jetlog.Denial(err), remedy)
}

// printReply asks an endpoint and prints its reply as it came. A reply that
// is not whole is an error besides, as it is without --json.
func (r *remote) printReply(ctx context.Context, c *client.Client, t *terminal, endpoint string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := c.Ask(ctx, endpoint, body)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(t.out, "%s\n", reply); err != nil {
		return err
	}
	var part struct {
		Degraded bool     `json:"degraded"`
		Missing  []string `json:"missing"`
		StaleMS  int64    `json:"stale_ms"`
	}
	if err := json.Unmarshal(reply, &part); err != nil || !part.Degraded || endpoint == "explain" { // which says how old it is, and may take long
		return err
	}
	return wholeOr("users", part.Missing, time.Duration(part.StaleMS)*time.Millisecond)
}

// wholeOr is the error of a degraded answer: of what is missing in it, and of its age.
func wholeOr(what string, missing []string, stale time.Duration) error {
	var old, lacks error
	if stale > 0 {
		old = fmt.Errorf("the answer can be %d ms old: the node cannot ask the log where it ends, or has not come there", stale.Milliseconds())
	}
	if len(missing) > 0 {
		lacks = notWhole(what, missing)
	}
	return errors.Join(lacks, old)
}

// missingNamed is how many of those that cannot be read are named.
const missingNamed = 20

func notWhole(what string, ids []string) error {
	more := ""
	if len(ids) > missingNamed {
		more = fmt.Sprintf(" and %d more", len(ids)-missingNamed)
		ids = ids[:missingNamed]
	}
	return fmt.Errorf("the answer is not whole, these %s cannot be read now: %s%s", what, strings.Join(ids, ", "), more)
}

// printJSON writes one document.
func printJSON(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
