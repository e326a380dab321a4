package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// Bounds of what a member may say of itself.
const (
	WeightMax      = 1000
	CountersMax    = 1024     // bytes of Member.Counters
	memberBytesMax = 64 << 10 // of its JSON
	textBytesMax   = 64       // of zone, session and version
	rolesMax       = 16       // named in its JSON
)

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	zoneName = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,64}$`)
)

// CheckNode says why name cannot be a node's.
func CheckNode(name string) error {
	if !nodeName.MatchString(name) {
		return fmt.Errorf("node name %.80q does not match %v", name, nodeName)
	}
	return nil
}

// Roles are what a process does, one bit each.
type Roles uint8

// The roles.
const (
	Route  Roles = 1 << iota // derives windows while it has the lease, and decides the assignment
	Hold                     // keeps shards
	Answer                   // answers requests
)

var roleNames = []string{"route", "hold", "answer"}

// Has says whether all of r are among the roles.
func (rs Roles) Has(r Roles) bool { return rs&r == r }

// Names lists the roles as the configuration names them.
func (rs Roles) Names() []string {
	names := []string{}
	for i, name := range roleNames {
		if rs.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// MarshalJSON implements json.Marshaler.
func (rs Roles) MarshalJSON() ([]byte, error) { return json.Marshal(rs.Names()) }

// UnmarshalJSON implements json.Unmarshaler. Roles of a later version are
// passed over.
func (rs *Roles) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	if len(names) > rolesMax {
		return fmt.Errorf("%d roles, %d at most", len(names), rolesMax)
	}
	*rs = 0
	for _, name := range names {
		if i := slices.Index(roleNames, name); i >= 0 {
			*rs |= 1 << i
		}
	}
	return nil
}

// Fingerprint identifies a generation: its number, and all that decides what it counts.
// 0: the process has no counts of its own. Its text is 16 hexadecimal digits.
type Fingerprint uint64

// FingerprintOf is that of a generation. Two that use one slot after each other never take
// each other for members, even if they count alike.
func FingerprintOf(o generation.Owner) Fingerprint {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", o.Number, o.CountsBy)
	return Fingerprint(max(h.Sum64(), 1))
}

func (f Fingerprint) String() string { return fmt.Sprintf("%016x", uint64(f)) }

// MarshalText implements encoding.TextMarshaler.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("fingerprint %.20q is not 16 hexadecimal digits", text)
	}
	*f = Fingerprint(n)
	return nil
}

// Member is what a process says of itself.
type Member struct {
	Node    string  `json:"node"`
	Session string  `json:"session"` // tells it from an earlier process of the same name
	Roles   Roles   `json:"roles"`
	Zone    string  `json:"zone,omitempty"`
	Weight  int     `json:"weight"`  // share of shards, relative; 0 holds none
	Version string  `json:"version"` // of the program
	Formats Formats `json:"formats"`

	// What all that hold or route must have in common (Misfit); zeros with a
	// process that has no configuration of its own.
	Shards      int         `json:"shards,omitempty"`
	Fingerprint Fingerprint `json:"fingerprint"`        // of its generation
	Counters    string      `json:"counters,omitempty"` // for people: see Summary

	Differs bool `json:"differs,omitempty"` // its file counts something else; it counts by the generation all the same

	FreshnessMS int64 `json:"freshness_ms,omitempty"` // how old its answers may be that it does not call degraded

	Epoch   uint64                     `json:"epoch,omitempty"` // of the assignment that it acts on; 0: it is starting, or there was none yet
	Applied pipeline.Position          `json:"applied,string"`
	LagMS   int64                      `json:"lag_ms"`
	Behind  bool                       `json:"behind,omitempty"`  // it is catching up with the log: what it answers is old
	Routes  bool                       `json:"routes,omitempty"`  // it is the one that routes
	Ready   ShardSet                   `json:"ready"`             // it answers for these
	Loading map[pipeline.Shard]float64 `json:"loading,omitempty"` // shard: how much of it is there, 0 to 1
	Failed  ShardSet                   `json:"failed"`
	Stopped bool                       `json:"stopped,omitempty"` // in order: no process has this name now, and Ready is what it has stored
}

// Encode gives the JSON of m; an error names the field that Decode would refuse.
func (m *Member) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("cluster: member %.80q: %w", m.Node, err)
	}
	b, err := json.Marshal(m)
	if err == nil && len(b) > memberBytesMax {
		err = fmt.Errorf("has %d bytes, %d at most", len(b), memberBytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: member %s: %w", m.Node, err)
	}
	return b, nil
}

// DecodeMember reads what a process named node said of itself. It refuses what
// none can have said; fields of a later version are passed over.
func DecodeMember(node string, b []byte) (*Member, error) {
	if len(b) > memberBytesMax {
		return nil, fmt.Errorf("cluster: member %.80q: has %d bytes, %d at most", node, len(b), memberBytesMax)
	}
	m := new(Member)
	err := json.Unmarshal(b, m)
	if err == nil {
		err = m.check()
	}
	if err == nil && m.Node != node {
		err = fmt.Errorf("calls itself %s", m.Node)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: member %.80q: %w", node, err)
	}
	return m, nil
}

func (m *Member) check() error {
	within := func(what string, n, low, high int) error {
		if n < low || n > high {
			return fmt.Errorf("%s is %d, must be from %d to %d", what, n, low, high)
		}
		return nil
	}
	err := errors.Join(
		CheckNode(m.Node),
		within("weight", m.Weight, 0, WeightMax),
		within("shards", m.Shards, 0, pipeline.ShardsMax),
		m.Formats.check(),
		checkText("session", m.Session, textBytesMax),
		checkText("version", m.Version, textBytesMax),
		checkText("counters", m.Counters, CountersMax),
		m.checkShards(),
	)
	switch {
	case m.Session == "":
		err = errors.Join(err, errors.New("has no session"))
	case m.FreshnessMS < 0 || m.FreshnessMS > pipeline.FreshnessMax.Milliseconds():
		err = errors.Join(err, fmt.Errorf("freshness_ms %d is out of range", m.FreshnessMS))
	case !zoneName.MatchString(m.Zone):
		err = errors.Join(err, fmt.Errorf("zone %.80q does not match %v", m.Zone, zoneName))
	}
	if m.Applied > pipeline.PositionMax || m.LagMS < 0 {
		err = errors.Join(err, fmt.Errorf("applied %v or lag_ms %d is out of range", m.Applied, m.LagMS))
	}
	return err
}

// checkShards sees that every shard named is one.
func (m *Member) checkShards() error {
	last := max(m.Ready.last(), m.Failed.last())
	for s, loaded := range m.Loading {
		last = max(last, int(s))
		if !(loaded >= 0 && loaded <= 1) {
			return fmt.Errorf("shard %d is loaded to %v, must be from 0 to 1", s, loaded)
		}
	}
	if last >= m.Shards {
		return fmt.Errorf("names shard %d and has %d", last, m.Shards)
	}
	return nil
}

// checkText refuses what would not stay on one line of a terminal.
func checkText(what, text string, bytesMax int) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > bytesMax || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
		return fmt.Errorf("%s %.80q is not one line of at most %d bytes", what, text, bytesMax)
	}
	return nil
}
