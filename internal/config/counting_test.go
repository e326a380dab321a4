package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/golden"
)

// ownKeys are a node's own matter: they do not decide what is counted.
var ownKeys = []string{
	"extends", "data_dir", "nats", "roles", "node", "zone", "weight", "cluster", "http", "api",
	"windows", "router", "checkpoint", "memory", "badger",
	"limits.ids", "limits.requests", "limits.cold_reads", "limits.bodies", "limits.connections", "limits.timeout", "limits.timeout_max",
	"slow", "audit", "explain", "ready", "freshness", "backup", "rebuild", "node_expiry", "log",
}

// A key that is added decides what is counted, or it does not: whoever adds it
// says which.
func TestEveryKeyCountsOrNot(t *testing.T) {
	known := append(slices.Clone(countingKeys), ownKeys...)
	seen := make(map[string]bool)
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			key := under(prefix, typ.Field(i).Tag.Get("yaml"))
			switch {
			case typ.Field(i).Name == noKey:
			case slices.Contains(known, key):
				seen[key] = true
			case typ.Field(i).Type.Kind() == reflect.Struct:
				walk(key, typ.Field(i).Type)
			default:
				t.Errorf("%s is in neither list: does it decide what is counted?", key)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
	for _, key := range known {
		if !seen[key] {
			t.Errorf("%s is listed, and is no key", key)
		}
	}
}

// What a generation counts by is stated whole and comes back as it was; what is
// the node's own stays.
func TestCountingComesBack(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	own := Default()
	own.DataDir, own.Limits.IDs, own.Windows.Events = "elsewhere", 77, 99
	before := own
	for i := range 100 {
		text := someFile(r)
		c, err := Parse("some.yaml", text)
		if err != nil {
			t.Fatalf("seed %d, file %d is refused: %v\n%s", seed, i, err, text)
		}
		counting, err := c.Counting()
		if err != nil {
			t.Fatal(err)
		}
		by, err := own.CountingBy(counting)
		if err != nil {
			t.Fatalf("seed %d, file %d: what it counts is refused: %v\n%s\n%s", seed, i, err, text, counting)
		}
		want := *own
		want.Shards, want.Counters, want.EventRules, want.Channels, want.ChannelsOpen = c.Shards, c.Counters, c.EventRules, c.Channels, c.ChannelsOpen
		want.Limits.Channels, want.Limits.Notices = c.Limits.Channels, c.Limits.Notices
		want.Feed, want.InactiveAfter = c.Feed, c.InactiveAfter
		want.Feed.PostsKept = c.Feed.Kept()
		if !reflect.DeepEqual(by, &want) {
			t.Fatalf("seed %d, file %d comes back as\n%+v, want\n%+v\n%s", seed, i, by, &want, text)
		}
		again, err := by.Counting()
		if err != nil || !bytes.Equal(again, counting) {
			t.Fatalf("seed %d, file %d is stated as\n%s, %v, then as\n%s", seed, i, counting, err, again)
		}
		if own.Shards != 64 {
			t.Fatal("the node's own configuration was changed")
		}
		// Whatever differs has words, and what is the same has none.
		if words, err := Changes(c, by); err != nil || len(words) > 0 {
			t.Fatalf("seed %d, file %d: %v %q", seed, i, err, words)
		}
		if words, err := Changes(before, by); err != nil || len(words) == 0 {
			t.Fatalf("seed %d, file %d does not differ from another: %v", seed, i, err)
		}
		before = by
	}
}

// someFile is a configuration with honest names of unusual shape.
func someFile(r *rand.Rand) []byte {
	var out bytes.Buffer
	fields := []string{"field", "Feld mit Zwischenraum", "größe", "\u0085", "\x7f", "😀", "\u2028", "a: b", "<&>", "\t", "\"", "null", "\ufeff", "~", "123"}
	fmt.Fprintf(&out, "shards: %d\ninactive_after: %dms\nchannels_open: %v\n", 1+r.IntN(4096), 1+r.IntN(100_000_000), r.IntN(2) == 0)
	fmt.Fprintf(&out, "limits: {channels: %d, notices: %d}\n", 8+r.IntN(1000), 1+r.IntN(1000))
	posts := 1 + r.IntN(65535)
	fmt.Fprintf(&out, "feed: {posts_per_author: %d, posts_kept: %d, retention: %dms}\n", posts, r.IntN(2)*(posts+r.IntN(1000)), 1+r.IntN(100_000_000))
	var columns, once []string
	out.WriteString("counters:")
	if r.IntN(8) == 0 {
		out.WriteString(" {}")
	}
	for i := range r.IntN(5) {
		if strings.HasSuffix(out.String(), "{}") {
			break
		}
		counter := fmt.Sprintf("c%d", (i*7)%5) // not in the order of their names
		fmt.Fprintf(&out, "\n  %s:", counter)
		for k := range 1 + r.IntN(4) {
			bits := 1 + r.IntN(63)
			fmt.Fprintf(&out, "\n    k%d: {bits: %d, max: %d, default: %d", (k*3)%4, bits, bits+r.IntN(64-bits), r.Int64N(1<<min(bits, 62)))
			if r.IntN(2) == 0 {
				fmt.Fprintf(&out, ", suffix: s%d_%d", i, k)
			}
			out.WriteString("}")
			columns = append(columns, fmt.Sprintf("%s.k%d", counter, (k*3)%4))
			once = append(once, []string{"", ", once: actor", ", once: [post], keep: 1d12h", `, once: ["<&>", größe]`, ", once: visitor, keep: 90s"}[r.IntN(5)])
		}
	}
	if len(columns) == 0 && !strings.HasSuffix(out.String(), "{}") {
		out.WriteString(" {}")
	}
	out.WriteString("\nrules:")
	if len(columns) == 0 {
		out.WriteString(" {}")
	}
	for i := range 4 * min(len(columns), 1) {
		fmt.Fprintf(&out, "\n  %s: [", []string{"zoo", "view", "0", "null"}[i])
		for range r.IntN(4) {
			field, _ := json.Marshal(fields[r.IntN(len(fields))])
			column := r.IntN(len(columns))
			fmt.Fprintf(&out, "{add: %s, key: %s%s", columns[column], escape(field), once[column])
			if r.IntN(2) == 0 {
				out.WriteString(", unless: self")
			}
			out.WriteString("}, ")
		}
		out.WriteString("]")
	}
	out.WriteString("\nchannels:")
	for i := range r.IntN(4) {
		fmt.Fprintf(&out, "\n  %s: {kind: %s}", []string{"z", "true", "0-9", "a"}[i], []string{KindNotice, KindDot}[r.IntN(2)])
	}
	out.WriteString("\n")
	return out.Bytes()
}

// The bytes are written in a record that lives longer than the program: those of
// the default do not change unless somebody means to.
func TestCountingOfTheDefault(t *testing.T) {
	counting, err := Default().Counting()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "counting", string(counting)+"\n")
}

// What is not all that decides, or more, is refused with words.
func TestCountingIsChecked(t *testing.T) {
	c := Default()
	counting, err := c.Counting()
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) string {
		if !strings.Contains(string(counting), from) {
			t.Fatalf("there is no %s in %s", from, counting)
		}
		return strings.Replace(string(counting), from, to, 1)
	}
	for _, test := range []struct{ text, want string }{
		{"", "not JSON"},
		{"{}", "inactive_after: is missing"},
		{change(`"shards":64,`, ``), "shards: is missing"},
		{change(`"posts_kept":4000,`, ``), "feed.posts_kept: is missing"},
		{change(`"shards":64`, `"shards":64,"data_dir":"/etc"`), "data_dir: does not decide what is counted"},
		{change(`"shards":64`, `"shards":64,"epochs":3`), "epochs: unknown key; allowed"},
		{change(`"shards":64`, `"shards":64,"epochs":3`), "a newer version of Tidemark"},
		{change(`"add":"post.like"`, `"add":"post.view"`), "no column"},
		{change(`"channels":{}`, `"channels":null`), "channels: is missing"},
	} {
		_, err := c.CountingBy(json.RawMessage(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.200s is answered with %v, want %q", test.text, err, test.want)
		}
	}
	huge := Default()
	for i := range 3000 {
		huge.EventRules = append(huge.EventRules, EventRules{Type: fmt.Sprint("type", i), Rules: []Rule{{Add: "post.like", Key: strings.Repeat("k", 64)}}})
	}
	if _, err := huge.Counting(); err == nil || !strings.Contains(err.Error(), "bytes; allowed: 262144") {
		t.Errorf("a configuration too large for the record is answered with %v", err)
	}
}

// docs/contract.md: "rebuild: {memory, cores, keep}": what is stated must leave both
// generations what they need; what is not stated always fits.
func TestRebuildMemory(t *testing.T) {
	for _, test := range []struct {
		text                  string
		alone, beside, second Size
	}{
		{"", 2*GiB - 30*MiB, 1536*MiB - 30*MiB, 512*MiB - 30*MiB},
		{"memory: {budget: 34MiB}", 4 * MiB, 4 * MiB, 4 * MiB},
		{"memory: {budget: 68MiB}", 38 * MiB, 4 * MiB, 4 * MiB},
		{"memory: {budget: 100MiB}", 70 * MiB, 36 * MiB, 4 * MiB},
		{"{memory: {budget: 100MiB}, rebuild: {memory: 66MiB}}", 70 * MiB, 4 * MiB, 36 * MiB},
		{"{memory: {budget: 200MiB}, badger: {block_cache: 20MiB}}", 150 * MiB, 96 * MiB, 4 * MiB},
	} {
		c, err := Parse("test.yaml", []byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if a, b, s := Size(c.ShardBytes()), Size(c.ShardBytesBeside()), Size(c.ShardBytesSecond()); a != test.alone || b != test.beside || s != test.second {
			t.Errorf("%s leaves %s alone, %s beside another and %s to that, want %s, %s and %s", test.text, a, b, s, test.alone, test.beside, test.second)
		}
		const small = "and two generations need 68MiB: for each, 30MiB for its Badger and 4MiB for its state"
		if err := c.TwoFit(); (err != nil) != (c.Memory.Budget < 68*MiB) || err != nil && !strings.Contains(err.Error(), small) {
			t.Errorf("of %s it is said that two generations: %v", test.text, err)
		}
	}
	for text, want := range map[string]string{
		"memory: {budget: 100MiB}\nrebuild:\n  memory: 33MiB": "test.yaml:3: rebuild.memory: rebuild.memory is 33MiB; allowed: 34MiB or more",
		"memory: {budget: 100MiB}\nrebuild: {memory: 67MiB}":  "rebuild.memory is 67MiB of a memory.budget of 100MiB, and the generation that serves needs 34MiB; allowed: up to 66MiB",
		"rebuild: {keep: 31d}":                                "rebuild.keep: 31d is out of bounds; allowed: 0 to 30d",
		"rebuild: {memory: 60MiB}\nbadger: {memtable: 16MiB}": "allowed: 64MiB or more",
	} {
		_, err := Parse("test.yaml", []byte(text))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is answered with %v, want one fault: %s", text, err, want)
		}
	}
}
