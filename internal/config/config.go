// Package config reads Tidemark's configuration.
//
// The defaults are config.yaml at the root of the repository, built into the program;
// [Parse] lays an operator's file over them, key by key, except that the sections
// counters, rules and channels are replaced whole, unless the file extends them
// (extends.go). Everything that is wrong with a file
// is found in one pass and comes back as [Faults], each with its line, because an
// operator who mends one mistake only to see the next loses patience with the third.
//
// The way of a file: decode.go walks the YAML nodes into the structs by their
// tags and remembers where each key was stated; sections.go does the same for
// the sections whose keys are the operator's own; check.go holds the bounds
// and what keys mean to each other, once.go and nodes.go the same for sets, and for
// nodes and clusters;
// environment.go is what the environment states; schema.go turns the result into what the
// rooms understand.
package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark"
	"github.com/tidemark-io/tidemark/pipeline"
)

// fileBytesMax bounds a configuration file; the default one takes 9 KiB.
const fileBytesMax = 1 << 20

// Config is a whole configuration: every field holds a value within its
// bounds. The defaults that the comments give are those of config.yaml.
type Config struct {
	Extends       string        `yaml:"extends"`        // ExtendsDefault, or "": counters, rules and channels replace the program's
	DataDir       string        `yaml:"data_dir"`       // directory of everything kept; ./data
	Shards        int           `yaml:"shards"`         // 1 to 4096; 64. Fixed once the data directory is made
	NATS          NATS          `yaml:"nats"`           // the server of the event log
	Roles         []string      `yaml:"roles"`          // what this process does: RoleRoute, RoleHold, RoleAnswer; all
	Node          string        `yaml:"node"`           // its name; "" = one made at random with the data directory
	Zone          string        `yaml:"zone"`           // replicas go to different ones; "" = none
	Weight        int           `yaml:"weight"`         // share of shards, relative, 0 to 1000, 0 = holds none; 1
	Cluster       Cluster       `yaml:"cluster"`        // shards over nodes
	HTTP          HTTP          `yaml:"http"`           // metrics and health
	API           API           `yaml:"api"`            // JSON for applications
	Windows       Windows       `yaml:"windows"`        // what closes a window
	Router        Router        `yaml:"router"`         // events to windows
	Checkpoint    Checkpoint    `yaml:"checkpoint"`     // rows to disk
	Memory        Memory        `yaml:"memory"`         // what may be kept in it
	Badger        Badger        `yaml:"badger"`         // the store on disk
	Limits        Limits        `yaml:"limits"`         // what a request may ask
	Slow          Slow          `yaml:"slow"`           // which requests are remembered
	Audit         Audit         `yaml:"audit"`          // what is compared with the log all the time
	Explain       Explain       `yaml:"explain"`        // the events behind a number
	Ready         Ready         `yaml:"ready"`          // what /readyz promises
	Freshness     time.Duration `yaml:"freshness"`      // how old an answer may be that is not said to be degraded; 2s
	Backup        Backup        `yaml:"backup"`         // what is copied elsewhere
	Rebuild       Rebuild       `yaml:"rebuild"`        // what a second generation of counts may take
	Feed          Feed          `yaml:"feed"`           // what counts as unread in a feed
	Unread        Unread        `yaml:"unread"`         // for how long items of unread columns are kept
	InactiveAfter time.Duration `yaml:"inactive_after"` // log time since a user's last read; 30d
	NodeExpiry    time.Duration `yaml:"node_expiry"`    // silence after which a node no longer holds DELTAS back; 24h
	Log           Log           `yaml:"log"`            // the process's own log

	// The sections whose keys are the operator's. Their order is the file's.
	Counters   []Counter    `yaml:"counters"`
	EventRules []EventRules `yaml:"rules"`
	Channels   []Channel    `yaml:"channels"`

	ChannelsOpen bool `yaml:"channels_open"` // notices open channels that are not listed; true

	// Variables are those of the environment that set keys which decide what is counted.
	Variables []string
}

// NATS is the server, embedded or outside.
type NATS struct {
	URL          string        `yaml:"url"`           // servers, commas between; "" = embedded
	Listen       string        `yaml:"listen"`        // host:port of the embedded server, port 0 = any; 127.0.0.1:4222
	Credentials  string        `yaml:"credentials"`   // path, outside server only; "" = none
	NKey         string        `yaml:"nkey"`          // path of a seed; "" = none, of an embedded server node.nk in DataDir
	Auth         string        `yaml:"auth"`          // embedded server: AuthOpen, or path of a file of keys and roles; "" = open on this machine alone
	TLS          TLS           `yaml:"tls"`           // outside server only
	Replicas     int           `yaml:"replicas"`      // copies of each stream, 1 to 5; 1
	SyncInterval time.Duration `yaml:"sync_interval"` // embedded server, 0 = on every write; 200ms
	MaxPayload   Size          `yaml:"max_payload"`   // embedded server, bytes; 4MiB
	Cluster      NATSCluster   `yaml:"cluster"`       // embedded server: with which others it forms a cluster
	Streams      Streams       `yaml:"streams"`       // the streams' limits
}

// AuthOpen in NATS.Auth or API.Tokens says that each client that reaches the port may be an
// application.
const AuthOpen = "open"

// TLS names PEM files; Cert and Key are both there or both "".
type TLS struct {
	CA   string `yaml:"ca"`   // path; "" = the system's authorities
	Cert string `yaml:"cert"` // path; "" = none
	Key  string `yaml:"key"`  // path; "" = none
}

// Streams are the limits of the three streams.
type Streams struct {
	Events     EventsStream `yaml:"events"`
	Deltas     Stream       `yaml:"deltas"`     // 4GiB
	DeadLetter Stream       `yaml:"deadletter"` // 1GiB
}

// EventsStream limits EVENTS.
type EventsStream struct {
	MaxBytes Size          `yaml:"max_bytes"` // bytes; 16GiB
	MaxAge   time.Duration `yaml:"max_age"`   // 0 = keep for ever; 0
	Keep     time.Duration `yaml:"keep"`      // what is older is trimmed once a backup has what it counted, 2m to ageMax, 0 = nothing is; 0
	Archive  string        `yaml:"archive"`   // directory of what was trimmed and archived, to read; "" = none; ""
}

// Stream limits one stream.
type Stream struct {
	MaxBytes Size `yaml:"max_bytes"` // bytes
}

// HTTP is the operators' door.
type HTTP struct {
	Listen string   `yaml:"listen"` // host:port, port 0 = any, "" = off; 127.0.0.1:8480
	Hosts  []string `yaml:"hosts"`  // names it is asked under, besides localhost and Listen's; none
}

// API is the door for applications that speak HTTP. It is on HTTP.Listen too.
type API struct {
	Listen string `yaml:"listen"` // host:port of it alone, without metrics and pprof, port 0 = any; "" = none
	Tokens string `yaml:"tokens"` // AuthOpen, or path of a file of tokens and roles; "" = open on this machine alone
}

// Windows says what closes a window, whichever comes first.
type Windows struct {
	Events int           `yaml:"events"` // 1 to 65536; 8192
	Bytes  Size          `yaml:"bytes"`  // serialized, 32KiB to half of NATS.MaxPayload; 512KiB
	Delay  time.Duration `yaml:"delay"`  // 0 to 1s; 10ms
}

// Router is how events become windows, and in which process.
type Router struct {
	Lanes       int           `yaml:"lanes"`        // 0 = one per core; 0
	LeaseRenew  time.Duration `yaml:"lease_renew"`  // 300ms
	LeaseExpiry time.Duration `yaml:"lease_expiry"` // at least 3 LeaseRenew; 1.2s
}

// Checkpoint says when a shard writes what changed.
type Checkpoint struct {
	Interval time.Duration `yaml:"interval"` // 10ms to 1m; 1s
	Rows     int           `yaml:"rows"`     // changed rows of a shard, 1 to 1000000; 60000
}

// Memory bounds what is kept in memory.
type Memory struct {
	Budget Size `yaml:"budget"` // bytes: state in memory and Badger's buffers and caches; 2GiB
}

// Badger sizes the buffers of Badger, which keeps which runs a shard has.
type Badger struct {
	MemTable   Size `yaml:"memtable"`    // bytes; 8MiB
	BlockCache Size `yaml:"block_cache"` // bytes, 0 = none; 0
	IndexCache Size `yaml:"index_cache"` // bytes, 0 = every index; 0
}

// Limits bound requests.
type Limits struct {
	IDs         int           `yaml:"ids"`         // ids or users in one; 10000
	Requests    int           `yaml:"requests"`    // in work at once; 1024
	ColdReads   int           `yaml:"cold_reads"`  // that read the disk at once, 1 to 1024; 16
	Timeout     time.Duration `yaml:"timeout"`     // of min_position when not stated; 2s
	TimeoutMax  time.Duration `yaml:"timeout_max"` // the longest that may be stated; 60s
	Bodies      Size          `yaml:"bodies"`      // bytes of HTTP bodies and answers under way, 1MiB to 64GiB; 64MiB
	Connections int           `yaml:"connections"` // HTTP connections of a port at once, 0 to 1000000, 0 = by the files that may be open; 0
	Channels    int           `yaml:"channels"`    // channels that exist at once, 1 to 65536; 4096
	Notices     int           `yaml:"notices"`     // live notices of one channel, 1 to 10000000; 100000
}

// Slow says which requests the slow log keeps.
type Slow struct {
	Threshold time.Duration `yaml:"threshold"` // above it a request is slow, 0 to 1h, 0 = none is; 50ms
	Entries   int           `yaml:"entries"`   // of the slowest and of the latest, 1 to 1024; 128
}

// Explain sizes what lets explanations pass over most of the log.
type Explain struct {
	Rate int  `yaml:"rate"` // events read a second to make filters, 0 to 10000000, 0 = none are made; 20000
	Disk Size `yaml:"disk"` // bytes of filters, the oldest go; 1GiB
}

// Backup is where the node that routes copies what is counted, and how often.
type Backup struct {
	To    string        `yaml:"to"`    // a directory, or nats:BUCKET; "" = none is made
	Every time.Duration `yaml:"every"` // 1m to 3650d; 24h
	Keep  int           `yaml:"keep"`  // newest backups kept, 1 to 1000000; 7
}

// Ready is what /readyz promises.
type Ready struct {
	Lag time.Duration `yaml:"lag"` // how far behind the newest event the node may be; 5s
}

// Feed bounds what feed unread looks at.
type Feed struct {
	PostsPerAuthor int           `yaml:"posts_per_author"` // the newest live ones; 1000
	PostsKept      int           `yaml:"posts_kept"`       // of an author, PostsPerAuthor to 1048560, 0 = 4 PostsPerAuthor; 0
	Retention      time.Duration `yaml:"retention"`        // log time; 30d
}

// Kept is how many posts of an author are kept.
func (f *Feed) Kept() int { return cmp.Or(f.PostsKept, postsKeptTimes*f.PostsPerAuthor) }

// postsKeptTimes is how many times the posts that count are kept by default: an
// author may delete three of four before an older one is missing.
const postsKeptTimes = 4

// Unread says for how long columns of unread keep items.
type Unread struct {
	Retention time.Duration `yaml:"retention"` // log time, whole seconds; 90d
}

// Log is the process's own log.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error; info
	Format string `yaml:"format"` // text, json; text
}

// Counter is a family of rows with the same columns.
type Counter struct {
	Name    string
	Columns []Column
}

// Column is one number of a counter's rows.
type Column struct {
	Name    string
	Bits    int    `yaml:"bits"`    // width at first, 1 to 63; 16
	Max     int    `yaml:"max"`     // width up to which it grows, Bits to 63; 63
	Suffix  string `yaml:"suffix"`  // its own name over all counters; "" = none
	Default int64  `yaml:"default"` // answered for a row that does not exist; 0
	Signed  bool   `yaml:"signed"`  // answers may be negative; else a sum below zero is answered as 0; false
	Items   int    `yaml:"items"`   // of unread: newest items that the column keeps of a user, 0 to ItemsMax, 0 = it is a plain number; 0
}

// ItemsMax is how many items a column keeps of a user at most.
const ItemsMax = 100_000

// itemsNameMax is how long the name of a column that keeps items may be: users' cursors have
// it behind "unread.", and are no longer than names of channels.
const itemsNameMax = pipeline.ChannelBytesMax - len("unread.")

// A column's width where the file does not state it.
const (
	bitsDefault = 16 // a segment of rows that outgrow it widens by itself
	bitsMax     = 63 // a value is an int64 and never negative in an answer
)

// EventRules are the rules of one event type.
type EventRules struct {
	Type  string
	Rules []Rule
}

// Rule is one line of rules.
type Rule struct {
	Add    string `yaml:"add"`    // a column's full name
	Key    string `yaml:"key"`    // the field that holds the row's id
	If     string `yaml:"if"`     // a field, self or ""
	Unless string `yaml:"unless"` // a field, self or ""

	Once Once          `yaml:"once"` // the fields whose values the row's set has once; none: every event adds
	Keep time.Duration `yaml:"keep"` // log time for which the set remembers them, whole seconds, 0 = for ever; 0
}

// Channel is a channel that the file lists.
type Channel struct {
	Name string
	Kind string `yaml:"kind"` // KindNotice or KindDot; KindNotice
}

// The kinds of a channel.
const (
	KindNotice = "notice" // counted
	KindDot    = "dot"    // lit or not
)

// Load reads a file and lays it over the defaults, and the environment, NAME=value,
// over both; without a path it is the defaults and the environment. used names the
// variables that it took a value from. Mistakes come back as [Faults]; a file that
// cannot be read as the operating system's error.
func Load(path string, environ []string) (c *Config, used []string, err error) {
	if path == "" {
		return parseIn("config.yaml (built in)", nil, newEnvironment(environ))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w", err)
	}
	return parseIn(path, text, newEnvironment(environ))
}

// Parse lays a file's text over the defaults, with an empty environment; name is
// what faults call it. The error, if any, is a [Faults] that lists everything wrong.
func Parse(name string, text []byte) (*Config, error) {
	c, _, err := parseIn(name, text, newEnvironment(nil))
	return c, err
}

func parseIn(name string, text []byte, e *environment) (c *Config, used []string, err error) {
	c = Default()
	d := newDecoder(name)
	d.environment = e
	d.document(text, c)
	d.variables(c)
	if c.Extends == ExtendsDefault {
		c.extendColumns(Default())
	}
	d.check(c)
	if len(d.faults) > 0 {
		return nil, nil, d.sorted()
	}
	slices.Sort(e.used)
	c.Variables = d.countingVariables()
	return c, e.used, nil
}

// Default is the configuration without a file, a copy for each caller.
func Default() *Config {
	c := new(Config)
	d := newDecoder("config.yaml (built in)")
	d.document(tidemark.DefaultConfig, c)
	if len(d.faults) > 0 {
		panic(d.sorted()) // the build is broken, and a test says so first
	}
	return c
}
