package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrClusterListen: StartServer cannot listen on ClusterOptions.Listen.
var ErrClusterListen = errors.New("jetlog: cannot listen for the other servers")

// ClusterOptions make an embedded server a member of a NATS cluster; the zero
// value leaves it on its own.
//
// A cluster needs more than half of its servers for anything of JetStream: of
// three, two. Its very first start needs all that Routes name: a server without
// a history may have lost it, so the others' word alone makes no leader.
type ClusterOptions struct {
	Name   string   // the same on all servers
	Listen string   // host:port for the other servers; "" = no cluster
	Routes []string // nats://host:port of the others, one at least; this server may be among them
}

func (o *ClusterOptions) on() bool { return o.Listen != "" }

// options are the server's, of its cluster.
func (o *ClusterOptions) options() (cluster server.ClusterOpts, routes []*url.URL, err error) {
	if !o.on() {
		return cluster, nil, nil
	}
	cluster.Name = o.Name
	if cluster.Host, cluster.Port, err = listenAddress(o.Listen); err != nil {
		return cluster, nil, fmt.Errorf("jetlog: start server: cluster address %q: %w", o.Listen, err)
	}
	if len(o.Routes) == 0 {
		return cluster, nil, errors.New("jetlog: start server: a member of a cluster needs a route to another server")
	}
	for _, text := range o.Routes {
		route, err := url.Parse(text)
		if err != nil || route.Host == "" {
			return cluster, nil, fmt.Errorf("jetlog: start server: route %q is not a URL with a host", text)
		}
		routes = append(routes, route)
	}
	return cluster, routes, nil
}

// metaDir is where a member of a cluster keeps what the cluster knows of
// streams; a server on its own has none.
func metaDir(store string) string {
	return filepath.Join(store, server.JetStreamStoreDir, server.DEFAULT_SYSTEM_ACCOUNT, "_js_", "_meta_")
}

// checkMember refuses to start a server on what another kind of server left.
//
// A member of a cluster deletes the streams on its disk that the cluster does
// not know, half a minute after it has joined: all that a server on its own has
// stored. And a server on its own cannot recover a stream that has copies; a
// stream without would go on here while the others take it for lost.
func checkMember(o *ServerOptions, stored []string) error {
	_, err := os.Stat(metaDir(o.StoreDir))
	was := err == nil
	switch {
	case !was && o.Cluster.on() && len(stored) > 0:
		return fmt.Errorf("jetlog: start server: %s under %s were stored by a server on its own, and as a member of cluster %s it would delete them: "+
			"start without nats.cluster, or with another data directory",
			strings.Join(stored, ", "), o.streamsDir(), o.Cluster.Name)
	case was && !o.Cluster.on():
		return fmt.Errorf("jetlog: start server: %s is of a member of a NATS cluster, and a server on its own cannot go on with it: "+
			"state nats.cluster as it was, or start with another data directory", o.StoreDir)
	}
	return nil
}

// Standing is how an embedded server stands with its cluster.
type Standing struct {
	Leader  string   // the server that leads JetStream in the cluster; "" = none is known
	Servers []string // that this one has a route to, in order, itself left out
	Size    int      // servers that the cluster counts on, as far as this one knows
	Needed  int      // of these, for a leader; all of them for the cluster's first
}

// Standing is how the server stands now; the zero value for one on its own, or
// one that is down.
func (s *Server) Standing() Standing {
	ns := s.ns.Load()
	info, err := ns.Jsz(nil)
	if err != nil || info.Meta == nil {
		return Standing{}
	}
	standing := Standing{Leader: info.Meta.Leader, Size: info.Meta.Size, Needed: info.Meta.QuorumNeeded}
	if routes, err := ns.Routez(nil); err == nil {
		for _, r := range routes.Routes {
			if r.RemoteName != "" && !slices.Contains(standing.Servers, r.RemoteName) { // a server has several
				standing.Servers = append(standing.Servers, r.RemoteName)
			}
		}
		slices.Sort(standing.Servers)
	}
	return standing
}

// String says for which servers one without a leader waits.
func (s Standing) String() string {
	with := "no other server is there"
	if len(s.Servers) > 0 {
		with = strings.Join(s.Servers, ", ") + " and this one are there"
	}
	if s.Leader == "" {
		return fmt.Sprintf("the NATS cluster has no leader: %s, %d of %d servers are needed, and all of them for its first start", with, s.Needed, s.Size)
	}
	return fmt.Sprintf("the NATS cluster is led by %s: %s", s.Leader, with)
}

const (
	standingEvery     = 50 * time.Millisecond
	standingToldAfter = time.Second // an election among servers that are there
	standingToldEvery = 30 * time.Second
)

// WaitLeader waits until the cluster of the server has a leader, which takes as
// many servers as Standing.Needed says. For a server on its own it returns at
// once. tell is called with how the server stands while it waits: when that changes,
// and every half a minute. The error is ctx's.
func (s *Server) WaitLeader(ctx context.Context, tell func(Standing)) error {
	if !s.options.Cluster.on() {
		return nil
	}
	look := time.NewTicker(standingEvery)
	defer look.Stop()
	next, told := time.Now().Add(standingToldAfter), ""
	for {
		standing := s.Standing()
		if standing.Leader != "" {
			return nil
		}
		if now := time.Now(); now.After(next) || told != "" && told != standing.String() {
			next, told = now.Add(standingToldEvery), standing.String()
			tell(standing)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("jetlog: %s: %w", standing, ctx.Err())
		}
	}
}

// Behind says what a member of a cluster still lacks of what it is to have: a
// leader, a stream, the newest messages of one. Until there is nothing, another
// server that fails may leave the cluster without a majority that knows all. It
// goes over by itself; nil for a server on its own.
func (s *Server) Behind() []string {
	if !s.options.Cluster.on() {
		return nil
	}
	var reports []string
	for _, e := range s.ns.Load().Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Consumer == "" && !needsRestart(e.Error) {
			reports = append(reports, e.Error)
		}
	}
	slices.Sort(reports)
	return reports
}

// needsRestart says of what a member of a cluster reports of itself that it
// does not go over by itself: what could not be written, and JetStream that has
// been shut down for it. Most else (no leader, a copy that catches up) does.
func needsRestart(report string) bool {
	return slices.ContainsFunc([]string{"write error", "apply error", "not enabled", "not running"}, func(what string) bool {
		return strings.Contains(report, what)
	})
}

// tellUnrecovered says which streams a member begins without: the others have
// them, and give them to it again.
func tellUnrecovered(log *slog.Logger, lost []string) {
	log.Warn("jetlog: the streams cannot be recovered from this server's disk, and are copied again from the cluster's other servers", "streams", strings.Join(lost, ", "))
}
