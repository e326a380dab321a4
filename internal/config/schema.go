package config

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// existsColumn is the hidden column of counters with a default.
const existsColumn = operators.ExistsColumn

// Schema is the counters as the rooms know them: columns in the file's order.
// A counter that answers a default other than 0 has a hidden column more,
// which distinguishes a row of zeros from no row.
func (c *Config) Schema() (*pipeline.Schema, error) {
	var names []string
	var columns []pipeline.ColumnSpec
	rules := c.Rules()
	sets := rules.Sets()
	for column, items := range c.items() {
		var err error
		if sets[column], err = rules.List(column, items, int64(c.Unread.Retention/time.Second)); err != nil {
			return nil, err
		}
	}
	for i, counter := range c.Counters {
		names = append(names, counter.Name)
		defaults := false
		for _, column := range counter.Columns {
			defaults = defaults || column.Default != 0
			columns = append(columns, pipeline.ColumnSpec{
				Counter: i,
				Name:    column.Name,
				Suffix:  column.Suffix,
				Bits:    column.Bits,
				Max:     column.Max,
				Default: column.Default,
				Signed:  column.Signed,
				Set:     sets[counter.Name+"."+column.Name],
			})
		}
		if defaults {
			columns = append(columns, pipeline.ColumnSpec{Counter: i, Name: existsColumn, Bits: 1, Max: bitsMax, Hidden: true})
		}
	}
	schema, err := pipeline.NewSchema(names, columns)
	if err != nil {
		return nil, fmt.Errorf("config: counters: %w", err)
	}
	return schema, nil
}

// Rules are the rules by event type. A type with no rules is in it too: its
// events are known and add nothing.
func (c *Config) Rules() operators.Rules {
	rules := make(operators.Rules, len(c.EventRules))
	for _, event := range c.EventRules {
		list := make([]operators.Rule, len(event.Rules))
		for i, r := range event.Rules {
			list[i] = operators.Rule{Add: r.Add, Key: r.Key, If: r.If, Unless: r.Unless, Once: r.Once.Fields(), Keep: int64(r.Keep / time.Second)}
		}
		rules[event.Type] = list
	}
	return rules
}

// Program is the rules made ready to derive by.
func (c *Config) Program(schema *pipeline.Schema) (*operators.Program, error) {
	return operators.Compile(schema, c.Rules(), c.Shards, operators.Limits{
		Events:   c.Windows.Events,
		Bytes:    int(c.Windows.Bytes),
		Channels: c.OnlyChannels(),
	})
}

// OnlyChannels names the channels that notices may name, nil for any.
func (c *Config) OnlyChannels() []string {
	if c.ChannelsOpen {
		return nil
	}
	return append([]string{}, append(c.ChannelsOf(KindNotice), c.ChannelsOf(KindDot)...)...)
}

// ChannelsOf names the listed channels of a kind.
func (c *Config) ChannelsOf(kind string) (names []string) {
	for _, channel := range c.Channels {
		if channel.Kind == kind {
			names = append(names, channel.Name)
		}
	}
	return names
}
