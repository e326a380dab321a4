package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	planHolders  = 8
	planReplicas = 2
	planRows     = 1e12 / 3
	planGets     = 1e6
	planIDs      = 20
	planPolls    = 5e5
	planFollow   = 200
	planEvents   = 150_000
	planBusy     = 32 // cores of a machine
	planWarm     = 0.02
)

// What docs/capacity.md calculates follows from what it says was measured.
func TestCapacityArithmetic(t *testing.T) {
	b, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	number1 := func(text string) float64 {
		v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(text), ",", ""), 64)
		if err != nil {
			t.Fatalf("docs/capacity.md: %v", err)
		}
		return v
	}
	one := func(what string) float64 {
		t.Helper()
		match := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(what) + `[^|]*\| ([0-9.,]+) `).FindStringSubmatch(doc)
		if match == nil {
			t.Fatalf("docs/capacity.md has no line %q", what)
		}
		return number1(match[1])
	}
	shapes := map[string]shape{}
	for _, m := range regexp.MustCompile(`(?m)^\| (get|poll) \| ([^|]+), (?:µs|bytes) \| ([-0-9.]+) \| ([-0-9.]+) \| ([-0-9.]+) \| ([-0-9.]+) \|$`).FindAllStringSubmatch(doc, -1) {
		shapes[m[1]+" "+m[2]] = shape{number1(m[3]), number1(m[4]), number1(m[5]), number1(m[6])}
	}
	if len(shapes) != 10 {
		t.Fatalf("docs/capacity.md has %d kinds of answers: %v", len(shapes), shapes)
	}
	e := events{route: one("event, the router"), read: one("event, each holder"), hold: one("event, the holders"), store: one("event, the NATS server")}
	index := one("row of 3 columns on disk, its index")

	var plan []string
	line := func(what, how, format string, v ...any) {
		plan = append(plan, fmt.Sprintf("| %s | %s | %s |", what, how, fmt.Sprintf(format, v...)))
	}
	requests := func(of string, holders float64) (gets, polls float64) { // cores, or bytes/s times 10^-6
		return shapes["get "+of].at(planIDs, holders) * planGets / 1e6, shapes["poll "+of].at(planFollow, holders) * planPolls / 1e6
	}
	cores := func(what, of string, more float64, how string) float64 {
		gets, polls := requests(of, planHolders)
		sum := gets + polls + more
		line(what, fmt.Sprintf("gets %s + polls %s%s", number(gets), number(polls), how), "%s cores, %d machines", number(sum), int(math.Ceil(sum/planBusy)))
		return sum
	}
	cores("answering nodes", "the answering node", 0, "")
	applied := planEvents / 1e6 * (e.read*planHolders + e.hold*planReplicas)
	cores("holders", "all holders", applied, " + events "+number(applied))
	stored := planEvents / 1e6 * e.store
	nats := cores("NATS servers, each with what it passes once", "the NATS server", stored, " + events "+number(stored))
	line("the router", fmt.Sprintf("150,000/s × %s µs", number(e.route)), "%s cores", number(planEvents/1e6*e.route))
	warm, cold := planReplicas*planRows*planWarm*one("row of 3 columns in memory")/(1<<30), planReplicas*planRows*index/(1<<30)
	line("memory of the holders", fmt.Sprintf("rows %s GiB + indexes and filters %s GiB", number(warm), number(cold)), "%s GiB; %s GiB each, `memory.budget` 192GiB", number(warm+cold), number((warm+cold)/planHolders))
	disk := planReplicas * planRows * one("row of 3 columns on disk") / 1e12
	line("disk of the holders", fmt.Sprintf("2 × 3.33·10^11 rows × %s bytes", number(one("row of 3 columns on disk"))), "%s TB; %s TB each, as much again for merges", number(disk), number(disk/planHolders))
	eventBytes := one("event, in EVENTS")
	line("EVENTS", fmt.Sprintf("150,000/s × %s bytes", number(eventBytes)), "%s TB a day, each of 3 copies", number(planEvents*eventBytes*86400/1e12))
	deltas := planEvents * one("event, in DELTAS") / 1e6
	line("DELTAS, to each holder", fmt.Sprintf("150,000/s × %s bytes", number(one("event, in DELTAS"))), "%s MB/s", number(deltas))
	inGets, inPolls := requests("read by holders", planHolders)
	outGets, outPolls := requests("written by holders", planHolders)
	net := inGets + inPolls + outGets + outPolls
	line("network between nodes", fmt.Sprintf("gets %s + polls %s MB/s", number(inGets+outGets), number(inPolls+outPolls)), "%s MB/s; %s MB/s a holder, both ways", number(net), number(net/planHolders))
	const askBytes, replyBytes = 17.4, 35.6 // of an id in JSON: what one process reads and writes for a get of 500
	line("network to the clients, in JSON", "10^6 × 20 ids × 53 bytes", "%s MB/s", number(planGets*planIDs*(askBytes+replyBytes)/1e6))

	all := func(holders float64) (sum float64) {
		for _, of := range []string{"the answering node", "all holders", "the NATS server"} {
			gets, polls := requests(of, holders)
			sum += gets + polls
		}
		return sum
	}
	for what, text := range map[string]string{
		"PARTS":     "The gets ask " + number(parts(planIDs, planHolders)) + " holders each.",
		"HOLDERS":   fmt.Sprintf("%d holders. A machine", planHolders),
		"TWICE":     fmt.Sprintf("twice the holders cost %s × the", number(all(2*planHolders)/all(planHolders))),
		"NATSEND":   fmt.Sprintf("%s gets/s and half as many polls/s", number(planGets*64/nats)),
		"ROWSEND":   fmt.Sprintf("%s·10^9 rows for a holder with 192 GiB", number(192*float64(1<<30)/index/1e9)),
		"EVENTSDAY": fmt.Sprintf("%s TB a day, a copy", number(planEvents*eventBytes*86400/1e12)),
		"READHALF":  fmt.Sprintf("%s events/s: half a core", number(0.5e6/e.read)),
		"READEND":   fmt.Sprintf("%s events/s, were one goroutine", number(1e6/e.read)),
		"READNET":   fmt.Sprintf("carries %s MB/s to each", number(one("event, in DELTAS")/e.read)),
		"STOREEND":  fmt.Sprintf("%s events/s, were all of the server's", number(1e6/e.store)),
		"ROUTEEND":  fmt.Sprintf("%s events/s for 32 cores", number(planBusy*1e6/e.route)),
		"EVENCOUNT": fmt.Sprintf("With %d holders as much", int(math.Round(e.hold/e.read))),
	} {
		if !strings.Contains(doc, text) {
			t.Errorf("docs/capacity.md should say (%s): %s", what, text)
		}
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(doc, text) {
		t.Errorf("docs/capacity.md should have\n%s", text)
	}
}
