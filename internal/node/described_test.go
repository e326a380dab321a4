package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
)

// document is /v1/openapi.json.
type document struct {
	Paths      map[string]map[string]struct{ Responses map[string]described }
	Components struct{ Schemas map[string]schema }
}

type described struct {
	Content map[string]struct{ Schema schema }
}

// schema is as much of JSON Schema as the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]schema
	Required             []string
	AdditionalProperties *schema
	Items                *schema
	OneOf                []schema
}

// fits returns what of a value a schema does not describe. What is not named does not fit, nor
// does a field that is not there and required.
func (d *document) fits(s schema, v any, at string) (faults []string) {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	if s.OneOf != nil {
		good := slices.ContainsFunc(s.OneOf, func(one schema) bool { return len(d.fits(one, v, at)) == 0 })
		if !good {
			faults = append(faults, at+" is none of those that it may be")
		}
		return faults
	}
	is := map[bool]string{true: "boolean"}[v == true || v == false]
	switch v := v.(type) {
	case nil:
		is = "null"
	case string:
		is = "string"
	case json.Number:
		is = "integer"
	case []any:
		is = "array"
		for i := range v {
			if s.Items != nil {
				faults = append(faults, d.fits(*s.Items, v[i], fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	case map[string]any:
		is = "object"
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				faults = append(faults, at+" has no "+name)
			}
		}
		for name := range maps.Keys(v) {
			of, named := s.Properties[name]
			switch {
			case !named && s.AdditionalProperties != nil:
				of = *s.AdditionalProperties
			case !named && s.Properties != nil:
				faults = append(faults, at+" has "+name+", which is not described")
				continue
			case !named: // any object
				continue
			}
			faults = append(faults, d.fits(of, v[name], at+"."+name)...)
		}
	}
	if types, several := s.Type.([]any); several && slices.Contains(types, any(is)) || s.Type == is {
		return faults
	}
	return append(faults, fmt.Sprintf("%s is %s, not %v", at, is, s.Type))
}

// docs/http.md: "describes requests and answers completely".
func TestAnswersAreDescribed(t *testing.T) {
	t.Parallel()
	n := startWith(t, func(c *config.Config) {
		counts := config.Default()
		c.Counters, c.EventRules, c.Limits.Timeout = counts.Counters, counts.EventRules, c.Limits.TimeoutMax
	})
	var d document
	_, text := call(t, "GET", n.HTTPAddress()+"/v1/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	_, stored := call(t, "POST", n.HTTPAddress()+"/v1/events", strings.Join(communityLines, "\n"))
	var at struct{ Position string }
	if err := json.Unmarshal([]byte(stored), &at); err != nil || at.Position == "" {
		t.Fatal(stored, err)
	}
	wait := "min_position=" + at.Position
	seen := map[string]bool{}
	for _, c := range []struct {
		method, path, body, pattern string
		code                        int
	}{
		{"GET", "/v1/get/post/50,53?member=7&" + wait, "", "/v1/get/{counter}/{ids}", 200},
		{"GET", "/v1/get/user/8?member=7,50&" + wait, "", "/v1/get/{counter}/{ids}", 200},
		{"GET", "/v1/get/nope/50", "", "/v1/get/{counter}/{ids}", 404},
		{"GET", "/v1/get/post/x", "", "/v1/get/{counter}/{ids}", 400},
		{"GET", "/v1/get/post/1?min_position=99999999", "", "/v1/get/{counter}/{ids}", 400},
		{"GET", "/v1/get/post/1?min_seq=1000&timeout_ms=1", "", "/v1/get/{counter}/{ids}", 504},
		{"DELETE", "/v1/get/post/1", "", "/v1/get/{counter}/{ids}", 405},
		{"GET", "/v1/unread/7,8,10?" + wait, "", "/v1/unread/{users}", 200},
		{"GET", "/v1/feed/7?limit=1&" + wait, "", "/v1/feed/{user}", 200},
		{"GET", "/v1/following/7?limit=1&" + wait, "", "/v1/following/{user}", 200},
		{"GET", "/v1/followers/8?" + wait, "", "/v1/followers/{user}", 200},
		{"GET", "/v1/members/post.like/50?limit=1&" + wait, "", "/v1/members/{column}/{id}", 200},
		{"GET", "/v1/members/user.liked/8?" + wait, "", "/v1/members/{column}/{id}", 200},
		{"GET", "/v1/inbox/8?limit=1&" + wait, "", "/v1/inbox/{user}", 200},
		{"GET", "/v1/page/50,51?viewer=7&" + wait, "", "/v1/page/{ids}", 200},
		{"GET", "/v1/explain/post.like/50?limit=1&" + wait, "", "/v1/explain/{number}/{id}", 200},
		{"GET", "/v1/explain/unread/7?" + wait, "", "/v1/explain/{number}/{id}", 200},
		{"GET", "/v1/explain/unread.feed/7?" + wait, "", "/v1/explain/{number}/{id}", 200},
		{"GET", "/v1/nodes", "", "/v1/nodes", 200},
		{"POST", "/v1/read", `{"user":7,"what":["all"]}`, "/v1/read", 200},
		{"POST", "/v1/read", `{"user":7}`, "/v1/read", 400},
		{"POST", "/v1/events", communityLines[0] + "\n{}\nx", "/v1/events", 200},
		{"POST", "/v1/events", "{}", "/v1/events", 422},
	} {
		code, body := call(t, c.method, n.HTTPAddress()+c.path, c.body)
		if code != c.code {
			t.Errorf("%s: %d %s", c.path, code, body)
			continue
		}
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.UseNumber()
		var answer any
		if err := decoder.Decode(&answer); err != nil {
			t.Errorf("%s: %s: %v", c.path, body, err)
		}
		method := "get"
		if c.method == "POST" {
			method = "post"
		}
		of, known := d.Paths[c.pattern][method].Responses[fmt.Sprint(code)]
		if !known || len(of.Content) != 1 {
			t.Errorf("%s: %d is not described", c.pattern, code)
		}
		for _, content := range of.Content {
			for _, fault := range d.fits(content.Schema, answer, "the answer") {
				t.Errorf("%s: %s\n%s", c.path, fault, body)
			}
		}
		seen[c.pattern] = seen[c.pattern] || code == 200
	}
	if len(seen) != len(d.Paths) {
		t.Errorf("%d paths of %d were asked", len(seen), len(d.Paths))
	}
	for _, answer := range []string{"GetAnswer", "UnreadAnswer", "FeedAnswer", "UsersAnswer", "MembersAnswer", "InboxAnswer", "ExplainAnswer"} {
		for _, name := range []string{"degraded", "stale_ms", "missing"} {
			if _, there := d.Components.Schemas[answer].Properties[name]; !there {
				t.Errorf("%s has no %s", answer, name)
			}
		}
	}
}
