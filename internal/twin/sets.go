package twin

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
)

// viewsKept is for how long page.view remembers a visitor, where it does; seconds.
const viewsKept = 600

// likesAndViews are their rules, as config.yaml states them.
func likesAndViews(once bool) string {
	if !once {
		return plainLines
	}
	return `  like:    [{add: post.like, key: post, once: actor}, {add: user.liked, key: author, once: [post, actor]}, {add: unread.like, key: author, unless: self}]
  view:    [{add: page.view, key: page, once: visitor, keep: 10m}]
`
}

const plainLines = `  like:    [{add: post.like, key: post}, {add: user.liked, key: author}, {add: unread.like, key: author, unless: self}]
  view:    [{add: page.view, key: page}]
`

// withSets has likes and views counted once, or every time.
func withSets(c *config.Config, once bool) {
	for i := range c.EventRules {
		rules := slices.Clone(c.EventRules[i].Rules)
		for j := range rules {
			r := &rules[j]
			if r.Once, r.Keep = (config.Once{}), 0; !once {
				continue
			}
			switch r.Add {
			case "post.like":
				r.Once = config.Once{"actor"}
			case "post.comment":
				r.Once = config.Once{"comment"}
			case "user.liked":
				r.Once = config.Once{"post", "actor"}
			case "page.view":
				r.Once, r.Keep = config.Once{"visitor"}, viewsKept*time.Second
			}
		}
		c.EventRules[i].Rules = rules
	}
}

// EveryTime has each like and each view count: c has no sets.
func EveryTime(c *config.Config) *config.Config {
	withSets(c, false)
	return c
}

// visitors are tokens of all kinds, and some that are none.
var visitors = []string{"", "0", "7", "18446744073709551615", "f81d-4fae", `"a" \ ü`, "07"}

// memberName is a member of a set, by what the events say.
type memberName struct {
	cellName
	what string
}

// member is how a set names what an event has; "" where it lacks a field.
func member(ids ...uint64) (what string) {
	for _, id := range ids {
		if id == 0 {
			return ""
		}
		what += " " + strconv.FormatUint(id, 10)
	}
	return what
}

// token is how a set names one: "0" is none, as 0 is no id.
func token(visitor string) string {
	if visitor == "0" {
		return ""
	}
	return visitor
}

// once says whether an event counts in the set of a row.
//
// "Such a rule adds for what is not yet in the key's set of those fields' values (1 or 2
// ids, or a string token of up to 128 bytes) and puts it in; what is in the set adds
// nothing; `delete` takes away what is there and nothing else." "An event that lacks such
// a field counts as without `once`." "With `keep` (log time) a member is forgotten after
// that time, but what it counted stays."
//
// Reading: after that time since it was put in, to the second. What is in the set already
// does not begin again. A deletion of what is forgotten takes nothing.
func (m *model) once(c *counts, e *logged, column string, id uint64, what string) bool {
	if !m.ages.once || what == "" {
		return true
	}
	name := memberName{cellName{column, id}, what}
	since, there := c.members[name]
	if column == "page.view" && e.second-since > viewsKept {
		there = false
	}
	switch {
	case there != e.delete:
		return false
	case e.delete:
		delete(c.members, name)
	default:
		c.members[name] = e.second
	}
	return true
}

// empty is what del does besides: "`del` of the row empties both".
func (c *counts) empty(counter string, id uint64) {
	maps.DeleteFunc(c.members, func(m memberName, _ int64) bool {
		return m.id == id && m.column[:len(counter)+1] == counter+"."
	})
}

// visit is what a view event says besides its page.
func (g *generator) visit(e *event) {
	if g.once {
		e.visitor = one(g, visitors)
		e.by = []int64{0, 0, 0, 1, 3, -2}[g.IntN(6)]
	}
}

// putVisitor puts the token into an event's JSON: what spells an id also as a number.
func putVisitor(o map[string]any, visitor string, line int) {
	if visitor == "" {
		return
	}
	o["visitor"] = visitor
	if u, err := strconv.ParseUint(visitor, 10, 64); err == nil && line%2 == 0 && visitor[0] != '0' {
		o["visitor"] = u
	}
}
