package door

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tidemark-io/tidemark/query/web"
)

// Hosts are the names under which the HTTP server may be asked.
//
// A page from elsewhere, open in a browser on this machine, can have its own
// name lead to 127.0.0.1 (DNS rebinding): the browser then takes what this
// server answers for that page's own, pprof and metrics included, and lets it
// post to it. Only the Host that the browser sends shows it: it is the page's name.
// An address is never one, so a request by address is let in.
type Hosts map[string]bool

// NewHosts knows the host of the address that is listened on, and the
// operator's names (http.hosts).
func NewHosts(listen string, names []string) Hosts {
	h := Hosts{"localhost": true}
	if own := hostName(listen); own != "" {
		h[own] = true
	}
	for _, name := range names {
		h[hostName(name)] = true
	}
	return h
}

// hostName is the host of a Host header or an address, without the port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// have reports whether a request's Host is this server's. None is no browser's.
func (h Hosts) have(host string) bool {
	name := hostName(host)
	_, err := netip.ParseAddr(name)
	return err == nil || name == "" || h[name]
}

// Only keeps requests for other hosts from next. Probes are left alone: they
// come under whatever name a scheduler or a balancer has for the place, and
// what they get says no more than how the node is.
func (h Hosts) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"; !probe && !h.have(r.Host) {
			web.Refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf(
				"this server is not known as %.100q: ask it by its IP address or as localhost, or add the name to http.hosts in its configuration", hostName(r.Host)))
			return
		}
		next.ServeHTTP(w, r)
	})
}
