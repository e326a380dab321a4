package query

import "time"

// SlowLog is what a node remembers of requests that took long: the reply of
// tidemark.slowlog. With several nodes on one NATS server any one of them answers: Node
// says which.
type SlowLog struct {
	Node          string        `json:"node,omitempty"`
	Since         time.Time     `json:"since"`          // the last reset, or the node's start
	ThresholdUS   int64         `json:"threshold_us"`   // above which a request is slow; 0: none is
	OverThreshold uint64        `json:"over_threshold"` // requests above it since then
	Slowest       []SlowRequest `json:"slowest"`        // since then, the slowest first
	Latest        []SlowRequest `json:"latest"`         // of those above the threshold, the latest first
	Cut           bool          `json:"cut,omitempty"`  // the lists were too long for a message, which has their beginnings
}

// SlowRequest is a request that was answered, and where its time in the node went, in
// microseconds: the parts add up to TotalUS, to a few microseconds.
type SlowRequest struct {
	Endpoint string    `json:"endpoint"` // "get"
	At       time.Time `json:"at"`       // when it arrived, by the node's clock
	Code     int       `json:"code"`     // 200, or that of the error it was answered with

	TotalUS    int64 `json:"total_us"`
	ParseUS    int64 `json:"parse_us"`           // reading the request
	TurnUS     int64 `json:"turn_us"`            // waiting for a goroutine and for a worker of its lane
	PositionUS int64 `json:"position_us"`        // waiting for min_position, or for a read to be visible
	MemoryUS   int64 `json:"memory_us"`          // reading what is in memory
	DiskUS     int64 `json:"disk_us"`            // reading what is on disk
	NodesUS    int64 `json:"nodes_us,omitempty"` // waiting for other nodes
	LogUS      int64 `json:"log_us"`             // waiting for the log to store a read
	WriteUS    int64 `json:"write_us"`           // writing the reply

	IDs     int    `json:"ids"`     // asked; 0 where there is no list of them
	Cold    int    `json:"cold"`    // entries that were read from disk
	Request string `json:"request"` // what was asked, clipped
}
