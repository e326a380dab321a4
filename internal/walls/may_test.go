package walls

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// covers against a twin that tries every subject of up to four tokens.
func TestCoversTwin(t *testing.T) {
	var all [][]string
	for _, last := 0, [][]string{{}}; len(last[0]) < 4; {
		var next [][]string
		for _, s := range last {
			for _, token := range []string{"a", "b", "c"} {
				next = append(next, append(append([]string{}, s...), token))
			}
		}
		all, last = append(all, next...), next
	}
	matches := func(pattern, subject []string) bool {
		for i, token := range pattern {
			if token == ">" {
				return len(subject) > i
			}
			if i >= len(subject) || token != "*" && token != subject[i] {
				return false
			}
		}
		return len(pattern) == len(subject)
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []string {
		p := make([]string, 1+r.IntN(3))
		for i := range p {
			p[i] = []string{"a", "b", "*"}[r.IntN(3)]
		}
		if r.IntN(3) == 0 {
			p[len(p)-1] = ">"
		}
		return p
	}
	covered := 0
	for range 20000 {
		pattern, subject := random(), random()
		want := true
		for _, s := range all {
			want = want && (!matches(subject, s) || matches(pattern, s))
		}
		if got := covers(strings.Join(pattern, "."), strings.Join(subject, ".")); got != want {
			t.Fatalf("%q covers %q: %t", pattern, subject, got)
		}
		if want {
			covered++
		}
	}
	if covered < 500 {
		t.Errorf("%d were covered", covered)
	}
}

func TestMay(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		want        string
	}{
		{nil, nil, "producer reader gateway application operator node"},
		{nil, []string{"$JS.API.>"}, "producer reader gateway application"},
		{subjects(&Roles[0]), nil, "producer"},
		{subjects(&Roles[1]), nil, "reader"},
		{subjects(&Roles[2]), nil, "reader gateway"},
		{subjects(application()), internalEvents, "producer reader gateway application"},
	} {
		var all []string
		for _, right := range May(c.allow, c.deny) {
			if right.All {
				all = append(all, right.Role)
			} else if right.First == "" {
				t.Errorf("%s: no subject is named", right.Role)
			}
		}
		if got := strings.Join(all, " "); got != c.want {
			t.Errorf("allow %q, deny %q: %s, want %s", c.allow, c.deny, got, c.want)
		}
	}
}
