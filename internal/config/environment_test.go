package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each key has one environment name, and is set by it.
func TestEveryKeyHasAVariable(t *testing.T) {
	seen := make(map[string]string)
	leaves(reflect.ValueOf(Default()).Elem(), "", func(key string, field reflect.Value) {
		name := VariableOf(key)
		for _, variable := range []string{name, name + fileSuffix} {
			if other, twice := seen[variable]; twice {
				t.Errorf("%s is the variable of %s and of %s", variable, other, key)
			}
			if otherVariables.MatchString(variable) {
				t.Errorf("%s, of %s, passes for a variable of others", variable, key)
			}
			seen[variable] = key
		}
		c, d := new(Config), newDecoder("f")
		d.environment = newEnvironment([]string{name + "=" + stated(t, key, field.Interface())})
		d.variables(c)
		if len(d.faults) > 0 {
			t.Fatal(d.faults)
		}
		leaves(reflect.ValueOf(c).Elem(), "", func(other string, field reflect.Value) {
			if !field.IsZero() != (other == key) {
				t.Errorf("%s: %s is %v", name, other, field)
			}
		})
		if !slices.Equal(d.environment.used, []string{name}) {
			t.Errorf("%s: used are %v", name, d.environment.used)
		}
	})
}

// stated is a variable's value of a key's type that is not the type's zero.
func stated(t *testing.T, key string, value any) string {
	switch value.(type) {
	case []Counter:
		return "{page: {view: {bits: 3}}}"
	case []EventRules:
		return "{view: [{add: page.view, key: page}]}"
	case []Channel:
		return "{games: {kind: dot}}"
	case []string:
		return "[a, b]"
	case string:
		return "text: ${X} # all of it"
	case int, int64:
		return "3"
	case bool:
		return "true"
	case Size:
		return "3KiB"
	case time.Duration:
		return "3s"
	}
	t.Fatalf("%s has a type that this test does not know: %T", key, value)
	return ""
}

func TestExpansion(t *testing.T) {
	environ := []string{"HOSTNAME=pod-0", "SHARDS=8", "LAG=7s", "OPEN=false", "YAML=a: b\nc: [d]", "EMPTY=", "TIDEMARK_FEED_RETENTION=9d", "TIDEMARK_ROLES=[hold, route]"}
	text := `
node: ${HOSTNAME}
zone: ${ZONE:-rack}.${EMPTY:-1}
shards: ${SHARDS}
ready: {lag: "${LAG}"}
channels_open: ${OPEN}
data_dir: ${YAML}$${HOSTNAME}$5
backup: {to: "${EMPTY}"}
feed: {retention: 1d}
`
	c, used, err := parseIn("f", []byte(text), newEnvironment(environ))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ got, want any }{
		{c.Node, "pod-0"},
		{c.Zone, "rack.1"},
		{c.Shards, 8},
		{c.Ready.Lag, 7 * time.Second},
		{c.ChannelsOpen, false},
		{c.DataDir, "a: b\nc: [d]${HOSTNAME}$5"},
		{c.Backup.To, ""},
		{c.Feed.Retention, 9 * day},
		{c.Roles, []string{"hold", "route"}},
		{used, []string{"EMPTY", "HOSTNAME", "LAG", "OPEN", "SHARDS", "TIDEMARK_FEED_RETENTION", "TIDEMARK_ROLES", "YAML"}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("got %#v, want %#v", test.got, test.want)
		}
	}
}

// A section of the environment replaces that of the file, also where both name a column.
func TestVariableReplacesSection(t *testing.T) {
	text := "counters: {page: {view: {suffix: hits}}}\nrules: {view: [{add: page.view, key: page, if: first}]}"
	c, _, err := parseIn("f", []byte(text), newEnvironment([]string{
		"TIDEMARK_COUNTERS={page: {view: {bits: 3}}}", "TIDEMARK_RULES={view: [{add: page.view, key: page}]}",
	}))
	if err != nil || len(c.Counters) != 1 || c.Counters[0].Columns[0].Suffix != "" || c.EventRules[0].Rules[0].If != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestEnvironmentFaults(t *testing.T) {
	dir := t.TempDir()
	secret, large := filepath.Join(dir, "secret"), filepath.Join(dir, "large")
	for path, text := range map[string]string{secret: "pass word\n", large: strings.Repeat("a", int(secretBytesMax)+1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		text    string
		environ []string
		want    string
	}{
		{"\nnode: ${NODE_NAME}", nil, "f:2: node: the environment variable NODE_NAME is not set; set it, or state a default"},
		{"node: ${A", nil, `f:1: node: "${A" is not understood`},
		{"shards: ${A}", []string{"A=x"}, `f:1: shards: "x" is not a whole number`},
		{"counters: ${A}", []string{"A={}"}, "not a group of keys"},
		{"${A}: 3", []string{"A=shards"}, "f:1: ${A}: unknown key"},
		{"node: ${A}${A}", []string{"A=" + strings.Repeat("a", expandedBytesMax/2+1)}, "f:1: node: the environment variables of the file expand to more than 1MiB"},
		{"", []string{"TIDEMARK_SHARD=3"}, `TIDEMARK_SHARD:1: unknown variable; did you mean "TIDEMARK_SHARDS"?`},
		{"", []string{"TIDEMARK_SHARDS=0"}, "TIDEMARK_SHARDS:1: shards: 0 is out of bounds"},
		{"", []string{"TIDEMARK_ROLES=hold"}, `TIDEMARK_ROLES:1: roles: is "hold", not a list`},
		{"", []string{"TIDEMARK_ROLES=["}, "TIDEMARK_ROLES:1: not YAML"},
		{"", []string{"TIDEMARK_ROLES="}, "TIDEMARK_ROLES:1: roles: is empty; want YAML"},
		{"", []string{"TIDEMARK_CHANNELS={Games: {}}"}, `TIDEMARK_CHANNELS:1: channels.Games: "Games" has 'G' at character 1`},
		{"", []string{"TIDEMARK_NATS_CREDENTIALS=k"}, "TIDEMARK_NATS_CREDENTIALS:1: nats.credentials: is for an outside server"},
		{"# one\nnats: {listen: '127.0.0.1:9'}", []string{"TIDEMARK_HTTP_LISTEN=127.0.0.1:9"}, "TIDEMARK_HTTP_LISTEN:1: http.listen: nats.listen and http.listen are both on port 9"},
		{"", []string{"TIDEMARK_NODE=a", "TIDEMARK_NODE_FILE=" + secret}, "TIDEMARK_NODE_FILE:1: node: TIDEMARK_NODE and TIDEMARK_NODE_FILE are both set"},
		{"", []string{"TIDEMARK_NODE_FILE=" + dir}, "is not a regular file"},
		{"", []string{"TIDEMARK_NODE_FILE=" + large}, "is larger than 64KiB"},
	} {
		_, _, err := parseIn("f", []byte(test.text), newEnvironment(test.environ))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q with %.80q: %v\nwant one fault with %q", test.text, test.environ, err, test.want)
		}
	}
}

func TestSecretFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte("nats://me:secret@nats:4222\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, used, err := Load("", []string{"TIDEMARK_NATS_URL_FILE=" + path})
	if err != nil || c.NATS.URL != "nats://me:secret@nats:4222" || !slices.Equal(used, []string{"TIDEMARK_NATS_URL_FILE"}) {
		t.Errorf("%v, %v, %v", c, used, err)
	}
}

// The variables that Kubernetes sets for services, those of the accounts file, and
// the tests' own are not refused.
func TestVariablesOfOthers(t *testing.T) {
	var environ []string
	for _, name := range []string{
		"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_4222_TCP", "PORT_4222_TCP_ADDR", "0_SERVICE_HOST",
		"NATS_PORT_4222_UDP_PROTO", "NODE_PASSWORD", "TEST_VICTIM",
	} {
		environ = append(environ, variablePrefix+name+"=x")
	}
	if _, used, err := Load("", environ); err != nil || len(used) > 0 {
		t.Errorf("%v, %v", used, err)
	}
}
