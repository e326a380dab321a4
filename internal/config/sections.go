package config

import (
	"fmt"
	"reflect"

	"gopkg.in/yaml.v3"
)

// The sections whose keys are the operator's own names. Each replaces the
// defaults whole when the file states it; what is wrong within it is listed
// and the rest still kept, so that one slip does not make faults elsewhere.

// columnsMax bounds the columns of all counters: they stand in every window's
// dictionary.
const columnsMax = 1024

// reservedColumns may not name a column or suffix, and why.
var reservedColumns = map[string]string{
	existsColumn: "is a column of Tidemark's own",
	"id":         "is the row's id in answers",
}

// reservedUnread may not name a column of unread: read.what says them of
// something else.
var reservedUnread = map[string]string{
	"feed": "is what a read calls the feed",
	"all":  "is what a read calls everything",
}

// replaces reports whether a section states anything; one that holds nothing but
// comments does not and leaves the defaults.
func (d *decoder) replaces(n *yaml.Node, key string) bool {
	if isNull(resolve(n)) {
		delete(d.lines, key)
		return false
	}
	return true
}

func (d *decoder) counters(n *yaml.Node, line int, key string, out *[]Counter) {
	if !d.replaces(n, key) {
		return
	}
	*out = nil
	columns := 0
	suffixes := make(map[string]int)
	d.pairs(n, line, key, "{post: {like: {bits: 16}}}", func(name string, line int, value *yaml.Node) bool {
		key := under(key, name)
		d.named(line, key, name, &columnNamed)
		counter := Counter{Name: name}
		d.pairs(value, line, key, "{like: {bits: 16}}", func(name string, line int, value *yaml.Node) bool {
			if columns++; columns > columnsMax {
				d.fault(line, under(key, name), "more than %d columns over all counters", columnsMax)
				return false
			}
			counter.Columns = append(counter.Columns, d.column(name, line, under(key, name), value))
			return true
		})
		if len(counter.Columns) == 0 && !d.unsound[key] {
			d.fault(line, key, "has no columns; want one at least, like {like: {bits: 16}}")
		}
		d.checkCounter(key, &counter, suffixes)
		*out = append(*out, counter)
		return columns <= columnsMax
	})
}

func (d *decoder) column(name string, line int, key string, value *yaml.Node) Column {
	d.named(line, key, name, &columnNamed)
	if why, reserved := reservedColumns[name]; reserved {
		d.fault(line, key, "reserved: %s %s; choose another name", name, why)
	}
	c := Column{Name: name, Bits: bitsDefault, Max: bitsMax}
	d.structure(value, line, key, reflect.ValueOf(&c).Elem())
	bits, most, answer := under(key, "bits"), under(key, "max"), under(key, "default")
	within(d, bits, c.Bits, 1, bitsMax)
	within(d, most, c.Max, 1, bitsMax)
	within(d, under(key, "items"), c.Items, 0, ItemsMax)
	if c.Items > 0 && len(name) > itemsNameMax {
		d.fault(line, key, "has %d letters; a column that keeps items may have %d", len(name), itemsNameMax)
	}
	switch {
	case !d.sound(bits, most):
		return c
	case c.Max < c.Bits:
		d.crossFault([]string{bits, most}, "max %d is less than bits %d; allowed: bits to %d", c.Max, c.Bits, bitsMax)
	case d.sound(answer) && (c.Default < 0 || c.Default > 1<<c.Max-1):
		d.fault(d.lines[answer], answer, "%d is not a value of this column; allowed: 0 to %d", c.Default, int64(1)<<c.Max-1)
	}
	return c
}

// checkCounter looks at what one counter's columns are to each other, and at
// suffixes over all counters.
func (d *decoder) checkCounter(key string, c *Counter, suffixes map[string]int) {
	names := make(map[string]bool)
	for _, column := range c.Columns {
		names[column.Name] = true
	}
	for _, column := range c.Columns {
		key := under(key, column.Name)
		if why, reserved := reservedUnread[column.Name]; reserved && c.Name == unreadCounter {
			d.fault(d.lines[key], key, "reserved: %s %s; choose another name", column.Name, why)
		}
		if items := under(key, "items"); column.Items > 0 && c.Name != unreadCounter {
			d.fault(d.lines[items], items, "is for columns of %s: it says how many items of a user are kept", unreadCounter)
		}
		if signed := under(key, "signed"); column.Signed && c.Name == unreadCounter {
			d.fault(d.lines[signed], signed, "is for other counters: how much is unread is never below 0")
		}
		key = under(key, "suffix")
		line, stated := d.lines[key]
		if !stated || !d.sound(key) {
			continue
		}
		first, twice := suffixes[column.Suffix]
		why, reserved := reservedColumns[column.Suffix]
		switch {
		case columnNamed.wrong(column.Suffix) != "":
			d.named(line, key, column.Suffix, &columnNamed)
		case reserved:
			d.fault(line, key, "reserved: %s %s; choose another suffix", column.Suffix, why)
		case names[column.Suffix]:
			d.fault(line, key, "%q is a column of %s already; choose another suffix", column.Suffix, c.Name)
		case twice:
			d.fault(line, key, "%q is given a second time, first in line %d; a suffix is unique over all counters", column.Suffix, first)
		default:
			suffixes[column.Suffix] = line
		}
	}
}

func (d *decoder) rules(n *yaml.Node, line int, key string, out *[]EventRules) {
	if !d.replaces(n, key) {
		return
	}
	*out = nil
	d.pairs(n, line, key, "{like: [{add: post.like, key: post}]}", func(name string, line int, value *yaml.Node) bool {
		*out = append(*out, EventRules{Type: name, Rules: d.ruleList(value, line, under(key, name))})
		return true
	})
}

func (d *decoder) ruleList(n *yaml.Node, line int, key string) (rules []Rule) {
	n = resolve(n)
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.fault(line, key, "is %s, not a list of rules like [{add: post.like, key: post}]", kind(n))
		return nil
	}
	for i, item := range n.Content {
		if i == rulesMax {
			d.fault(item.Line, key, "%d rules; allowed: %d for one event type", len(n.Content), rulesMax)
			break
		}
		var r Rule
		at := ruleKey(key, i)
		d.lines[at] = item.Line
		if isNull(resolve(item)) {
			d.fault(item.Line, at, "is empty, want a rule like {add: post.like, key: post}")
		}
		d.structure(item, item.Line, at, reflect.ValueOf(&r).Elem())
		rules = append(rules, r)
	}
	return rules
}

// ruleKey is the key of a type's i-th rule, from 0.
func ruleKey(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

func (d *decoder) channels(n *yaml.Node, line int, key string, out *[]Channel) {
	if !d.replaces(n, key) {
		return
	}
	*out = nil
	d.pairs(n, line, key, "{games: {kind: dot}}", func(name string, line int, value *yaml.Node) bool {
		key := under(key, name)
		d.named(line, key, name, &labelNamed)
		channel := Channel{Name: name, Kind: KindNotice}
		d.structure(value, line, key, reflect.ValueOf(&channel).Elem())
		d.oneOf(under(key, "kind"), channel.Kind, KindNotice, KindDot)
		*out = append(*out, channel)
		return true
	})
}
