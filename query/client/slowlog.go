package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// SlowLog is what a node remembers of requests that took long. With several
// nodes on one NATS server any one of them answers: Node says which.
type SlowLog struct {
	Node          string
	Since         time.Time     // of the last reset, or the node's start
	Threshold     time.Duration // above which a request is slow; 0: none is
	OverThreshold uint64        // requests above it since then
	Slowest       []SlowRequest // since then, the slowest first
	Latest        []SlowRequest // of those above the threshold, the latest first
	Cut           bool          // the lists were too long for a message, which has their beginnings
}

// SlowRequest is a request that was answered, and where its time in the node
// went: the parts add up to Total, to a few microseconds.
type SlowRequest struct {
	Endpoint string    // "get"
	At       time.Time // when it arrived, by the node's clock
	Code     int       // 200, or that of the error it was answered with

	Total    time.Duration
	Parse    time.Duration // reading the request
	Turn     time.Duration // waiting for a goroutine and for a worker of its lane
	Position time.Duration // waiting for min_position, or for a read to be visible
	Memory   time.Duration // reading what is in memory
	Disk     time.Duration // reading what is on disk
	Nodes    time.Duration // waiting for other nodes
	Log      time.Duration // waiting for the log to store a read
	Write    time.Duration // writing the reply

	IDs     int    // asked; 0 where there is no list of them
	Cold    int    // entries that were read from disk
	Request string // what was asked, clipped
}

// SlowLog asks for the requests that took long. With reset the node forgets
// them behind its answer.
func (c *Client) SlowLog(ctx context.Context, reset bool) (SlowLog, error) {
	body := []byte(`{}`)
	if reset {
		body = []byte(`{"reset":true}`)
	}
	reply, err := c.ask(ctx, "tidemark.slowlog", body, wait{})
	if err != nil {
		return SlowLog{}, err
	}
	log, err := decodeSlowLog(reply)
	if err != nil {
		return SlowLog{}, fmt.Errorf("client: the reply of tidemark.slowlog: %w", err)
	}
	return log, nil
}

// microseconds are how replies tell durations.
type microseconds int64

func (us microseconds) duration() time.Duration { return time.Duration(us) * time.Microsecond }

func decodeSlowLog(body []byte) (SlowLog, error) {
	type request struct {
		Endpoint string       `json:"endpoint"`
		At       time.Time    `json:"at"`
		Code     int          `json:"code"`
		Total    microseconds `json:"total_us"`
		Parse    microseconds `json:"parse_us"`
		Turn     microseconds `json:"turn_us"`
		Position microseconds `json:"position_us"`
		Memory   microseconds `json:"memory_us"`
		Disk     microseconds `json:"disk_us"`
		Nodes    microseconds `json:"nodes_us"`
		Log      microseconds `json:"log_us"`
		Write    microseconds `json:"write_us"`
		IDs      int          `json:"ids"`
		Cold     int          `json:"cold"`
		Request  string       `json:"request"`
	}
	var reply struct {
		Node      string       `json:"node"`
		Since     time.Time    `json:"since"`
		Threshold microseconds `json:"threshold_us"`
		Over      uint64       `json:"over_threshold"`
		Slowest   []request    `json:"slowest"`
		Latest    []request    `json:"latest"`
		Cut       bool         `json:"cut"`
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return SlowLog{}, err
	}
	list := func(requests []request) (list []SlowRequest) {
		for _, r := range requests {
			list = append(list, SlowRequest{
				Endpoint: r.Endpoint, At: r.At, Code: r.Code,
				Total: r.Total.duration(), Parse: r.Parse.duration(), Turn: r.Turn.duration(), Position: r.Position.duration(),
				Memory: r.Memory.duration(), Disk: r.Disk.duration(), Nodes: r.Nodes.duration(), Log: r.Log.duration(), Write: r.Write.duration(),
				IDs: r.IDs, Cold: r.Cold, Request: r.Request,
			})
		}
		return list
	}
	return SlowLog{
		Node: reply.Node, Since: reply.Since, Threshold: reply.Threshold.duration(), OverThreshold: reply.Over,
		Slowest: list(reply.Slowest), Latest: list(reply.Latest), Cut: reply.Cut,
	}, nil
}
