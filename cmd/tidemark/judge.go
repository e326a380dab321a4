package main

import (
	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// judge says before an event is published whether it would be refused, by the
// service's own decoder.
type judge struct {
	lane  *operators.Lane
	rules bool // it knows all types
}

// newJudge judges by the node's schema. The node alone knows the rules, and what
// types that only they know need.
func newJudge(found client.Schema) (*judge, error) {
	schema, err := schemaOf(found)
	if err != nil {
		return nil, err
	}
	return judgeBy(schema, nil, nil)
}

// judgeByConfig judges by the rules of a configuration as well.
func judgeByConfig(c *config.Config) (*judge, error) {
	schema, err := c.Schema()
	if err != nil {
		return nil, err
	}
	return judgeBy(schema, c.Rules(), c.OnlyChannels())
}

func judgeBy(schema *pipeline.Schema, rules operators.Rules, channels []string) (*judge, error) {
	const oneWindow = 1 << 20
	program, err := operators.Compile(schema, rules, 1, operators.Limits{Events: pipeline.PackMax, Bytes: oneWindow, Channels: channels})
	if err != nil {
		return nil, err
	}
	return &judge{program.NewLane(), rules != nil}, nil
}

// fault is the first thing that is wrong with a message; nil when nothing is,
// as far as the judge knows.
func (j *judge) fault(subject string, body []byte) (*pipeline.DeadLetter, error) {
	derived, err := j.lane.Derive(0, pipeline.EndOf(1), []pipeline.Message{{Sequence: 1, Subject: subject, Data: body}})
	if err != nil {
		return nil, err
	}
	for _, d := range derived {
		for _, letter := range d.Letters {
			if j.rules || letter.Reason != pipeline.ReasonType {
				return &letter, nil
			}
		}
	}
	return nil, nil
}
