package tidemark_test

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var lower = flag.Bool("lower", false, "lower the numbers of testdata/due.txt to what is there; raises none")

// ratchet holds a rule: over says where it is not met, and by what number. What
// testdata/due.txt lists may be that high and no higher.
func ratchet(t *testing.T, rule, why string, over map[string]int) {
	t.Helper()
	due := readDue(t)
	left := maps.Clone(due[rule])
	for _, where := range slices.Sorted(maps.Keys(over)) {
		n, bound := over[where], due[rule][where]
		delete(left, where)
		switch {
		case n > bound:
			t.Errorf("%s\t%s\t%d: due is %d. %s", rule, where, n, bound, why)
		case *lower:
			due[rule][where] = n
		case n < bound-bound/10: // a number of two digits may fall a little without a change of the table
			t.Errorf("%s\t%s\t%d: due is %d; lower it (go test . -lower)", rule, where, n, bound)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(left)) {
		if *lower {
			delete(due[rule], where)
		} else {
			t.Errorf("%s\t%s is met: delete its line of testdata/due.txt (go test . -lower)", rule, where)
		}
	}
	if *lower {
		writeDue(t, due)
	}
}

const dueFile = "testdata/due.txt"

func readDue(t *testing.T) map[string]map[string]int {
	t.Helper()
	due := map[string]map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(read(t, dueFile)))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			t.Fatalf("%s: %q", dueFile, lines.Text())
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil || n <= 0 {
			t.Fatalf("%s: %q: %v", dueFile, lines.Text(), err)
		}
		if due[fields[0]] == nil {
			due[fields[0]] = map[string]int{}
		}
		due[fields[0]][fields[1]] = n
	}
	return due
}

func writeDue(t *testing.T, due map[string]map[string]int) {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(read(t, dueFile)) {
		if strings.HasPrefix(line, "#") {
			text.WriteString(line)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(due)) {
		for _, where := range slices.Sorted(maps.Keys(due[rule])) {
			fmt.Fprintf(&text, "%s\t%s\t%d\n", rule, where, due[rule][where])
		}
	}
	if err := os.WriteFile(dueFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A line of the table is of a rule that there is.
func TestDueIsOfRules(t *testing.T) {
	text := ""
	for _, s := range house(t) {
		if s.dir == "." && s.test {
			text += read(t, s.path)
		}
	}
	for rule := range readDue(t) {
		if !strings.Contains(text, `ratchet(t, "`+rule+`", `) {
			t.Errorf("%s has lines of the rule %q, which there is not", dueFile, rule)
		}
	}
}
