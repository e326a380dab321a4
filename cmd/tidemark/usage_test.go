package main

import (
	"encoding/json"
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
		"get post -1":                           `"-1" is not an id: ids are whole numbers from 1`,
		"deadletters show -1":                   `got "-1"`,
		"get 0.cntcm":                           `"0" is not an id`,
		"get 42.":                               "42.cntcm",
		"get 42.a.b.c":                          "42.post.comment",
		"get 42.cntcm 43":                       "42.cntcm",
		"get 42.cntcm --columns x":              "--columns",
		"get 42.cntcm --timeout 0s":             "--timeout",
		"get 18446744073709551616.c":            "is not an id",
		"incr":                                  "count",
		"incr 42":                               "42.cntcm",
		"incr 42.cntcm x":                       `"x" is not a whole number`,
		"incr 42.cntcm 1 2":                     "2",
		"incr -5 42.cntcm":                      `"-5" is not a count`,
		"incr 42.cntcm --by -5":                 "--by",
		"set 42.cntcm":                          "<n>",
		"set 42.cntcm 1e3":                      "is not a whole number",
		"set 42.cntcm 9999999999999999999999":   "is not a whole number",
		"del post":                              "<id>",
		"import":                                "<file>",
		"import - --pack 0":                     "1 to 1024",
		"deadletters resend":                    "give their SEQ",
		"deadletters resend 1 --reason id":      "give one of them",
		"deadletters resend 1 2 --data x":       "of one SEQ",
		"deadletters resend 1 --type a.b":       "not a type",
		"import - --format xml":                 "there are: ndjson, csv",
		"import - --from-redis redis://x":       "give one of them",
		"import --from-redis redis://x":         "--pattern",
		"import - --pattern x":                  "--from-redis",
		"repair":                                "--replay",
		"verify --all --sample 1/2":             "--sample",
		"events trim --keep 1m":                 "--keep 1m is less than 2m: a message published twice",
		"explain post.like 1 --before 0":        "--before 0 is not a position",
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
		"slowlog --limit 0":                     "--limit",
		"top --interval 1ms":                    "--interval 1ms is less than 100ms",
		"publish":                               "<type>",
		"publish pack":                          "tidemark import",
		"publish a.b x=1":                       "not a type",
		"publish like actor":                    "NAME=VALUE",
		"publish like =1":                       "NAME=VALUE",
		"publish like actor=1 actor=2":          "actor is given twice",
		"publish like type=like":                "type is named already",
		"publish like x={":                      "x: { is not JSON",
		"publish read seen=comment":             "COLUMN=N",
		"followers 7 --after x":                 "--after",
		"get 42.cntcm --member 7":               "--member goes with COUNTER ID…",
		"members":                               "<column>",
		"members post.like 42 --limit 0":        "1 to 1000000",
		"members post.like 42 --after 7,":       "--after 7, is neither an id nor a pair",
		"page 42 --viewer x":                    "--viewer",
		"deadletters --limit 0":                 "1 to 1000",
		"deadletters --reason x":                "json, type",
		"deadletters show":                      "<seq>",
		"deadletters 5":                         "5",
		"healthcheck --url x --config y":        "--url and --config",
		"healthcheck --url x --ready":           "--ready",
		"healthcheck --url localhost:1":         "http://HOST:PORT",
		"healthcheck --url http:///healthz":     "http://HOST:PORT",
		"unread 7 --channels=":                  "name is empty",
		"help nope":                             "nope",
		"hlep":                                  `did you mean "help"`,
		"dedletters":                            `did you mean "deadletters"`,
		"slowlog now":                           "now",
		"nodes drain":                           "<node>",
		"nodes drain a.b":                       "a.b",
		"nodes drain a b":                       "b",
		"degrade reads":                         `"reads" is no step`,
		"degrade reads=some":                    "all, memory or off",
		"degrade writes=off":                    "on or refuse",
		"degrade reads=off reads=all":           "reads is given twice",
		"degrade read=off":                      `"read=off" is no step`,
		"shards 5":                              "5",
		"explain post.like":                     "id",
		"explain post.like 7 --limit 1001":      "--limit 1001",
		"explain post.like 7 --before x":        "--before x",
		"stats --creds nowhere.creds":           "nowhere.creds",
		"stats --tls-cert /dev/null":            "--tls-cert and --tls-key go together",
	} {
		tidemark(t, strings.Fields(args)...).fails(t, 2, why)
	}
	if r := tidemark(t); r.code != 2 || r.out != "" || !strings.Contains(r.err, "Usage: tidemark <command>") {
		t.Errorf("no command: %+v", r)
	}
}

// What a process does that commands in this one do not: it ends, with a code.
func TestProgramEnds(t *testing.T) {
	if r := asProcess(t, nil, "--help"); r.code != 0 || r.err != "" || !strings.Contains(r.out, "config check") {
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
