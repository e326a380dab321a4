package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// docs/contract.md: "Of `unread USER` each number of the badge is told": with a user,
// those whom they follow and the channels on two nodes, and by each of them. "Their sum
// is the number, or the page says what is below the base."
func TestExplainBadge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Ready(s.Start(s.Config("a", "route hold answer")))
	s.Ready(s.Start(s.Config("b", "hold answer")))
	s.Until("shards on both", func() error {
		if reply := s.Ask("shards", "{}"); strings.Count(reply, `"ready"`) != 4 || !strings.Contains(reply, `"a"`) ||
			!strings.Contains(reply, `"b"`) || strings.Contains(reply, "loading") {
			return fmt.Errorf("%s", reply)
		}
		return nil
	})
	events := []string{
		`{"type":"notice","channel":"system","notice":1}`, // 1024: before the first read
		`{"type":"post","actor":1,"post":10}`,             // before the mark
		`{"type":"read","actor":7,"what":["all"]}`,        // 1026
	}
	for followee := 1; followee <= 12; followee++ {
		events = append(events, fmt.Sprintf(`{"type":"follow","actor":7,"target":%d}`, followee)) // 1027 to 1038
	}
	events = append(events,
		`{"type":"post","actor":1,"post":11}`,                           // 1039
		`{"type":"post","actor":2,"post":12}`,                           // 1040: taken back
		`{"type":"post","actor":2,"post":12,"delete":true}`,             // 1041
		`{"type":"post","actor":12,"post":13}`,                          // 1042
		`{"type":"post","actor":5,"post":14}`,                           // 1043: followed no more
		`{"type":"follow","actor":7,"target":5,"delete":true}`,          // 1044
		`{"type":"post","actor":99,"post":15}`,                          // 1045: not followed
		`{"type":"notice","channel":"system","notice":2}`,               // 1046
		`{"type":"notice","channel":"system","notice":3}`,               // 1047: withdrawn
		`{"type":"notice","channel":"system","notice":3,"delete":true}`, // 1048
		`{"type":"post","actor":3,"post":16,"repost_of":1,"author":7}`,  // 1049: of theirs, too
	)
	at := s.Publish(events...)
	for _, c := range []struct{ number, value, since, events string }{
		{
			"unread", "5 map[channel:system:1 comment:0 feed:3 follower:0 like:0 mention:0 message:0 repost:1]", "map[channel:system:1026 feed:1026]",
			"1049 +2 map[feed:+1 repost:+1], 1046 +1 map[channel:system:+1], 1042 +1 map[feed:+1], 1039 +1 map[feed:+1], 1026 +0 map[channel:system:=0 comment:+0 feed:=0 follower:+0 like:+0 mention:+0 message:+0 repost:+0]",
		},
		{"unread.channel:system", "1 map[]", "map[channel:system:1026]", "1046 +1 map[], 1026 =0 map[]"},
	} {
		for range 4 { // by either node
			var all []string
			for before := "0"; before != ""; {
				reply := s.Ask("explain", fmt.Sprintf(`{"number":%q,"id":7,"limit":2,"before":%q,"min_position":%q,"timeout_ms":9000}`, c.number, before, at))
				var page struct {
					Value   int64
					Numbers map[string]int64
					Since   map[string]string
					Notes   []string
					Next    string
					Events  []struct {
						Position, Change string
						Changes          map[string]string
						Unsure           bool
					}
				}
				if err := json.Unmarshal([]byte(reply), &page); err != nil {
					t.Fatalf("%s: %s", c.number, reply)
				}
				if got := fmt.Sprint(page.Value, " ", page.Numbers); got != c.value || fmt.Sprint(page.Since) != c.since ||
					page.Notes != nil {
					t.Fatalf("%s is %s, want %s, since %v: %s", c.number, got, c.value, c.since, reply)
				}
				for _, e := range page.Events {
					all = append(all, fmt.Sprint(e.Position, " ", e.Change, " ", e.Changes))
				}
				before = page.Next
			}
			if got := strings.Join(all, ", "); got != c.events {
				t.Errorf("%s: %s\nwant %s", c.number, got, c.events)
			}
		}
	}
	var figures map[string]float64
	if err := json.Unmarshal([]byte(s.Ask("stats", "{}")), &figures); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"searches_total", "messages_total", `parts_total{result="no filter"}`, "filters", "base_position", "base_total"} {
		if _, is := figures["tidemark_explain_"+name]; !is {
			t.Errorf("there is no figure %s: %v", name, reflect.ValueOf(figures).Len())
		}
	}
}
