package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Changes are what to counts differently from from, in words: "adds counter view
// (count)", "shards 64 → 16". None: they count the same.
func Changes(from, to *Config) (words []string, err error) {
	words = append(words, counterChanges(from, to)...)
	words = append(words, ruleChanges(from, to)...)
	words = append(words, channelChanges(from, to)...)
	for _, key := range []struct {
		name     string
		from, to any
	}{
		{"channels_open", from.ChannelsOpen, to.ChannelsOpen},
		{"shards", from.Shards, to.Shards},
		{"limits.channels", from.Limits.Channels, to.Limits.Channels},
		{"limits.notices", from.Limits.Notices, to.Limits.Notices},
		{"feed.posts_per_author", from.Feed.PostsPerAuthor, to.Feed.PostsPerAuthor},
		{"feed.posts_kept", from.Feed.Kept(), to.Feed.Kept()},
		{"feed.retention", from.Feed.Retention, to.Feed.Retention},
		{"unread.retention", from.Unread.Retention, to.Unread.Retention},
		{"inactive_after", from.InactiveAfter, to.InactiveAfter},
	} {
		words = append(words, changed(key.name, key.from, key.to)...)
	}
	if len(words) > 0 {
		return words, nil
	}
	a, err := from.Counting()
	if err != nil {
		return nil, err
	}
	b, err := to.Counting()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(a, b) {
		words = append(words, "another order of counters, columns, rules or channels")
	}
	return words, nil
}

func changed(name string, from, to any) []string {
	if from == to {
		return nil
	}
	return []string{fmt.Sprintf("%s %s → %s", name, format(from), format(to))}
}

func counterChanges(from, to *Config) (words []string) {
	for _, counter := range from.Counters {
		if to.counter(counter.Name) == nil {
			words = append(words, "drops counter "+counter.Name)
		}
	}
	for i := range to.Counters {
		counter := &to.Counters[i]
		was := from.counter(counter.Name)
		if was == nil {
			words = append(words, fmt.Sprintf("adds counter %s (%s)", counter.Name, strings.Join(columnNames(to.Counters[i:i+1]), ", ")))
			continue
		}
		words = append(words, columnChanges(was, counter)...)
	}
	return words
}

func columnChanges(from, to *Counter) (words []string) {
	for _, column := range from.Columns {
		if to.column(column.Name) == nil {
			words = append(words, fmt.Sprintf("drops column %s.%s", from.Name, column.Name))
		}
	}
	for _, column := range to.Columns {
		name := to.Name + "." + column.Name
		was := from.column(column.Name)
		if was == nil {
			words = append(words, "adds column "+name)
			continue
		}
		words = append(words, changed(name+": bits", was.Bits, column.Bits)...)
		words = append(words, changed(name+": max", was.Max, column.Max)...)
		words = append(words, changed(name+": default", was.Default, column.Default)...)
		words = append(words, changed(name+": signed", was.Signed, column.Signed)...)
		words = append(words, changed(name+": items", was.Items, column.Items)...)
		words = append(words, changed(name+": suffix", orNone(was.Suffix), orNone(column.Suffix))...)
	}
	return words
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func ruleChanges(from, to *Config) (words []string) {
	known := func(c *Config, event string) bool {
		return slices.ContainsFunc(c.EventRules, func(e EventRules) bool { return e.Type == event })
	}
	for _, event := range from.EventRules {
		if !known(to, event.Type) {
			words = append(words, "drops the rules for "+event.Type)
		}
	}
	for _, event := range to.EventRules {
		switch {
		case !known(from, event.Type):
			words = append(words, "adds rules for "+event.Type)
		case !slices.Equal(sortedRules(slices.Clone(from.rulesOf(event.Type))), sortedRules(slices.Clone(event.Rules))):
			words = append(words, "changes the rules for "+event.Type)
		}
	}
	return words
}

func channelChanges(from, to *Config) (words []string) {
	kinds := func(c *Config) map[string]string {
		kinds := make(map[string]string)
		for _, channel := range c.Channels {
			kinds[channel.Name] = channel.Kind
		}
		return kinds
	}
	was, is := kinds(from), kinds(to)
	for _, channel := range from.Channels {
		if is[channel.Name] == "" {
			words = append(words, "no longer lists channel "+channel.Name)
		}
	}
	for _, channel := range to.Channels {
		switch kind := was[channel.Name]; {
		case kind == "":
			words = append(words, fmt.Sprintf("lists channel %s (%s)", channel.Name, channel.Kind))
		default:
			words = append(words, changed("channel "+channel.Name+":", kind, channel.Kind)...)
		}
	}
	return words
}
