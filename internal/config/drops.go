package config

import (
	"fmt"
	"slices"
)

// Drops are what from counts and to does not, in words: "counter view", "column
// post.like", "the rule of like that adds to post.like (key post)". A rule that is
// changed is dropped as it was. None: to counts all that from does.
func Drops(from, to *Config) (words []string) {
	for i := range from.Counters {
		counter := &from.Counters[i]
		is := to.counter(counter.Name)
		if is == nil {
			words = append(words, "counter "+counter.Name)
			continue
		}
		for _, column := range counter.Columns {
			if is.column(column.Name) == nil {
				words = append(words, fmt.Sprintf("column %s.%s", counter.Name, column.Name))
			}
		}
	}
	for _, event := range from.EventRules {
		left := slices.Clone(to.rulesOf(event.Type))
		for _, rule := range event.Rules {
			if i := slices.Index(left, rule); i >= 0 {
				left = slices.Delete(left, i, i+1) // a rule may be there twice
				continue
			}
			words = append(words, fmt.Sprintf("the rule of %s that adds to %s (%s)", event.Type, rule.Add, rule.when()))
		}
	}
	return words
}

// when says by which key, and under which conditions, a rule adds.
func (r Rule) when() string {
	words := "key " + r.Key
	if r.If != "" {
		words += ", if " + r.If
	}
	if r.Unless != "" {
		words += ", unless " + r.Unless
	}
	if (r.Once != Once{}) {
		words += ", once " + r.Once.String()
	}
	if r.Keep != 0 {
		words += ", keep " + FormatDuration(r.Keep)
	}
	return words
}
