package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/contract.md: "exit codes: 0 good, 1 failed, 2 wrong usage"
func TestWrongUsage(t *testing.T) {
	for args, why := range map[string]string{
		"nope":                                  "nope",
		"get":                                   "what",
		"get post":                              "which ids",
		"get 42":                                "which counter",
		"get post 42 --colums like":             "--columns",
		"get post x":                            `"x" is not an id`,
		"get post 0":                            `"0" is not an id`,
		"get post -1":                           `"-1" is not an id: ids are whole numbers from 1`,
		"get -1.cntcm":                          `"-1" is not an id: ids are whole numbers from 1`,
		"unread -1":                             `"-1" is not an id: ids are whole numbers from 1`,
		"feed -1":                               `"-1" is not an id: ids are whole numbers from 1`,
		"following -1":                          `"-1" is not an id: ids are whole numbers from 1`,
		"explain post.like -1":                  `"-1" is not an id: ids are whole numbers from 1`,
		"recount post -1":                       `"-1" is not an id: ids are whole numbers from 1`,
		"read -1 feed":                          `"-1" is not an id: ids are whole numbers from 1`,
		"del post -1":                           `"-1" is not an id: ids are whole numbers from 1`,
		"deadletters show -1":                   `got "-1"`,
		"deadletters resend -1":                 `"-1"`,
		"get 0.cntcm":                           `"0" is not an id`,
		"get x.cntcm":                           `"x" is not an id`,
		"get 42.":                               "42.cntcm",
		"get 42.a.b.c":                          "42.post.comment",
		"get 42.cntcm 43":                       "42.cntcm",
		"get 42.cntcm --columns x":              "--columns",
		"get 42.cntcm --timeout 0s":             "--timeout",
		"get 42.cntcm --timeout -5":             "--timeout",
		"get 18446744073709551616.c":            "is not an id",
		"incr":                                  "count",
		"incr 42":                               "42.cntcm",
		"incr 42.cntcm x":                       `"x" is not a whole number`,
		"incr 42.cntcm -1.5":                    `"-1.5" is not a whole number`,
		"incr 42.cntcm 1 2":                     "2",
		"incr -5 42.cntcm":                      `"-5" is not a count`,
		"incr 42.cntcm --by -5":                 "--by",
		"set 42.cntcm":                          "<n>",
		"set 42.cntcm 1e3":                      "is not a whole number",
		"set 0.cntcm 1":                         `"0" is not an id`,
		"set 42.cntcm 9999999999999999999999":   "is not a whole number",
		"del post":                              "<id>",
		"del post x":                            `"x" is not an id`,
		"import":                                "<file>",
		"import - --pack 0":                     "1 to 1024",
		"import - --pack 1025":                  "1 to 1024",
		"deadletters resend":                    "give their SEQ",
		"deadletters resend x":                  "<seq>",
		"deadletters resend 1 --reason id":      "give one of them",
		"deadletters resend 1 2 --data x":       "of one SEQ",
		"deadletters resend 1 --type a.b":       "not a type",
		"import - --format xml":                 "there are: ndjson, csv",
		"import - --from-redis redis://x":       "give one of them",
		"import --from-redis redis://x":         "--pattern",
		"import - --pattern x":                  "--from-redis",
		"repair":                                "--replay",
		"verify --all --sample 1/2":             "--sample",
		"verify --sample=":                      "--sample",
		"events trim --keep 1m":                 "--keep 1m is less than 2m: a message published twice",
		"explain post.like 1 --before 0":        "--before 0 is not a position",
		"backups nats:a.b":                      `"a.b" is no object store`,
		"events trim --keep 7d --from nats:a.b": `"a.b" is no object store`,
		"restore nats: --data-dir x":            `"" is no object store`,
		"rebuild now":                           "now",
		"rebuild --config nowhere.yaml":         "nowhere.yaml",
		"rebuild --status --abort":              "--status and --abort are given; give one of them",
		"rebuild --back --config x":             "--back takes no --config",
		"rebuild --status --accept":             "--status takes no --accept",
		"rebuild --abort --wait":                "--abort takes no --wait",
		"repair --replay --adopt":               "--replay",
		"config":                                "adopt",
		"config check a --config b":             "two files",
		"run --config nowhere.yaml":             "nowhere.yaml",
		"config check nowhere.yaml":             "nowhere.yaml",
		"slowlog --limit 0":                     "--limit",
		"publish":                               "<type>",
		"publish pack":                          "tidemark import",
		"publish a.b x=1":                       "not a type",
		"publish like actor":                    "NAME=VALUE",
		"publish like =1":                       "NAME=VALUE",
		"publish like actor=1 actor=2":          "actor is given twice",
		"publish like type=like":                "type is named already",
		"publish like x={":                      "x: { is not JSON",
		"publish read seen=comment":             "COLUMN=N",
		"following":                             "<user>",
		"following 0":                           "is not an id",
		"followers 7 --limit 0":                 "1 to 1000000",
		"followers 7 --after x":                 "--after",
		"get 42.cntcm --member 7":               "--member goes with COUNTER ID…",
		"members":                               "<column>",
		"members post.like":                     "<id>",
		"members post.like 0":                   "is not an id",
		"members post.like 42 --limit 0":        "1 to 1000000",
		"members post.like 42 --after 7,":       "--after 7, is neither an id nor a pair",
		"members post.like 42 --after 0":        "--after 0 is neither",
		"page":                                  "<id>",
		"page 0":                                "is not an id",
		"page 42 --viewer x":                    "--viewer",
		"deadletters --limit 0":                 "1 to 1000",
		"deadletters --reason x":                "json, type",
		"deadletters show":                      "<seq>",
		"deadletters show x":                    "<seq>",
		"deadletters 5":                         "5",
		"healthcheck --url x --config y":        "--url and --config",
		"healthcheck --url x --ready":           "--ready",
		"healthcheck --url localhost:1":         "http://HOST:PORT",
		"healthcheck --url http:///healthz":     "http://HOST:PORT",
		"unread 7 --channels=":                  "name is empty",
		"unread 7 --channels system,":           "name is empty",
		"healthcheck --timeout 0s":              "--timeout",
		"healthcheck --config nowhere.yaml":     "nowhere.yaml",
		"help nope":                             "nope",
		"hlep":                                  `did you mean "help"`,
		"dedletters":                            `did you mean "deadletters"`,
		"folowers 7":                            `did you mean "followers"`,
		"publsh like":                           `did you mean "publish"`,
		"slowlog now":                           "now",
		"nodes now":                             "now",
		"nodes list now":                        "now",
		"nodes drain":                           "<node>",
		"nodes drain a.b":                       "a.b",
		"nodes drain a b":                       "b",
		"nodes undrain":                         "<node>",
		"nodes forget --timeout 0s a":           "--timeout",
		"degrade reads":                         `"reads" is no step`,
		"degrade reads=some":                    "all, memory or off",
		"degrade writes=off":                    "on or refuse",
		"degrade reads=off reads=all":           "reads is given twice",
		"degrade read=off":                      `"read=off" is no step`,
		"nods":                                  `did you mean "nodes"`,
		"shards 5":                              "5",
		"explain post.like":                     "id",
		"explain post.like 0":                   "is not an id",
		"explain post.like 7 --limit 1001":      "--limit 1001",
		"explain post.like 7 --before x":        "--before x",
		"shards --timeout 0s":                   "--timeout",
		"stats --creds nowhere.creds":           "nowhere.creds",
		"stats --tls-cert /dev/null":            "--tls-cert and --tls-key go together",
	} {
		tidemark(t, strings.Fields(args)...).fails(t, 2, why)
	}
	if r := tidemark(t); r.code != 2 || r.out != "" || !strings.Contains(r.err, "Usage: tidemark <command>") {
		t.Errorf("no command: %+v", r)
	}
}

func TestHelp(t *testing.T) {
	if r := tidemark(t, "--help"); r.code != 0 || r.err != "" || !strings.Contains(r.out, "config check") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{
		"run", "import", "get", "incr", "set", "del", "stats", "slowlog", "config check", "repair", "version",
		"publish", "deadletters", "deadletters list", "deadletters show", "healthcheck", "following", "followers", "members", "page", "unread", "read", "feed", "explain", "rebuild",
		"nodes", "nodes list", "nodes drain", "nodes undrain", "nodes forget", "shards", "degrade",
	} {
		r := tidemark(t, append(strings.Fields(name), "--help")...)
		if r.code != 0 || r.err != "" || !strings.Contains(r.out, "EXAMPLE\n") || !strings.Contains(r.out, "tidemark "+name) {
			t.Errorf("%s: %+v", name, r)
		}
		// "`help [COMMAND]`"
		if again := tidemark(t, append([]string{"help"}, strings.Fields(name)...)...); again != r {
			t.Errorf("help %s: %+v", name, again)
		}
	}
	if short, long := tidemark(t, "help"), tidemark(t, "--help"); short != long {
		t.Errorf("%+v, %+v", short, long)
	}
}

// What a process does that commands in this one do not: it ends, with a code.
func TestProgramEnds(t *testing.T) {
	if r := asProcess(t, nil, "--help"); r.code != 0 || r.err != "" || !strings.Contains(r.out, "config check") {
		t.Errorf("%+v", r)
	}
	if r := asProcess(t, nil); r.code != 2 || r.out != "" || !strings.Contains(r.err, "config check") {
		t.Errorf("%+v", r)
	}
	asProcess(t, nil, "nope").fails(t, 2, "nope")
	asProcess(t, []string{"NATS_URL=nats://127.0.0.1:1"}, "get", "42.cntcm", "--timeout", "1s").fails(t, 1, "nats://127.0.0.1:1")
}

func TestVersion(t *testing.T) {
	if r := tidemark(t, "version"); r.code != 0 || !strings.HasPrefix(r.out, "tidemark ") || !strings.Contains(r.out, "(go1.") {
		t.Errorf("%+v", r)
	}
	if short, long := tidemark(t, "--version"), tidemark(t, "version"); short != long {
		t.Errorf("%+v, %+v", short, long)
	}
	var b build
	if r := tidemark(t, "version", "--json"); r.code != 0 || json.Unmarshal([]byte(r.out), &b) != nil || b.Version == "" || b.Go == "" {
		t.Errorf("%+v", r)
	}
}

// docs/contract.md: "A config with a mistake is refused at start, all mistakes listed
// with file and line."
func TestConfigMistakes(t *testing.T) {
	p := newPlace(t)
	p.configure(t, "shards: 0\nwindow: {}\nrules:\n  like: [{add: pots.like, key: post}]\n")
	for _, args := range [][]string{
		{"run", "--config", p.config},
		{"config", "check", "--config", p.config},
		{"config", "check", p.config},
	} {
		r := tidemark(t, args...)
		lines := strings.Split(strings.TrimSpace(r.err), "\n")
		if r.code != 2 || r.out != "" || len(lines) != 4 {
			t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
		for i, start := range []string{p.config + ":5: shards: ", p.config + ":6: window: ", p.config + ":8: rules.like", "tidemark: " + p.config + ": 3 mistakes"} {
			if !strings.HasPrefix(lines[i], start) {
				t.Errorf("%q does not begin with %q", lines[i], start)
			}
		}
	}
	absent(t, p.data)
}

func TestConfigCheck(t *testing.T) {
	p := newPlace(t)
	r := tidemark(t, "config", "check", "--config", p.config)
	if r.code != 0 || r.err != "" || !strings.HasPrefix(r.out, p.config+": good\n") || !strings.Contains(r.out, "post (3), user (9), unread (6)") {
		t.Errorf("%+v", r)
	}
	if r := tidemark(t, "config", "check"); r.code != 0 || !strings.HasPrefix(r.out, "built-in defaults: good\n") {
		t.Errorf("%+v", r)
	}
	// The repository's own file is the built-in one.
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := tidemark(t, "config", "check", file); r.code != 0 || !strings.HasPrefix(r.out, file+": good\n") {
		t.Errorf("%+v", r)
	}
}

// docs/contract.md: "`get COUNTER ID… [--columns a,b]`", "`--json` on every query
// command": wherever they stand.
func TestArguments(t *testing.T) {
	parser := newParser(terminal{})
	for in, want := range map[string]string{
		"get post 42":                              "get post 42",
		"get post --json 42":                       "get --json post 42",
		"get post 42 --columns like 43":            "get --columns like post 42 43",
		"get post 42 --columns=like 43 --json":     "get --columns=like --json post 42 43",
		"unread 7 --nats u 8":                      "unread --nats u 7 8",
		"read 7 comment --as-of 5 --seen a=1 like": "read --as-of 5 --seen a=1 7 comment like",
		"get post --json -- 42":                    "get --json post -- 42",
		"import - --wait":                          "import --wait -",
		"config check a --config b":                "config check --config b a",
		"--config b config check":                  "config check --config b",
		"config":                                   "config",
		"help":                                     "--help",
		"help get":                                 "get --help",
		"help config check --json":                 "config check --help",
		"--json deadletters show 7":                "deadletters show --json 7",
		"nodes --json":                             "nodes --json",
		"nodes drain a --json":                     "nodes drain --json a",
		"degrade reads=off --nats u writes=on":     "degrade --nats u reads=off writes=on",
		"--nats u nodes list --json":               "nodes list --nats u --json",
		"deadletters --limit 5 --json":             "deadletters --limit 5 --json",
		"--nats u get post 42":                     "get --nats u post 42",
		"--json --nats=u --timeout 1s get":         "get --json --nats=u --timeout 1s",
		"--help":                                   "--help",
		"--nats":                                   "--nats",
		"--nats u":                                 "--nats u",
		"publish like a=1 --id x --wait b=-2":      "publish --id x --wait like a=1 b=-2",
		"get post 42 --nats":                       "get post 42 --nats",
		"incr 4.c -5 --json":                       "incr --json 4.c \u22125",
		"--json set 4.c -5":                        "set --json 4.c \u22125",
		"set 4.c -- -5":                            "set 4.c -- -5",
		"get -5":                                   "get \u22125",
		"incr -h":                                  "incr -h",
		"--version":                                "version",
	} {
		if got := strings.Join(arguments(parser, strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
