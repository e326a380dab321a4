package service

import (
	"context"
	"encoding/json"
	"fmt"
)

func (s *Service) schemaEndpoint() *endpoint {
	return &endpoint{
		name:        "schema",
		description: "the counters and columns that can be asked",
		request:     `{}`,
		reply:       `{"counters":{"post":{"columns":[{"name":"like","suffix":"cntan","bits":8,"max":63,"default":0,"set":"ids"}]}},"types":{"like":["actor","author","post"]},"shards":64,"version":"…"}`,
		gated:       true,
		tells:       true,
		parse:       parseWait,
		answer: func(_ context.Context, c *call) *failure {
			c.out = append(c.out, s.schema...)
			return nil
		},
	}
}

// encodeSchema is the reply of tidemark.schema, which never changes.
func encodeSchema(o *Options) ([]byte, error) {
	schema := o.Schema
	type column struct {
		Name    string `json:"name"`
		Suffix  string `json:"suffix,omitempty"`
		Bits    int    `json:"bits"`
		Max     int    `json:"max"`
		Default int64  `json:"default"`
		Signed  bool   `json:"signed,omitempty"`
		Set     string `json:"set,omitempty"`
		Keep    int64  `json:"keep_s,omitempty"`
		Items   int    `json:"items,omitempty"`
	}
	type counter struct {
		Columns []column `json:"columns"`
	}
	reply := struct {
		Counters map[string]counter  `json:"counters"`
		Types    map[string][]string `json:"types,omitempty"`
		Shards   int                 `json:"shards"`
		Version  string              `json:"version"`
	}{map[string]counter{}, o.Types, o.Shards, o.Version}
	for i := range schema.Counters {
		var c counter
		for _, index := range schema.Visible(i) {
			spec := &schema.Columns[index]
			set := ""
			if spec.HasSet() {
				set = spec.Set.Members.String()
			}
			c.Columns = append(c.Columns, column{spec.Name, spec.Suffix, spec.Bits, spec.Max, spec.Default, spec.Signed, set, spec.Set.Keep, spec.Set.Items})
		}
		if len(c.Columns) > 0 {
			reply.Counters[schema.Counters[i].Name] = c
		}
	}
	out, err := json.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("query: encode the schema: %w", err)
	}
	return out, nil
}
