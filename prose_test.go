package tidemark_test

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// habits are what makes sentences of this house hard to read for an engineer who learns
// English, with how often each may be in 1,000 words. Good Go code elsewhere has 0.1 of
// each. This is a thermometer: write for readers, not for it.
var habits = []struct {
	name, instead string
	may           float64
	count         func(words []string) int
}{
	{"who", "name the person or the process", 0.3, bareWho},
	{"told, tells", "say reports, shows, is known from, cannot be determined", 0.3, one("told", "tells")},
	{"meanwhile", "say while what", 0.1, one("meanwhile")},
	{"any more", "say no longer", 0.1, anyMore},
}

func TestProse(t *testing.T) {
	over := map[string]int{}
	for where, words := range prose(t) {
		for _, habit := range habits {
			n := habit.count(words)
			if may := int(habit.may*float64(len(words))/1000) + 1; n > may { // a page of few words may have one
				over[habit.name+" in "+where] = n
			}
		}
	}
	ratchet(t, "prose", "(Times; habits in prose_test.go has what may be and what to write instead.)", over)
}

// prose returns the words of comments, by room, and of pages.
func prose(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	split := func(text string) []string {
		return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '-' })
	}
	for _, s := range house(t) {
		where, _, _ := strings.Cut(s.dir, "/")
		if strings.HasPrefix(s.dir, "internal/") && product(s.dir) || strings.HasPrefix(s.dir, "pipeline/jetlog") {
			where = s.dir
		}
		if s.test {
			where = "tests of " + where
		}
		for _, c := range s.Comments {
			all[where] = append(all[where], split(c.Text())...)
		}
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	pages := files(t, ".md")
	for _, name := range slices.Sorted(maps.Keys(pages)) { // in order: the first word of a page counts after the last one of another
		text := pages[name]
		if dir := path.Dir(name); dir == "docs/decisions" {
			name = dir
		}
		all[name] = append(all[name], split(code.ReplaceAllString(text, " x "))...)
	}
	for where, words := range all {
		if len(words) == 0 {
			t.Errorf("%s has no words", where)
		}
	}
	return all
}

func one(of ...string) func(words []string) int {
	return func(words []string) (n int) {
		for _, w := range words {
			for _, o := range of {
				if w == o {
					n++
				}
			}
		}
		return n
	}
}

func anyMore(words []string) (n int) {
	for i, w := range words {
		if w == "anymore" || w == "any" && i+1 < len(words) && words[i+1] == "more" {
			n++
		}
	}
	return n
}

var person = regexp.MustCompile(`^(user|people|person|author|actor|follower|followee|friend|operator|engineer|developer|newcomer|reader|writer|caller|client|producer|viewer|stranger|attacker)s?$`)

// bareWho counts who, whoever and whom that follow no person.
func bareWho(words []string) (n int) {
	for i, w := range words {
		switch w {
		case "who", "whoever", "whom":
			if i == 0 || !person.MatchString(words[i-1]) {
				n++
			}
		}
	}
	return n
}

// What the counts are of.
func TestProseCounts(t *testing.T) {
	for text, want := range map[string]int{
		"users who follow a channel": 0, "who follows is told": 1, "a node who has gone": 1, "a node whose disk is full": 0, "whoever comes": 1, "the client who asks": 0,
	} {
		if n := bareWho(strings.Fields(text)); n != want {
			t.Errorf("%q has %d, want %d", text, n, want)
		}
	}
	if n := anyMore(strings.Fields("it is not there any more")); n != 1 {
		t.Errorf("any more: %d", n)
	}
}
