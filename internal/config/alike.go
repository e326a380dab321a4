package config

import (
	"cmp"
	"slices"
	"strings"
)

// Alike names the columns, counter.column, that a and b count alike: after the
// same events they hold the same. It rather leaves one out than names one too
// many.
func Alike(a, b *Config) (columns []string) {
	for _, counter := range a.Counters {
		for _, column := range counter.Columns {
			if alike(a, b, counter.Name, column.Name) {
				columns = append(columns, counter.Name+"."+column.Name)
			}
		}
	}
	return columns
}

func alike(a, b *Config, counter, column string) bool {
	in, of := a.counter(counter), b.counter(counter)
	x, y := in.column(column), of.column(column)
	switch {
	case x == nil || y == nil || x.Default != y.Default || x.Max != y.Max || x.Items != y.Items:
		return false
	case x.Default != 0 && !slices.Equal(in.names(), of.names()):
		return false // whichever column makes a row, its default goes
	case counter == unreadCounter && !sameReads(a, b, in, of):
		return false
	case !fedAlike(a, b, counter+"."+column):
		return false
	}
	if x.Default != 0 {
		for _, other := range in.Columns {
			if !fedAlike(a, b, counter+"."+other.Name) {
				return false
			}
		}
	}
	return true
}

// sameReads reports whether reads take back the same. One that names what there is
// not is refused as a whole.
func sameReads(a, b *Config, x, y *Counter) bool {
	return a.InactiveAfter == b.InactiveAfter && a.Unread == b.Unread && slices.Equal(x.names(), y.names()) && a.ChannelsOpen == b.ChannelsOpen &&
		(a.ChannelsOpen || slices.Equal(slices.Sorted(slices.Values(a.OnlyChannels())), slices.Sorted(slices.Values(b.OnlyChannels()))))
}

// fedAlike reports whether the same events add the same to a column. An event counts
// by all rules of its type or, if one of them lacks its key, by none: so the others
// of the type must ask for the same keys.
func fedAlike(a, b *Config, column string) bool {
	adds := func(r Rule) bool { return r.Add == column }
	for _, event := range slices.Concat(a.EventRules, b.EventRules) {
		x, y := a.rulesOf(event.Type), b.rulesOf(event.Type)
		if !slices.ContainsFunc(slices.Concat(x, y), adds) {
			continue
		}
		notAdds := func(r Rule) bool { return !adds(r) }
		if !slices.Equal(sortedRules(slices.DeleteFunc(slices.Clone(x), notAdds)), sortedRules(slices.DeleteFunc(slices.Clone(y), notAdds))) ||
			!slices.Equal(asked(event.Type, x), asked(event.Type, y)) {
			return false
		}
	}
	return true
}

func (c *Config) rulesOf(event string) []Rule {
	for i := range c.EventRules {
		if c.EventRules[i].Type == event {
			return c.EventRules[i].Rules
		}
	}
	return nil
}

// asked are the keys that an event type's rules ask for and that it may lack, and
// when; once each.
func asked(event string, rules []Rule) (keys []Rule) {
	for _, r := range rules {
		if _, fixed := fixedFields[event]; !fixed && r.Once != (Once{}) {
			keys = append(keys, Rule{Once: r.Once}) // a field of it that is malformed refuses the event
		}
		if slices.Contains(requiredFields[event], r.Key) {
			continue
		}
		counter := ""
		if strings.HasPrefix(r.Add, unreadCounter+".") { // what undoes an event leaves it alone
			counter = unreadCounter
		}
		keys = append(keys, Rule{Add: counter, Key: r.Key, If: r.If, Unless: r.Unless})
	}
	return slices.Compact(sortedRules(keys))
}

func sortedRules(rules []Rule) []Rule {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(strings.Compare(a.Add, b.Add), strings.Compare(a.Key, b.Key), strings.Compare(a.If, b.If), strings.Compare(a.Unless, b.Unless),
			slices.Compare(a.Once[:], b.Once[:]), cmp.Compare(a.Keep, b.Keep))
	})
	return rules
}

// counter is the one of a name; nil: there is none.
func (c *Config) counter(name string) *Counter {
	for i := range c.Counters {
		if c.Counters[i].Name == name {
			return &c.Counters[i]
		}
	}
	return nil
}

// column is the one of a name; nil: there is none, or no counter.
func (c *Counter) column(name string) *Column {
	if c == nil {
		return nil
	}
	for i := range c.Columns {
		if c.Columns[i].Name == name {
			return &c.Columns[i]
		}
	}
	return nil
}

// names are those of a counter's columns, sorted.
func (c *Counter) names() (names []string) {
	if c == nil {
		return nil
	}
	for _, column := range c.Columns {
		names = append(names, column.Name)
	}
	slices.Sort(names)
	return names
}
