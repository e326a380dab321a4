package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The alerts read counters as counters: by what was added lately, for a counter never falls. That
// they name figures that there are is held by internal/node.
func TestAlerts(t *testing.T) {
	n := shared(t)
	for _, args := range []string{"set 1300.cntrn 9223372036854775807", "incr 1300.cntrn", "set 1300.cntrn 1"} {
		n.good(strings.Fields(args)...)
	}
	_, page := n.page("/metrics")
	kinds := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (tidemark_\w+) (\w+)$`).FindAllStringSubmatch(page, -1) {
		kinds[found[1]] = found[2]
	}
	for name, kind := range kinds { // the cell is not at its end any more
		if strings.Contains(name, "saturated") && (kind != "counter" || !strings.HasSuffix(name, "_total")) {
			t.Errorf("%s is a %s and does not fall", name, kind)
		}
	}
	if !regexp.MustCompile(`\ntidemark_column_saturated_total\{column="repost",counter="post"\} [1-9]`).MatchString(page) {
		t.Error("nothing says that a cell was at its end")
	}

	rules, err := os.ReadFile("../../deploy/tidemark.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`((?:rate|increase)\()?(tidemark_\w+)`).FindAllStringSubmatch(string(rules), -1)
	if len(named) < 10 {
		t.Fatalf("the rules name %d figures", len(named))
	}
	for _, found := range named {
		if lately, kind := found[1] != "", kinds[found[2]]; lately != (kind == "counter") {
			t.Errorf("an alert reads %s%s, which is a %s", found[1], found[2], kind)
		}
	}
}
