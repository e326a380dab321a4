package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// bodyMax bounds the body of a request, as NATS's usual max_payload does.
const bodyMax = 1 << 20

// request makes the service's request of an HTTP one. The caller calls done when it needs it
// no longer.
func (d *door) request(w http.ResponseWriter, h *http.Request, r *route) (body []byte, done func(), p *problem) {
	given, err := url.ParseQuery(h.URL.RawQuery)
	if err != nil {
		return nil, nothingTaken, refuse(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	if p := r.known(given); p != nil {
		return nil, nothingTaken, p
	}
	if r.body {
		return d.readBody(w, h, bodyMax)
	}
	out, err := r.fields([]byte{'{'}, h, given)
	if err != nil {
		return nil, nothingTaken, refuse(http.StatusBadRequest, "%v", err)
	}
	return append(out, '}'), nothingTaken, nil
}

// fields appends what the path and the query say.
func (r *route) fields(out []byte, h *http.Request, given url.Values) (_ []byte, err error) {
	for i := range r.path {
		if out, err = r.path[i].append(out, h.PathValue(r.path[i].name)); err != nil {
			return nil, err
		}
	}
	for _, p := range r.parameters() {
		if values := given[p.name]; len(values) > 0 {
			if out, err = p.append(out, values[0]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// parameters are those that the query may have.
func (r *route) parameters() []parameter {
	switch {
	case r.body:
		return nil
	case r.plain:
		return r.query
	}
	return slices.Concat(r.query, anyRequest)
}

// known refuses a query with parameters that the route has not, or has twice: one that is
// passed over in silence is a mistake that nobody finds.
func (r *route) known(given url.Values) *problem {
	for name, values := range given {
		switch {
		case !r.takes(name):
			return refuse(http.StatusBadRequest, "%.100q is not a parameter of %s", name, r.pattern)
		case len(values) > 1:
			return refuse(http.StatusBadRequest, "%s is given %d times", name, len(values))
		}
	}
	return nil
}

func (r *route) takes(name string) bool {
	return slices.ContainsFunc(r.parameters(), func(p parameter) bool { return p.name == name })
}

// append writes the parameter as a field of the request.
func (p *parameter) append(out []byte, value string) ([]byte, error) {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(strconv.AppendQuote(out, p.key()), ':')
	switch p.kind {
	case list:
		return appendStrings(out, value), nil
	case number:
		return p.appendNumber(out, value)
	case boolean:
		return p.appendBool(out, value)
	case either:
		if strings.Contains(value, ",") {
			return appendStrings(out, value), nil
		}
	}
	return appendString(out, value), nil
}

func (p *parameter) appendNumber(out []byte, value string) ([]byte, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %.100q is not a whole number", p.name, value)
	}
	return strconv.AppendUint(out, n, 10), nil
}

func (p *parameter) appendBool(out []byte, value string) ([]byte, error) {
	if value != "true" && value != "false" {
		return nil, fmt.Errorf("%s: %.100q is not true or false", p.name, value)
	}
	return append(out, value...), nil
}

// appendStrings writes values between commas as an array.
func appendStrings(out []byte, values string) []byte {
	out = append(out, '[')
	for value := range strings.SplitSeq(values, ",") {
		out = append(appendString(out, value), ',')
	}
	out[len(out)-1] = ']' // there is one value at least
	return out
}

// appendString writes a JSON string; digits, as most are, without a look at each rune.
func appendString(out []byte, value string) []byte {
	if !plain(value) {
		quoted, _ := json.Marshal(value) // of a string: no error
		return append(out, quoted...)
	}
	out = append(append(out, '"'), value...)
	return append(out, '"')
}

// plain says that a string stands in JSON as it is.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
