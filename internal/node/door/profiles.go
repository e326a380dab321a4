package door

import (
	"net/http"
	"net/http/pprof"

	"github.com/tidemark-io/tidemark/query/web"
)

// Profiles say where the time and the memory go, for an operator at night: on this machine
// for everybody, else for operators alone. What takes processor time for seconds is started
// by a POST: no link of any page starts it.
func (d *Door) Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	for path, page := range map[string]http.HandlerFunc{"/debug/pprof/profile": pprof.Profile, "/debug/pprof/trace": pprof.Trace} {
		mux.HandleFunc("POST "+path, page)
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", http.MethodPost)
			web.Refuse(w, http.StatusMethodNotAllowed, "it is started by a POST, as of: curl -X POST -o FILE 'http://"+r.Host+r.URL.RequestURI()+"'")
		})
	}
	all := web.SameOrigin(mux)
	if d.local || d.tokens == nil {
		return all
	}
	return web.Only(d.tokens.role, all)
}
