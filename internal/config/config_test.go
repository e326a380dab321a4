package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/tidemark-io/tidemark"
	"github.com/tidemark-io/tidemark/internal/golden"
)

// docs/contract.md: "A config with a mistake is refused at start, all mistakes listed
// with file and line."
func TestAllFaultsAtOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/faults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("faults.yaml", text)
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("error is %v, want Faults", err)
	}
	for i := 1; i < len(faults); i++ {
		if faults[i].Line < faults[i-1].Line {
			t.Errorf("fault %d is of line %d, after one of line %d", i, faults[i].Line, faults[i-1].Line)
		}
	}
	got := err.Error() + "\n"
	if strings.Contains(got, "secret") {
		t.Error("a fault shows the password of a URL")
	}
	golden.Check(t, "faults", got)
}

// docs/contract.md: "config.yaml at the root is the default, each key with its default":
// the numbers here are those the documentation gives.
func TestDefaultIsWhatIsDocumented(t *testing.T) {
	c := Default()
	if _, err := Parse("config.yaml", tidemark.DefaultConfig); err != nil {
		t.Fatalf("config.yaml is refused:\n%v", err)
	}
	for _, test := range []struct {
		key       string
		got, want any
	}{
		{"data_dir", c.DataDir, "./data"},
		{"shards", c.Shards, 64},
		{"nats.url", c.NATS.URL, ""},
		{"nats.listen", c.NATS.Listen, "127.0.0.1:4222"},
		{"nats.credentials", c.NATS.Credentials, ""},
		{"nats.nkey", c.NATS.NKey, ""},
		{"nats.tls", c.NATS.TLS, TLS{}},
		{"nats.replicas", c.NATS.Replicas, 1},
		{"nats.sync_interval", c.NATS.SyncInterval, 200 * time.Millisecond},
		{"nats.max_payload", c.NATS.MaxPayload, 4 * MiB},
		{"nats.streams.events", c.NATS.Streams.Events, EventsStream{MaxBytes: 16 * GiB}},
		{"nats.streams.deltas", c.NATS.Streams.Deltas, Stream{MaxBytes: 4 * GiB}},
		{"nats.streams.deadletter", c.NATS.Streams.DeadLetter, Stream{MaxBytes: GiB}},
		{"http.listen", c.HTTP.Listen, "127.0.0.1:8480"},
		{"http.hosts", len(c.HTTP.Hosts), 0},
		{"api", c.API, API{}},
		{"windows", c.Windows, Windows{Events: 8192, Bytes: 512 * KiB, Delay: 10 * time.Millisecond}},
		{"router", c.Router, Router{Lanes: 0, LeaseRenew: 300 * time.Millisecond, LeaseExpiry: 1200 * time.Millisecond}},
		{"checkpoint", c.Checkpoint, Checkpoint{Interval: time.Second, Rows: 60000}},
		{"memory", c.Memory, Memory{Budget: 2 * GiB}},
		{"badger", c.Badger, Badger{MemTable: 8 * MiB}},
		{"limits", c.Limits, Limits{IDs: 10000, Requests: 1024, ColdReads: 16, Timeout: 2 * time.Second, TimeoutMax: time.Minute, Channels: 4096, Notices: 100_000}},
		{"slow", c.Slow, Slow{Threshold: 50 * time.Millisecond, Entries: 128}},
		{"audit", c.Audit, Audit{Rate: 5000, Sample: "1/64", Memory: 64 * MiB}},
		{"audit bits", c.Audit.Bits(), 6},
		{"explain", c.Explain, Explain{Rate: 20_000, Disk: GiB}},
		{"ready.lag", c.Ready.Lag, 5 * time.Second},
		{"freshness", c.Freshness, 2 * time.Second},
		{"rebuild", c.Rebuild, Rebuild{Memory: 0, Cores: 1, Keep: time.Hour}},
		{"feed", c.Feed, Feed{PostsPerAuthor: 1000, Retention: 30 * day}},
		{"inactive_after", c.InactiveAfter, 30 * day},
		{"node_expiry", c.NodeExpiry, day},
		{"log", c.Log, Log{Level: "info", Format: "text"}},
		{"channels", len(c.Channels), 0},
		{"channels_open", c.ChannelsOpen, true},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s is %v, documented is %v", test.key, test.got, test.want)
		}
	}
}

// docs/contract.md: "… each key with its default, unit and reason": a key that the
// program reads is in config.yaml, with a comment.
func TestEveryKeyIsExplained(t *testing.T) {
	var root yaml.Node
	if err := yaml.Unmarshal(tidemark.DefaultConfig, &root); err != nil {
		t.Fatal(err)
	}
	explained(t, "", reflect.TypeFor[Config](), root.Content[0])
}

// noKey is the one field of a Config that no file states.
const noKey = "Variables"

func explained(t *testing.T, key string, typ reflect.Type, group *yaml.Node) {
	for i := range typ.NumField() {
		name, ok := typ.Field(i).Tag.Lookup("yaml")
		if typ.Field(i).Name == noKey {
			continue
		}
		if !ok {
			t.Errorf("field %s of %s has no key", typ.Field(i).Name, typ)
			continue
		}
		at := -1
		for j := 0; j < len(group.Content); j += 2 {
			if group.Content[j].Value == name {
				at = j
			}
		}
		if at < 0 {
			t.Errorf("%s is not in config.yaml", under(key, name))
			continue
		}
		k, value := group.Content[at], group.Content[at+1]
		if k.HeadComment+k.LineComment+value.HeadComment+value.LineComment == "" {
			t.Errorf("%s has no comment in config.yaml: say its unit and reason", under(key, name))
		}
		if typ.Field(i).Type.Kind() == reflect.Struct {
			explained(t, under(key, name), typ.Field(i).Type, value)
		}
	}
}

func TestHostsThatAreNoNames(t *testing.T) {
	for text, want := range map[string]string{
		"tidemark":                            `f:1: http.hosts: is "tidemark", not a list like [a, b]; [] for none`,
		"":                                    `f:1: http.hosts: is "", not a list`,
		"[a, 'b:8480']":                       `f:1: http.hosts: number 2, "b:8480", is not a name; allowed: names like`,
		"[10.0.0.1]":                          `number 1, "10.0.0.1", is not a name`,
		"['']":                                `number 1, "", is not a name`,
		"['*']":                               `number 1, "*", is not a name`,
		"[{a: b}]":                            `f:1: http.hosts: is a group of keys, want a text`,
		"[" + strings.Repeat("a, ", 65) + "]": `f:1: http.hosts: has 65 entries; allowed: 64`,
	} {
		if _, err := Parse("f", []byte("http: {hosts: "+text+"}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hosts %q: %v, want %s", text, err, want)
		}
	}
}

func TestFileStatesOnlyWhatItChanges(t *testing.T) {
	for _, test := range []struct {
		name, text string
		change     func(c *Config)
	}{
		{"empty", "", func(*Config) {}},
		{"comments", "# nothing\n", func(*Config) {}},
		{"null", "---\n", func(*Config) {}},
		{"group of comments", "nats:\n  # listen: :4222\nshards: 8\n", func(c *Config) { c.Shards = 8 }},
		{"one of a group", "windows: {events: 1}", func(c *Config) { c.Windows.Events = 1 }},
		{
			"deep", "nats: {streams: {events: {max_age: 1d12h}}}",
			func(c *Config) { c.NATS.Streams.Events.MaxAge = 36 * time.Hour },
		},
		{"http off", `http: {listen: ""}`, func(c *Config) { c.HTTP.Listen = "" }},
		{"names", "http: {hosts: [tidemark, counts.example.org]}", func(c *Config) { c.HTTP.Hosts = []string{"tidemark", "counts.example.org"} }},
		{"no names", "http: {hosts: []}", func(*Config) {}},
		{"any port", "nats: {listen: '[::1]:0'}", func(c *Config) { c.NATS.Listen = "[::1]:0" }},
		{"plain bytes", "windows: {bytes: 65_536}", func(c *Config) { c.Windows.Bytes = 64 * KiB }},
		{"sync on every write", "nats: {sync_interval: 0}", func(c *Config) { c.NATS.SyncInterval = 0 }},
		{"no request is slow", "slow: {threshold: 0}\nlimits: {cold_reads: 1024}", func(c *Config) {
			c.Slow.Threshold, c.Limits.ColdReads = 0, 1024
		}},
		{"alias", "ready: {lag: &a 3s}\nlimits: {timeout: *a}", func(c *Config) {
			c.Ready.Lag, c.Limits.Timeout = 3*time.Second, 3*time.Second
		}},
		{
			"outside server", "nats: {url: 'tls://a:4222, b', nkey: seed, replicas: 3}",
			func(c *Config) { c.NATS.URL, c.NATS.NKey, c.NATS.Replicas = "tls://a:4222, b", "seed", 3 },
		},
		{"counters are replaced whole", "counters: {page: {view: }}\nrules: {visit: [{add: page.view, key: page}]}", func(c *Config) {
			c.Counters = []Counter{{Name: "page", Columns: []Column{{Name: "view", Bits: 16, Max: 63}}}}
			c.EventRules = []EventRules{{Type: "visit", Rules: []Rule{{Add: "page.view", Key: "page"}}}}
		}},
		{"rules are replaced whole", "rules: {like: [{add: user.liked, key: author, unless: self}]}", func(c *Config) {
			c.EventRules = []EventRules{{Type: "like", Rules: []Rule{{Add: "user.liked", Key: "author", Unless: "self"}}}}
		}},
		{"no rules", "rules: {}\ncounters: {}", func(c *Config) { c.EventRules, c.Counters = nil, nil }},
		{"rules of comments", "rules:\n  # none\n", func(*Config) {}},
		{"channels in the file's order", "channels: {z: {kind: dot}, a: {kind: notice}, m: }", func(c *Config) {
			c.Channels = []Channel{{"z", KindDot}, {"a", KindNotice}, {"m", KindNotice}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse("config.yaml", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			test.change(want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		text string
		line int
		what string // the fault says this
	}{
		{"\tshards: 3", 1, "not YAML"},
		{"shards: 3\nnats: {", 2, "not YAML"},
		{"- a\n", 1, "is a list, not a group of keys"},
		{"shards: 3\n---\nshards: 4\n", 2, "a second YAML document"},
		{"shards: 3\n\nshards: 4\n", 3, "first in line 1"},
		{"? [a]\n: b\n", 1, "a key is a list"},
		{"data-dir: x", 1, `did you mean "data_dir"?`},
		{"nats: {tls: {certificate: x}}", 1, "allowed: ca, cert, key"},
		{"shards: 4097", 1, "allowed: 1 to 4096"},
		{"shards: 1.5", 1, "not a whole number"},
		{"shards: 99999999999999999999", 1, "not a whole number"},
		{"feed: {retention: 30}", 1, "not a duration"},
		{"feed: {retention: 99999999999d}", 1, "not a duration"},
		{"feed: {retention: 0d}", 1, "allowed: 1ms to 36500d"},
		{"windows: {bytes: 9223372036854775807KiB}", 1, "not a size"},
		{"windows: {bytes: 31KiB}", 1, "allowed: 32KiB to 32MiB"},
		{"nats:\n  max_payload: 512KiB\n", 2, "up to half of it, 256KiB"},
		{"nats:\n  max_payload: 512KiB\nwindows:\n  bytes: 300KiB\n", 4, "up to half of it, 256KiB"},
		{"router: {lease_expiry: 800ms}", 1, "3 renewals or more, 900ms"},
		{"limits: {timeout_max: 1s}", 1, "timeout up to timeout_max"},
		{"checkpoint: {interval: 1m}\nnode_expiry: 2m", 2, "3 intervals or more, 3m"},
		{"channels_open: yes", 1, "true or false"},
		{"shards: 2500\nwindows:\n  bytes: 32KiB\n", 3, "windows.bytes is 32768, too little for these counters, rules and 2500 shards"},
		{"windows: {bytes: 32KiB}\nshards: 4096\n", 2, "too little for these counters, rules and 4096 shards"},
		{"feed: {posts_per_author: 100, posts_kept: 99}", 1, "posts_per_author or more"},
		{"limits: {channels: 1}\nchannels: {a: {}, b: {}}", 2, "as many as are listed"},
		{"memory: {budget: 33MiB}", 1, "memory.budget is 33MiB; allowed: 34MiB or more, of which Badger's buffers and caches take 30MiB and the state at least 4MiB"},
		{"checkpoint: {rows: 1000001}", 1, "allowed: 1 to 1000000"},
		{"nats: {tls: {key: k}, url: a}", 1, "key is given without cert"},
		{"nats: {credentials: k}", 1, "nats.url is empty"},
		{"nats: {replicas: 3}", 1, "3 replicas need a cluster, and both nats.url and nats.cluster.listen are empty"},
		{"nats: {url: 'nats://'}", 1, "server 1 of the list"},
		{"http: {listen: '300.0.0.1:80'}", 1, "not an address"},
		{"http: {listen: '127.0.0.1:4222'}", 1, "a port each"},
		{"counters: {page: {view: {}}}", 1, "state rules too"},
		{"counters: [post]", 1, "is a list"},
		{"counters: {post: 5}\nrules: {like: [{add: post.like, key: post}]}", 1, `is "5"`},
		{"rules:\n  view:\n  - {add: post.like, key: self}", 3, "self is a condition"},
		{"rules:\n  read: []", 2, "built in"},
		{"rules:\n  like: post.like", 2, "not a list of rules"},
		{"rules: {like: [{add: post.like, key: post}, {add: post.liek, key: post}]}", 1, `did you mean "post.like"?`},
		{"channels: {games: dot}", 1, "{kind: …}"},
		{"counters: {" + strings.Repeat("a", nameBytesMax+1) + ": {b: {}}}", 1, "a key has 257 bytes; allowed: 256"},
		{"counters: &a {post: *a}", 1, "the alias *a is inside what it names"},
		{strings.Repeat("#", fileBytesMax+1), 1, "larger than 1MiB"},
	} {
		_, err := Parse("c.yaml", []byte(test.text))
		var faults Faults
		if !errors.As(err, &faults) {
			t.Errorf("%.60q is accepted: %v", test.text, err)
			continue
		}
		found := false
		for _, f := range faults {
			found = found || f.Line == test.line && strings.Contains(f.String(), test.what)
		}
		if !found {
			t.Errorf("%.60q: want %q in line %d, got\n%v", test.text, test.what, test.line, err)
		}
	}
}

// One slip is one line: what follows from it is not listed too.
func TestFaultsDoNotMultiply(t *testing.T) {
	for _, text := range []string{
		"nats: {max_payload: 4MB}\nwindows: {bytes: 1MiB}",
		"counters: [post]\nrules: {like: [{add: page.like, key: post}]}",
		"rules: {like: [5]}",
		"rules: {like: [{add: [], key: post}]}",
		"counters: {page: {view: {bits: x, max: 3}}}\nrules: {view: [{add: page.view, key: page}]}",
		"log: {level: [info]}",
		"badger: {memtable: 2GiB}",
	} {
		_, err := Parse("c.yaml", []byte(text))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 {
			t.Errorf("%q: want one fault, got\n%v", text, err)
		}
	}
}

func TestRulesMax(t *testing.T) {
	rule := "  - {add: post.like, key: post}\n"
	if _, err := Parse("c.yaml", []byte("rules:\n  like:\n"+strings.Repeat(rule, rulesMax))); err != nil {
		t.Errorf("%d rules are refused: %v", rulesMax, err)
	}
	_, err := Parse("c.yaml", []byte("rules:\n  like:\n"+strings.Repeat(rule, rulesMax+1)))
	if err == nil || !strings.Contains(err.Error(), "allowed: 64") {
		t.Errorf("%d rules: %v", rulesMax+1, err)
	}
}

// Aliases let a small file stand for a large one. It is refused before anything
// is unfolded, so that 600 KB do not take a gigabyte and half a minute.
func TestAliasesDoNotExplode(t *testing.T) {
	list := "rules:\n  a: &a [" + strings.Repeat("{},", 20_000) + "]\n"
	var b strings.Builder
	b.WriteString(list)
	for i := range 40_000 {
		fmt.Fprintf(&b, "  b%d: *a\n", i)
	}
	for _, test := range []struct {
		name, text string
		line       int
	}{
		{"a list named 40,000 times", b.String(), 6}, // 4 aliases of 20,001 values each fit
		{"lists of lists", "a: &a [1,1,1,1,1,1,1,1,1]\n" + doublings("abcdefgh"), 6},
		{"without aliases", "a: [" + strings.Repeat("1,\n", valuesMax) + "]", valuesMax - 3},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("c.yaml", []byte(test.text))
		runtime.ReadMemStats(&after)
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != test.line ||
			!strings.Contains(faults[0].What, "the file has more than 100000 values up to here") {
			t.Errorf("%s: want one fault in line %d, got\n%v", test.name, test.line, err)
		}
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 200<<20 {
			t.Errorf("%s: %d MiB were allocated", test.name, bytes>>20)
		}
	}
	if _, err := Parse("c.yaml", []byte(list+"  b: *a\n")); err == nil || strings.Contains(err.Error(), "values") {
		t.Errorf("a list that is named once is not looked at: %v", err)
	}
}

// doublings are lists, one a line, of nine times the one before.
func doublings(names string) string {
	var b strings.Builder
	for i := range len(names) - 1 {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", names[i+1], names[i+1], strings.Repeat("*"+names[i:i+1]+",", 9))
	}
	return b.String()
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if _, _, err := Load(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file is %v", err)
	}
	if err := os.WriteFile(path, []byte("shards: 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load(path, nil)
	if want := path + ":1: shards: 0 is out of bounds; allowed: 1 to 4096"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "200ms": 200 * time.Millisecond, "1h30m": 90 * time.Minute, "30d": 30 * day, "1d12h": 36 * time.Hour,
		"1h": time.Hour, "90s": 90 * time.Second, "-1s": -time.Second, "-2d": -2 * day,
	} {
		got, ok := parseDuration(text)
		if !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, ok, want)
		}
		if back, ok := parseDuration(FormatDuration(got)); !ok || back != got {
			t.Errorf("%v is written %s and read as %v", got, FormatDuration(got), back)
		}
	}
	for _, text := range []string{"", "5", "d", "1.5d", "1d2", "1d-3h", "-1d3h", "106752d", "106751d24h", "1d1d", "s"} {
		if d, ok := parseDuration(text); ok {
			t.Errorf("%q is read as %v", text, d)
		}
	}
	for text, want := range map[string]Size{
		"0": 0, "65536": 64 * KiB, "512KiB": 512 * KiB, "64 GiB": 64 * GiB, "1_000": 1000, "2TiB": 2 * TiB, "-1MiB": -MiB,
	} {
		got, ok := parseSize(text)
		if !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, ok, want)
		}
		if back, ok := parseSize(got.String()); !ok || back != got {
			t.Errorf("%d is written %s and read as %v", int64(got), got, back)
		}
	}
	for _, text := range []string{"", "1MB", "KiB", "1.5GiB", "8388608TiB", "1kib"} {
		if s, ok := parseSize(text); ok {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}
