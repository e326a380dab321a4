package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

// One node serves all of these; ids keep them apart.
func TestCounts(t *testing.T) {
	n := shared(t)

	// docs/contract.md: "`get COUNTER ID…` · `get 42.cntcm` · `incr 42.cntcm [N]` · `set
	// 42.cntcm N` · `del COUNTER ID`": the counter service's own session, as its users know
	// it.
	t.Run("session", func(t *testing.T) {
		n.want("987654", "set", "42.cntcm", "987654")
		n.want("1", "incr", "42.cntrn")
		n.want("987654", "get", "42.cntcm")
		n.want("987655", "incr", "42.cntcm", "1")
		n.want("id  repost  comment  like\n42       1   987655     0", "get", "post", "42")
		n.want("deleted", "del", "post", "42")
		n.want("0", "get", "42.cntcm")
		n.want("1", "incr", "42.cntcm")
	})

	// "`incr 42.cntcm [N]`" with N below zero, as kong would not have it.
	t.Run("negative numbers", func(t *testing.T) {
		n.want("10", "set", "44.cntcm", "10")
		n.want("5", "incr", "44.cntcm", "-5")
		n.want("4", "incr", "44.cntcm", "--", "-1")
		// docs/contract.md: "a sum that is below zero for a while … is remembered, not clamped, inside"
		n.want("0", "set", "44.cntcm", "-3")
		n.want("0", "get", "44.cntcm")
		n.want("-3", "get", "44.cntcm", "--raw")
		n.want("id  comment\n44       -3", "get", "post", "44", "--columns", "comment", "--raw")
		if got := n.good("explain", "post.comment", "44", "--json"); !strings.HasPrefix(got, `{"id":"44","value":-3,`) {
			t.Error(got)
		}
		n.want("0", "incr", "44.cntcm", "2")
		n.want("1", "incr", "44.cntcm", "2")
	})

	t.Run("a column by name and by suffix", func(t *testing.T) {
		n.want("7", "set", "45.post.like", "7")
		n.want("8", "incr", "45.cntan")
		n.want("9", "incr", "45.post.cntan")
		n.want("9", "get", "45.post.like")
		n.want("9\n0\n9", "get", "45.cntan", "45.cntcm", "45.post.like")
		n.want("id  like  comment\n45     9        0\n 9     0        0", "get", "post", "45", "9", "--columns", "like,comment")
		n.want("id  cntan\n45      9", "get", "post", "45", "--columns", "cntan")
	})

	// docs/contract.md: "`--json` on every query command"
	t.Run("json", func(t *testing.T) {
		n.want("3", "set", "46.cntan", "3")
		for args, want := range map[string]string{
			"get post 46 47 --json --columns like": `{"rows":[{"id":"46","like":3},{"id":"47","like":0}]}`,
			"get 47.cntcm 46.cntan --json":         `{"rows":[{"id":"47","cntcm":0},{"id":"46","cntan":3}]}`,
			"--json get 46.post.like":              `{"rows":[{"id":"46","like":3}]}`,
			"set 48.cntrn 2 --json":                `{"counter":"post","id":"48","column":"repost","value":2}`,
			"del post 49 --json":                   `{"counter":"post","id":"49","deleted":true}`,
		} {
			got, want := document(t, n.do(strings.Fields(args)...).out), document(t, want)
			for _, name := range []string{"as_of", "position"} {
				delete(got, name)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", args, got, want)
			}
		}
	})

	t.Run("stats", func(t *testing.T) {
		if out := n.good("stats"); !strings.Contains(out, "\nevents_total ") || strings.Contains(out, "go_goroutines") {
			t.Error(out)
		}
		if out := n.good("stats", "--all"); !strings.HasPrefix(out, "COUNTER  ") || !strings.Contains(out, "\ngo_goroutines ") {
			t.Error(out)
		}
	})

	t.Run("slowlog", func(t *testing.T) {
		n.do("get", "47.cntcm", "46.cntan")
		r := n.do("slowlog", "--limit", "1000")
		if r.code != 0 || r.err != "" || !strings.Contains(r.out, "\nTOTAL  ") && !strings.Contains(r.out, " TOTAL  ") || !strings.Contains(r.out, `{"ids":[`) {
			t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
		}
		log := document(t, n.do("slowlog", "--json").out)
		if log["threshold_us"] != 50_000.0 || log["node"] == "" || len(log["slowest"].([]any)) == 0 {
			t.Errorf("%v", log)
		}
		n.good("slowlog", "--reset")
		if log = document(t, n.do("slowlog", "--json").out); len(log["slowest"].([]any)) != 1 {
			t.Errorf("after the reset: %v", log)
		}
		n.do("slowlog", "--json", "--reset")
		if log = document(t, n.do("slowlog", "--json").out); len(log["slowest"].([]any)) != 1 {
			t.Errorf("after the reset by JSON: %v", log)
		}
	})

	// docs/contract.md: "404 unknown counter or column": exit 1, and what there is instead.
	t.Run("unknown", func(t *testing.T) {
		n.do("get", "pots", "42").fails(t, 1, `counter "pots" is unknown`, "post", "user", "unread")
		n.do("get", "42.nope").fails(t, 1, "nope", "cntcm")
		n.do("get", "post", "42", "--columns", "nope").fails(t, 1, "nope", "repost (cntrn)")
		n.do("incr", "42.like").fails(t, 1, "42.post.like or 42.unread.like")
		n.do("set", "42.post.nope", "1").fails(t, 1, "repost (cntrn)")
		n.do("del", "pots", "42").fails(t, 1, `counter "pots" is unknown`)
		n.do("read", "7", "pokes").fails(t, 1, `"pokes" is not something unread`)
	})

	// docs/contract.md: "exit codes: 0 good, 1 failed, 2 wrong usage", also where only the node sees it
	t.Run("wrong usage", func(t *testing.T) {
		n.do("read", "7", "channel:GAMES").fails(t, 2, "is not a channel's name")
		n.do("unread", "7", "--channels", "BIG").fails(t, 2, "is not a channel's name")
		n.do("unread", "7", "--channels", "BIG", "--json").fails(t, 2, "is not a channel's name")
		n.do("read", "7", "comment", "--seen", "comment=-1").fails(t, 2, "seen.comment: -1 is not a count")
	})

	// docs/contract.md: "`--nats URL` (default `nats://127.0.0.1:4222`, env `NATS_URL`)"
	t.Run("NATS_URL", func(t *testing.T) {
		env := []string{"NATS_URL=" + n.nats, "TIDEMARK_NKEY=" + n.key}
		if r := command(t, env, "", "get", "9.cntcm"); r != (result{out: "0\n"}) {
			t.Errorf("%+v", r)
		}
		r := remote{Timeout: 1}
		if err := r.Validate(); err != nil || r.NATS != "nats://127.0.0.1:4222" {
			t.Errorf("%q, %v", r.NATS, err)
		}
	})
}

func document(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return out
}

// canned answers requests to endpoints with replies, one after the other, and returns what is asked.
func canned(t *testing.T, replies map[string][]string) (url string, asked chan string) {
	t.Helper()
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	asked = make(chan string, 100)
	for endpoint, replies := range replies {
		served := 0
		if _, err := nc.Subscribe("tidemark."+endpoint, func(m *nats.Msg) {
			asked <- string(m.Data)
			_ = m.Respond([]byte(replies[served%len(replies)]))
			served++
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return server.URL(), asked
}

// docs/contract.md: "An answer that is not whole says so": by its exit code too, for
// people and for programs.
func TestNotWhole(t *testing.T) {
	url, _ := canned(t, map[string][]string{ // of a node that has stopped user 7's shard
		"unread": {`{"users":[{"user":"7"}],"as_of":"1023","degraded":true,"missing":["7"]}`},
		"feed":   {`{"posts":[],"as_of":"1023","degraded":true,"missing":["7"]}`},
		"get":    {`{"rows":[{"id":"7"}],"as_of":"1023","degraded":true,"missing":["7"]}`},
	})
	for _, args := range []string{
		"unread 7", "unread 7 --json", "feed 7", "feed 7 --json", "get user 7 --columns post", "get user 7 --columns post --json",
	} {
		r := tidemark(t, append(strings.Fields(args), "--nats", url)...)
		r.fails(t, 1, "the answer is not whole", "cannot be read now: 7")
		if strings.Contains(args, "--json") && document(t, r.out)["degraded"] != true {
			t.Errorf("%s: %s", args, r.out)
		}
	}
}

// Pages of several nodes make one list: the later ones are asked for as much as
// the first has, and the list goes on where one that is not whole ended it.
func TestPagesOfAList(t *testing.T) {
	url, asked := canned(t, map[string][]string{
		"following": {
			`{"users":["8"],"next":"8","as_of":"4095"}`,
			`{"users":["9"],"next":"9","as_of":"5119"}`,
			`{"users":[],"as_of":"5119","degraded":true,"missing":["7"]}`,
		},
		"members": {
			`{"members":[["8","1"]],"next":"8,1","as_of":"4095"}`,
			`{"members":[["9","1"]],"next":"9,1","as_of":"5119"}`,
			`{"members":[],"as_of":"5119","degraded":true,"missing":["42"]}`,
		},
	})
	for args, want := range map[string][]string{
		"following 7": {
			`{"users":["8","9"],"next":"9","as_of":"4095","degraded":true,"missing":["7"]}`,
			`{"user":7,"limit":100,"timeout_ms":5000}`,
			`{"user":7,"limit":99,"after":"8","min_position":"4095","timeout_ms":5000}`,
			`{"user":7,"limit":98,"after":"9","min_position":"4095","timeout_ms":5000}`,
		},
		"members user.liked 42": {
			`{"members":[["8","1"],["9","1"]],"next":"9,1","as_of":"4095","degraded":true,"missing":["42"]}`,
			`{"column":"user.liked","id":42,"limit":100,"timeout_ms":5000}`,
			`{"column":"user.liked","id":42,"limit":99,"after":"8,1","min_position":"4095","timeout_ms":5000}`,
			`{"column":"user.liked","id":42,"limit":98,"after":"9,1","min_position":"4095","timeout_ms":5000}`,
		},
	} {
		r := tidemark(t, append(strings.Fields(args), "--json", "--nats", url)...)
		r.fails(t, 1, "the answer is not whole")
		if r.out != want[0]+"\n" {
			t.Errorf("%s: %s", args, r.out)
		}
		for _, want := range want[1:] {
			if got := <-asked; got != want {
				t.Errorf("asked %s, not %s", got, want)
			}
		}
	}
	if r := tidemark(t, "following", "7", "--nats", url); r.code != 1 || r.out != "8\n9\n" || !strings.HasPrefix(r.err, "more: --after 9\n") {
		t.Errorf("%+v", r)
	}
}

func TestNobodyAnswers(t *testing.T) {
	url := "nats://u:secret@" + freeAddress(t)
	for _, args := range []string{
		"get post 42", "incr 42.cntcm", "stats", "top --once", "slowlog", "publish like actor=1 post=2 author=3",
		"following 7", "deadletters", "degrade", "import check_test.go --force",
	} {
		r := tidemark(t, append(strings.Fields(args), "--nats", url)...)
		r.fails(t, 1, "no tidemark answers at nats://[secret]@127.0.0.1:", "is 'tidemark run' running?")
	}
}
