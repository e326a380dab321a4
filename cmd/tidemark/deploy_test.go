package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The alerts name figures that there are, and read counters as counters: by
// what was added lately, for a counter never falls.
func TestAlerts(t *testing.T) {
	n := newPlace(t).start(t)
	n.want("9223372036854775807", "set", "43.cntrn", "9223372036854775807")
	n.want("9223372036854775807", "incr", "43.cntrn")
	n.want("1", "set", "43.cntrn", "1")
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
	if want := `tidemark_column_saturated_total{column="repost",counter="post"} 2` + "\n"; !strings.Contains(page, want) {
		t.Errorf("no line %s", want)
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
		lately, name := found[1] != "", found[2]
		switch kind := kinds[name]; {
		case kind == "":
			t.Errorf("an alert reads %s, which there is not", name)
		case lately != (kind == "counter"):
			t.Errorf("an alert reads %s%s, which is a %s", found[1], name, kind)
		}
	}
}
