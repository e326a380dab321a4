package config

import (
	"errors"
	"fmt"
	"os"
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

// docs/contract.md: "… each key with its default, unit and reason": a key that the
// program reads is in config.yaml, with a comment.
func TestEveryKeyIsExplained(t *testing.T) {
	var root yaml.Node
	if err := yaml.Unmarshal(tidemark.DefaultConfig, &root); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("config.yaml", tidemark.DefaultConfig); err != nil {
		t.Errorf("config.yaml is refused:\n%v", err)
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

func TestFileStatesOnlyWhatItChanges(t *testing.T) {
	for _, test := range []struct {
		name, text string
		change     func(c *Config)
	}{
		{"empty", "", func(*Config) {}},
		{"comments", "# nothing\n", func(*Config) {}},
		{"group of comments", "nats:\n  # listen: :4222\nshards: 8\n", func(c *Config) { c.Shards = 8 }},
		{
			"deep", "nats: {streams: {events: {max_age: 1d12h}}}",
			func(c *Config) { c.NATS.Streams.Events.MaxAge = 36 * time.Hour },
		},
		{"http off", `http: {listen: ""}`, func(c *Config) { c.HTTP.Listen = "" }},
		{"names", "http: {hosts: [tidemark, counts.example.org]}", func(c *Config) { c.HTTP.Hosts = []string{"tidemark", "counts.example.org"} }},
		{"no names", "http: {hosts: []}", func(*Config) {}},
		{"a sample", "audit: {sample: 1/1048576}", func(c *Config) { c.Audit.Sample = "1/1048576" }},
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
		{"only answers", "roles: [answer]\nnats: {url: 'nats://a:4222'}", func(c *Config) { c.Roles, c.NATS.URL = []string{RoleAnswer}, "nats://a:4222" }},
		{"a node", "node: rack-7_A\nzone: eu-west.1\nweight: 0", func(c *Config) { c.Node, c.Zone, c.Weight = "rack-7_A", "eu-west.1", 0 }},
		{"a cluster", "cluster: {replicas: 2, replace_after: 30d, moves: 64, move_rate: 1GiB}", func(c *Config) {
			c.Cluster = Cluster{Replicas: 2, ReplaceAfter: 30 * day, Moves: 64, MoveRate: GiB}
		}},
		{"NATS servers", "nats: {replicas: 3, cluster: {name: east, listen: ':0', routes: ['nats://[::1]:6222', 'nats://b:6222']}}", func(c *Config) {
			c.NATS.Replicas = 3
			c.NATS.Cluster = NATSCluster{Name: "east", Listen: ":0", Routes: []string{"nats://[::1]:6222", "nats://b:6222"}}
		}},
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
		{"nats: {tls: {certificate: x}}", 1, "allowed: ca, cert, key"},
		{"shards: 1.5", 1, "not a whole number"},
		{"shards: 99999999999999999999", 1, "not a whole number"},
		{"feed: {retention: 99999999999d}", 1, "not a duration"},
		{"windows: {bytes: 9223372036854775807KiB}", 1, "not a size"},
		{"nats:\n  max_payload: 512KiB\n", 2, "up to half of it, 256KiB"},
		{"nats:\n  max_payload: 512KiB\nwindows:\n  bytes: 300KiB\n", 4, "up to half of it, 256KiB"},
		{"checkpoint: {interval: 1m}\nnode_expiry: 2m", 2, "3 intervals or more, 3m"},
		{"channels_open: yes", 1, "true or false"},
		{"shards: 2500\nwindows:\n  bytes: 32KiB\n", 3, "windows.bytes is 32768, too little for these counters, rules and 2500 shards"},
		{"feed: {posts_per_author: 100, posts_kept: 99}", 1, "posts_per_author or more"},
		{"limits: {channels: 1}\nchannels: {a: {}, b: {}}", 2, "as many as are listed"},
		{"memory: {budget: 33MiB}", 1, "memory.budget is 33MiB; allowed: 34MiB or more, of which Badger's buffers and caches take 30MiB and the state at least 4MiB"},
		{"nats: {credentials: k}", 1, "nats.url is empty"},
		{"nats: {replicas: 3}", 1, "3 replicas need a cluster, and both nats.url and nats.cluster.listen are empty"},
		{"http: {listen: '127.0.0.1:4222'}", 1, "a port each"},
		{"counters: {page: {view: {}}}", 1, "state rules too"},
		{"counters: {post: 5}\nrules: {like: [{add: post.like, key: post}]}", 1, `is "5"`},
		{"rules:\n  view:\n  - {add: post.like, key: self}", 3, "self is a condition"},
		{"rules:\n  read: []", 2, "built in"},
		{"channels: {games: dot}", 1, "{kind: …}"},
		{"audit:\n  sample: 1/3\n", 2, `"1/3" is not a share: 1/N, N a power of two up to 1048576, like 1/64`},
		{"http: {hosts: tidemark}", 1, `http.hosts: is "tidemark", not a list like [a, b]; [] for none`},
		{"http: {hosts: [a, 'b:8480']}", 1, `http.hosts: number 2, "b:8480", is not a name; allowed: names like`},
		{"http: {hosts: [{a: b}]}", 1, "http.hosts: is a group of keys, want a text"},
		{"http: {hosts: [" + strings.Repeat("a, ", 65) + "]}", 1, "http.hosts: has 65 entries; allowed: 64"},
		{"rules:\n  like:\n" + strings.Repeat("  - {add: post.like, key: post}\n", rulesMax+1), rulesMax + 3, "allowed: 64"},
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
