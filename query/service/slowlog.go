package service

import (
	"bytes"
	"context"
	"encoding/json"
)

// slowCall is a tidemark.slowlog in work: {"reset":true}.
type slowCall struct{ reset bool }

func (s *Service) slowlogEndpoint() *endpoint {
	return &endpoint{
		name:        "slowlog",
		description: "requests that took long, and where their time went",
		request:     `{} or {"reset":true}, which empties the log behind the answer`,
		reply:       `{"node":"…","since":"…","threshold_us":50000,"over_threshold":1,"slowest":[{"endpoint":"get","at":"…","code":200,"total_us":61250,"parse_us":11,…,"ids":1,"cold":1,"request":"…"}],"latest":[…]}`,
		advice:      "raise the server's max_payload",
		parse:       s.parseSlowlog,
		answer:      s.views(s.answerSlowlog),
	}
}

func (s *Service) parseSlowlog(c *call) *failure {
	c.slow = slowCall{}
	if len(c.body) == 0 {
		return nil
	}
	sc := &c.scanner
	sc.Reset(c.body)
	for sc.Object(); sc.Member(); {
		var f *failure
		if key := sc.Key(); string(key) == "reset" {
			f = parseBool(sc, "reset", &c.slow.reset)
		} else {
			f = c.wait.orPass(sc, key)
		}
		if f != nil {
			return f
		}
	}
	return notJSON(sc.End())
}

// slowReply is the reply of tidemark.slowlog; docs/queries.md explains it.
type slowReply struct {
	Node      string    `json:"node,omitempty"`
	Since     string    `json:"since"`
	Threshold int64     `json:"threshold_us"`
	Over      uint64    `json:"over_threshold"`
	Slowest   []slowRow `json:"slowest"`
	Latest    []slowRow `json:"latest"`
	Cut       bool      `json:"cut,omitempty"`
}

type slowRow struct {
	Endpoint string `json:"endpoint"`
	At       string `json:"at"`
	Code     int    `json:"code"`
	Total    int64  `json:"total_us"`
	Parse    int64  `json:"parse_us"`
	Turn     int64  `json:"turn_us"`
	Position int64  `json:"position_us"`
	Memory   int64  `json:"memory_us"`
	Disk     int64  `json:"disk_us"`
	Nodes    int64  `json:"nodes_us,omitempty"`
	Log      int64  `json:"log_us"`
	Write    int64  `json:"write_us"`
	IDs      int    `json:"ids"`
	Cold     int    `json:"cold"`
	Request  string `json:"request"`
}

// slowTime is the wall clock, for people.
const slowTime = "2006-01-02T15:04:05.000000Z"

func (s *Service) answerSlowlog(_ context.Context, c *call) *failure {
	view := s.slow.take(c.slow.reset)
	reply := slowReply{
		Node:      s.node,
		Since:     view.since.UTC().Format(slowTime),
		Threshold: s.slow.threshold.Microseconds(),
		Over:      view.over,
		Slowest:   slowRows(view.slowest),
		Latest:    slowRows(view.latest),
	}
	// A small max_payload gets half of each list, the more important one: at
	// night an answer that is cut is worth more than an error.
	for {
		out, err := reply.encode()
		if err != nil {
			s.log.Error("query: the slow log cannot be written as JSON", "error", err)
			return fail(codeInternal, "the slow log cannot be written as JSON")
		}
		if len(out) <= s.replyMax() || len(reply.Slowest)+len(reply.Latest) == 0 {
			c.out = append(c.out, out...)
			return nil
		}
		reply.Slowest, reply.Latest, reply.Cut = reply.Slowest[:len(reply.Slowest)/2], reply.Latest[:len(reply.Latest)/2], true
	}
}

func slowRows(entries []*slowEntry) []slowRow {
	rows := make([]slowRow, 0, len(entries))
	for _, e := range entries {
		us := func(s stage) int64 { return e.clock.spent[s].Microseconds() }
		rows = append(rows, slowRow{
			Endpoint: e.endpoint, At: e.clock.start.UTC().Format(slowTime), Code: int(e.code),
			Total: e.clock.total.Microseconds(),
			Parse: us(stageParse), Turn: us(stageTurn), Position: us(stagePosition), Memory: us(stageMemory),
			Disk: us(stageDisk), Nodes: us(stageNodes), Log: us(stageLog), Write: us(stageWrite),
			IDs: e.ids, Cold: e.cold, Request: e.request,
		})
	}
	return rows
}

// encode leaves <, > and & as they are: this is read by people.
func (r *slowReply) encode() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), err
}
