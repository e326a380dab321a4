package spread

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// Counted is what the nodes count: all that a process without a configuration of
// its own must know to ask them.
type Counted struct {
	Schema *pipeline.Schema
	Shards int
	// Types are the event types that count, each with the fields that are read of it.
	Types map[string][]string
}

// Equal says whether both count the same.
func (c *Counted) Equal(other *Counted) bool {
	return c.Shards == other.Shards && slices.Equal(c.Schema.Counters, other.Schema.Counters) &&
		slices.Equal(c.Schema.Columns, other.Schema.Columns) &&
		maps.EqualFunc(c.Types, other.Types, slices.Equal)
}

// SchemaSubject is where a node's Server says what a generation counts.
func SchemaSubject(node string, of generation.Number) string { return Subject(node, of) + ".schema" }

const (
	// schemaBytesMax bounds what is read of a schema, in bytes of JSON. A
	// configuration of 1 MiB comes to less.
	schemaBytesMax = 8 << 20
	// schemaPendingMax is how many requests for it may wait. More are dropped:
	// a process that asks does so again.
	schemaPendingMax = 256
)

// countedJSON is a Counted as it is sent, or why it is not.
type countedJSON struct {
	Shards   int                 `json:"shards,omitempty"`
	Counters []counterJSON       `json:"counters,omitempty"`
	Types    map[string][]string `json:"types,omitempty"`
	Error    string              `json:"error,omitempty"`
}

type counterJSON struct {
	Name    string       `json:"name"`
	Columns []columnJSON `json:"columns"`
}

type columnJSON struct {
	Name    string `json:"name"`
	Suffix  string `json:"suffix,omitempty"`
	Bits    int    `json:"bits"`
	Max     int    `json:"max"`
	Default int64  `json:"default,omitempty"`
	Hidden  bool   `json:"hidden,omitempty"`
	Signed  bool   `json:"signed,omitempty"`
	Set     string `json:"set,omitempty"`  // ids, pairs or tokens; "": the column has no set
	Keep    int64  `json:"keep,omitempty"` // of the set: seconds of log time; 0: for ever
	Items   int    `json:"items,omitempty"`
	Actor   int    `json:"actor,omitempty"` // of items: the pipeline.Word
	Post    int    `json:"post,omitempty"`
}

// encode gives the JSON of c:
//
//	{"shards":64,"counters":[{"name":"post","columns":[{"name":"like","suffix":"cntan","bits":8,"max":63}]}],"types":{"like":["actor","post"]}}
func (c *Counted) encode() ([]byte, error) {
	out := countedJSON{Shards: c.Shards, Types: c.Types}
	for i, counter := range c.Schema.Counters {
		columns := []columnJSON{}
		for _, spec := range c.Schema.Columns[counter.First:][:counter.Count] {
			columns = append(columns, columnJSON{spec.Name, spec.Suffix, spec.Bits, spec.Max, spec.Default, spec.Hidden, spec.Signed, spec.Set.Members.String(), spec.Set.Keep, spec.Set.Items, int(spec.Set.Actor), int(spec.Set.Post)})
		}
		out.Counters = append(out.Counters, counterJSON{c.Schema.Counters[i].Name, columns})
	}
	return json.Marshal(out)
}

// decodeCounted reads what a node sent, which may be anything.
func decodeCounted(text []byte) (*Counted, error) {
	if len(text) > schemaBytesMax {
		return nil, fmt.Errorf("it has %d bytes, %d at most", len(text), schemaBytesMax)
	}
	var in countedJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	switch {
	case in.Error != "":
		return nil, fmt.Errorf("the node says: %.200q", in.Error)
	case in.Shards < 1 || in.Shards > pipeline.ShardsMax:
		return nil, fmt.Errorf("it has %d shards, must be from 1 to %d", in.Shards, pipeline.ShardsMax)
	}
	var names []string
	var columns []pipeline.ColumnSpec
	for i, counter := range in.Counters {
		names = append(names, counter.Name)
		for _, c := range counter.Columns {
			if counter.Name == "" || c.Name == "" || c.Bits < 1 || c.Max < c.Bits || c.Max > 63 || c.Default < 0 {
				return nil, fmt.Errorf("column %.64q of counter %.64q has %d to %d bits and the default %d", c.Name, counter.Name, c.Bits, c.Max, c.Default)
			}
			shape, ok := pipeline.MembersNamed(c.Set)
			if word := int(pipeline.WordB); !ok || c.Keep < 0 || c.Items < 0 || c.Actor < 0 || c.Actor > word || c.Post < 0 || c.Post > word {
				return nil, fmt.Errorf("column %.64q of counter %.64q has a set of %.64q, which keeps them for %d s", c.Name, counter.Name, c.Set, c.Keep)
			}
			columns = append(columns, pipeline.ColumnSpec{
				Counter: i, Name: c.Name, Suffix: c.Suffix, Bits: c.Bits, Max: c.Max, Default: c.Default, Hidden: c.Hidden, Signed: c.Signed,
				Set: pipeline.SetSpec{Members: shape, Keep: c.Keep, Items: c.Items, Actor: pipeline.Word(c.Actor), Post: pipeline.Word(c.Post)},
			})
		}
	}
	if most := 1 << 16; len(columns) > most {
		return nil, fmt.Errorf("it has %d columns, %d at most", len(columns), most)
	}
	schema, err := pipeline.NewSchema(names, columns)
	if err != nil {
		return nil, err
	}
	return &Counted{schema, in.Shards, in.Types}, nil
}

// AskCounted asks a node what a generation counts (0 is the first), and waits until ctx ends for the
// answer. [nats.ErrNoResponders] says that the node is not there.
func AskCounted(ctx context.Context, nc *nats.Conn, node string, of generation.Number) (*Counted, error) {
	var counted *Counted
	reply, err := nc.RequestWithContext(ctx, SchemaSubject(node, of), nil)
	if err == nil {
		counted, err = decodeCounted(reply.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("spread: ask node %.64q what is counted: %w", node, err)
	}
	return counted, nil
}

// serveCounted answers AskCounted: always the same bytes. What does not fit a message is
// said, not sent.
func serveCounted(nc *nats.Conn, o *ServerOptions) (*nats.Subscription, error) {
	counted := Counted{o.Schema, o.Shards, o.Types}
	reply, err := counted.encode()
	if err != nil {
		return nil, err
	}
	if most := int(min(nc.MaxPayload(), schemaBytesMax)); len(reply) > most {
		reply, err = json.Marshal(countedJSON{Error: fmt.Sprintf("the schema has %d bytes, and messages may have %d: raise the NATS server's max_payload", len(reply), most)})
		if err != nil {
			return nil, err
		}
	}
	sub, err := nc.Subscribe(SchemaSubject(o.Node, o.Generation), func(m *nats.Msg) {
		_ = m.Respond(reply) // an error is a connection's that is closed
	})
	if err != nil {
		return nil, err
	}
	return sub, sub.SetPendingLimits(schemaPendingMax, schemaBytesMax)
}
