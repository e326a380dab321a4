package config

import "slices"

// ExtendsDefault in Config.Extends has a file add its counters, columns, rules and channels to
// those of the program, instead of replacing the sections.
const ExtendsDefault = "default"

// extendColumns puts the columns that c states behind those of the defaults, or in place of
// one of the same name; and channels in the same way.
func (c *Config) extendColumns(defaults *Config) {
	c.Counters = merge(defaults.Counters, c.Counters, func(a, b *Counter) bool { return a.Name == b.Name }, func(into, from *Counter) {
		into.Columns = merge(into.Columns, from.Columns, func(a, b *Column) bool { return a.Name == b.Name }, func(into, from *Column) { *into = *from })
	})
	c.Channels = merge(defaults.Channels, c.Channels, func(a, b *Channel) bool { return a.Name == b.Name }, func(into, from *Channel) { *into = *from })
}

// extendRules puts the rules of the defaults behind those that c states, by whose places
// they are checked, but for those that it states anew: that add to the same column by the
// same key.
func (c *Config) extendRules(defaults *Config) {
	c.EventRules = merge(c.EventRules, defaults.EventRules, func(a, b *EventRules) bool { return a.Type == b.Type }, func(into, from *EventRules) {
		into.Rules = merge(into.Rules, from.Rules, func(a, b *Rule) bool { return a.Add == b.Add && a.Key == b.Key }, func(*Rule, *Rule) {})
	})
}

// merge adds each of some to all: to the same one that is there, or behind the others.
func merge[T any](all, some []T, same func(a, b *T) bool, add func(into, from *T)) []T {
	for i := range some {
		at := slices.IndexFunc(all, func(one T) bool { return same(&one, &some[i]) })
		if at < 0 {
			all = append(all, some[i])
		} else {
			add(&all[at], &some[i])
		}
	}
	return all
}
