package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/node/counting"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// ClockMax bounds how far this machine's clock may be from the server's. Nothing that is
// counted depends on it; lag, ages and tokens' ends are read from it.
const ClockMax = time.Second

// log looks at the NATS server and what is on it.
func (r *Report) log(ctx context.Context, o Options) {
	nc, err := jetlog.Connect(o.Connect)
	switch {
	case errors.Is(err, nats.ErrNoServers) && o.Config.NATS.URL == "":
		r.unknown("log", "no node runs here, and the embedded server with it: clock, streams and rights were not looked at")
		r.data(o.Config, false)
		r.stored(o.Config)
		r.ports(o.Config)
		return
	case err != nil:
		r.bad("log", "start the server, or set nats.url and its credentials", "%s", err)
		return
	}
	defer nc.Close()
	r.good("log", "%s answers", jetlog.Address(nc))
	if !o.Config.Thin() {
		r.data(o.Config, true)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	if r.rights(ctx, nc) {
		r.streams(ctx, nc, o.Config)
	}
}

func (r *Report) streams(ctx context.Context, nc *nats.Conn, c *config.Config) {
	looks, now, precision, err := jetlog.LookAt(ctx, nc, counting.StreamLimits(&c.NATS))
	if err != nil {
		r.bad("streams", "look at the server's log", "%s", err)
		return
	}
	r.clock(now, precision)
	for i := range looks {
		r.stream(&looks[i])
	}
}

// stored looks at the streams of an embedded server that does not run.
func (r *Report) stored(c *config.Config) {
	dir := filepath.Join(c.DataDir, datadir.StreamsDir, "jetstream", walls.Inside, "streams")
	looks, err := jetlog.LookInStore(dir, int64(c.NATS.MaxPayload), counting.StreamLimits(&c.NATS))
	if err != nil {
		r.bad("streams", "look at the files there", "%s", err)
	}
	for i := range looks {
		if len(looks[i].Misfits) > 0 {
			r.stream(&looks[i])
		}
	}
}

func (r *Report) clock(server time.Time, precision time.Duration) {
	if server.IsZero() {
		r.unknown("clock", "the server has no stream yet that says what its clock is")
		return
	}
	apart := time.Since(server).Abs()
	r.judge(apart-precision <= ClockMax, "clock", "have both machines follow one time: chrony, or systemd-timesyncd",
		"%s from the server's, within %s; at most %s", apart.Round(time.Microsecond), precision.Round(time.Microsecond), ClockMax)
}

func (r *Report) stream(l *jetlog.Look) {
	name := "stream " + l.Name
	switch {
	case !l.There:
		r.good(name, "not there; the first node makes it")
	case len(l.Misfits) > 0:
		r.bad(name, "set the configuration to what the stream has, or the stream with 'nats stream edit'", "%s", strings.Join(l.Misfits, "; "))
	case len(l.Damaged) > 0:
		r.bad(name, "bring its files back from a backup of the disk and start the node again (docs/failures.md, Damaged files)", "damaged: it lacks %v", l.Damaged)
	default:
		r.judge(l.Current == l.Replicas, name, "start the servers that are away, and wait until they have all of it",
			"as the configuration makes it; %d of %d replicas have all of it", l.Current, l.Replicas)
	}
}

// rights says role by role what the key may do, and whether it is enough for a node.
func (r *Report) rights(ctx context.Context, nc *nats.Conn) (inside bool) {
	user, err := userInfo(ctx, nc)
	if err != nil {
		r.bad("rights", "give the node's key: nats.nkey", "the server does not say what this client may do (%s): it is no node's key", err)
		return false
	}
	may := walls.May(user.Permissions.Publish.Allow, user.Permissions.Publish.Deny)
	for _, m := range may {
		if m.Role == walls.NodeRole {
			inside = m.All
		}
	}
	r.judge(inside, "rights", "give the node's key: nats.nkey", "the key of account %s may do all of: %s", user.Account, rolesOf(may))
	return inside
}

func rolesOf(may []walls.Right) string {
	var all, none []string
	for _, m := range may {
		if m.All {
			all = append(all, m.Role)
		} else {
			none = append(none, fmt.Sprintf("%s (not %s)", m.Role, m.First))
		}
	}
	text := strings.Join(all, ", ")
	if len(none) > 0 {
		text += "; not of: " + strings.Join(none, ", ")
	}
	return text
}

// user is what the server says of the client that asks.
type user struct {
	Account     string `json:"account"`
	Permissions struct {
		Publish struct {
			Allow []string `json:"allow"`
			Deny  []string `json:"deny"`
		} `json:"publish"`
	} `json:"permissions"`
}

// userInfoSubject is the server's own; a client with an allow list that lacks it is not
// answered.
const userInfoSubject = "$SYS.REQ.USER.INFO"

// userInfoWithin is how long it may take to answer.
const userInfoWithin = 2 * time.Second

func userInfo(ctx context.Context, nc *nats.Conn) (*user, error) {
	ctx, cancel := context.WithTimeout(ctx, userInfoWithin)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, userInfoSubject, nil)
	if denial := jetlog.Denial(nc.LastError()); err != nil && denial != "" {
		return nil, errors.New(denial)
	}
	if err != nil {
		return nil, err
	}
	return userOf(m.Data)
}

func userOf(data []byte) (*user, error) {
	var reply struct {
		Data  *user                         `json:"data"`
		Error *struct{ Description string } `json:"error"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return nil, err
	}
	if reply.Error != nil || reply.Data == nil {
		return nil, fmt.Errorf("the server answers %.200q", data)
	}
	return reply.Data, nil
}
