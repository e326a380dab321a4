package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// countingKeys decide what is counted, and what of it is kept. All others are a
// node's own matter: where it keeps, how fast it is, what it says. TestEveryKeyCountsOrNot
// holds that each key is one or the other.
var countingKeys = []string{
	"shards",
	"limits.channels", "limits.notices",
	"feed.posts_per_author", "feed.posts_kept", "feed.retention",
	"unread.retention", "inactive_after",
	"counters", "rules", "channels", "channels_open",
}

// Counting is all of c that decides what is counted, as a file would state it, in
// JSON: the same bytes each time, with names in the file's order, which is that of
// packed rows. A number that is derived from another is stated, so that a version
// that derives it in another way counts on as before.
func (c *Config) Counting() (json.RawMessage, error) {
	text, err := c.counting().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("config: what is counted: %w", err)
	}
	text = escape(text)
	if len(text) > generation.ConfigBytesMax {
		return nil, fmt.Errorf("config: counters, rules and channels take %d bytes; allowed: %d, all nodes keep them together", len(text), generation.ConfigBytesMax)
	}
	return text, nil
}

func (c *Config) counting() group {
	counters := make(group, 0, len(c.Counters))
	for _, counter := range c.Counters {
		columns := make(group, 0, len(counter.Columns))
		for _, k := range counter.Columns {
			column := group{{"bits", k.Bits}, {"max", k.Max}, {"default", k.Default}}
			if k.Signed {
				column = append(column, entry{"signed", true})
			}
			if k.Items > 0 {
				column = append(column, entry{"items", k.Items})
			}
			columns = append(columns, entry{k.Name, column.with("suffix", k.Suffix)})
		}
		counters = append(counters, entry{counter.Name, columns})
	}
	rules := make(group, 0, len(c.EventRules))
	for _, event := range c.EventRules {
		list := make([]group, 0, len(event.Rules))
		for _, r := range event.Rules {
			rule := group{{"add", r.Add}, {"key", r.Key}}.with("if", r.If).with("unless", r.Unless)
			if fields := r.Once.Fields(); len(fields) > 0 {
				rule = append(rule, entry{"once", fields}, entry{"keep", FormatDuration(r.Keep)})
			}
			list = append(list, rule)
		}
		rules = append(rules, entry{event.Type, list})
	}
	channels := make(group, 0, len(c.Channels))
	for _, channel := range c.Channels {
		channels = append(channels, entry{channel.Name, group{{"kind", channel.Kind}}})
	}
	return group{
		{"shards", c.Shards},
		{"counters", counters},
		{"rules", rules},
		{"channels", channels},
		{"channels_open", c.ChannelsOpen},
		{"limits", group{{"channels", c.Limits.Channels}, {"notices", c.Limits.Notices}}},
		{"feed", group{{"posts_per_author", c.Feed.PostsPerAuthor}, {"posts_kept", c.Feed.Kept()}, {"retention", FormatDuration(c.Feed.Retention)}}},
		{"unread", group{{"retention", FormatDuration(c.Unread.Retention)}}},
		{"inactive_after", FormatDuration(c.InactiveAfter)},
	}
}

// CountingBy is a copy of c that counts by what [Config.Counting] says of another;
// everything else is c's own. It is checked like a file.
func (c *Config) CountingBy(counting json.RawMessage) (*Config, error) {
	if !json.Valid(counting) {
		return nil, errors.New("config: what is to be counted is not JSON")
	}
	by := *c
	by.Extends = ""
	d := newDecoder("what is to be counted")
	d.document(counting, &by) // JSON is YAML
	d.onlyCounting()
	d.check(&by)
	d.faults = slices.DeleteFunc(d.faults, func(f Fault) bool { return f.Line == 0 }) // a key of c's own
	if len(d.faults) > 0 {
		return nil, d.sorted()
	}
	return &by, nil
}

// onlyCounting sees that all of countingKeys are stated, and no others.
func (d *decoder) onlyCounting() {
	for key, line := range d.lines {
		belongs := slices.ContainsFunc(countingKeys, func(k string) bool {
			return k == key || strings.HasPrefix(key, k+".") || strings.HasPrefix(key, k+"[") || strings.HasPrefix(k, key+".")
		})
		if !belongs && d.sound(key) {
			d.fault(line, key, "does not decide what is counted")
		}
	}
	for _, key := range countingKeys {
		if _, stated := d.lines[key]; !stated {
			d.fault(1, key, "is missing; want all that decides what is counted")
		}
	}
	for i := range d.faults {
		if strings.HasPrefix(d.faults[i].What, unknownKey) {
			d.faults[i].What += "; a newer version of Tidemark may have written it: run that"
		}
	}
}

// group is a JSON object whose keys keep their order.
type group []entry

type entry struct {
	key   string
	value any
}

// with adds a text, if there is one.
func (g group) with(key, text string) group {
	if text == "" {
		return g
	}
	return append(g, entry{key, text})
}

// MarshalJSON is the object.
func (g group) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, e := range g {
		if i > 0 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(e.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.value)
		if err != nil {
			return nil, err
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// escape writes what YAML does not read as it stands, or folds, as JSON's \u: the
// fields of custom events have any names.
func escape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r >= 0x7f && r <= 0xffff {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}
