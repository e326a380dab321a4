package tidemark_test

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/tidemark-io/tidemark"
)

var (
	span   = regexp.MustCompile("`([^`]+)`")
	fenced = regexp.MustCompile("(?s)\n```yaml\n.*?\n```\n")
)

// contract is docs/contract.md, and what it writes as code on a line of text.
func contract(t *testing.T) (text string, spans []string) {
	t.Helper()
	b, err := os.ReadFile("docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	for _, match := range span.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		spans = append(spans, match[1])
	}
	return text, spans
}

// Every subject that the contract lists is an endpoint, every code one that
// they answer.
func TestContractSubjects(t *testing.T) {
	files, err := filepath.Glob("query/service/*.go")
	if err != nil {
		t.Fatal(err)
	}
	ofWeb, err := filepath.Glob("query/web/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files, source := append(files, ofWeb...), ""
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			source += string(b)
		}
	}
	text, _ := contract(t)
	subjects := regexp.MustCompile("`tidemark\\.([a-z.]+)`").FindAllStringSubmatch(text, -1)
	if len(subjects) < 8 {
		t.Errorf("%d subjects: %q", len(subjects), subjects)
	}
	for _, subject := range subjects {
		if !regexp.MustCompile(`(name: +|Endpoint\()"` + regexp.QuoteMeta(subject[1]) + `"`).MatchString(source) {
			t.Errorf("docs/contract.md lists %s, which is no endpoint", subject[0])
		}
	}
	codes := regexp.MustCompile(`\b([45]\d\d)\b`).FindAllString(text, -1)
	if len(codes) < 6 {
		t.Errorf("codes %q", codes)
	}
	for _, code := range codes {
		number, _ := strconv.Atoi(code)
		overHTTP := "http.Status" + strings.ReplaceAll(http.StatusText(number), " ", "")
		if !regexp.MustCompile(`code = `+code+`\b`).MatchString(source) && !strings.Contains(source, overHTTP) {
			t.Errorf("docs/contract.md says %s, which no answer has", code)
		}
	}
}

// Every key that the contract shows is in config.yaml, and the counters and
// rules it shows are those there.
func TestContractKeys(t *testing.T) {
	var config map[string]any
	if err := yaml.Unmarshal(tidemark.DefaultConfig, &config); err != nil {
		t.Fatal(err)
	}
	text, spans := contract(t)
	known := func(key string) bool {
		at := any(config)
		for part := range strings.SplitSeq(key, ".") {
			section, _ := at.(map[string]any)
			if at = section[part]; section == nil || at == nil {
				return false
			}
		}
		return true
	}
	// What looks like a key of a section and is none: `events.pack` is a subject.
	others := []string{"config.yaml", "events.pack", "read.what"}
	key := regexp.MustCompile(`^([a-z_]+\.[a-z_]+|data_dir|inactive_after|channels_open|rules|channels)(: .*)?$`)
	keys := 0
	for _, code := range spans {
		match := key.FindStringSubmatch(code)
		if match == nil || strings.HasPrefix(code, "tidemark.") || slices.Contains(others, code) {
			continue
		}
		if keys++; !known(match[1]) {
			t.Errorf("docs/contract.md shows the key %s, which config.yaml does not have", match[1])
		}
	}
	if keys < 12 {
		t.Errorf("%d keys", keys)
	}
	blocks := fenced.FindAllString(text, -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of YAML", len(blocks))
	}
	for i, b := range blocks {
		blocks[i] = strings.TrimSuffix(strings.TrimPrefix(b, "\n```yaml\n"), "```\n")
	}
	for _, block := range blocks[1:] {
		var shown map[string]any
		if err := yaml.Unmarshal([]byte(block), &shown); err != nil {
			t.Fatal(err)
		}
		same(t, "", shown, config)
	}
	counters, rules, found := strings.Cut(blocks[0], "rules:\n")
	if !found || !strings.Contains(string(tidemark.DefaultConfig), "\n"+counters) || !strings.Contains(string(tidemark.DefaultConfig), "\nrules:\n"+rules) {
		t.Error("docs/contract.md shows other counters or rules than config.yaml")
	}
}

// same says that what is shown is what is there.
func same(t *testing.T, under string, shown, there map[string]any) {
	t.Helper()
	for key, value := range shown {
		section, is := value.(map[string]any)
		inside, _ := there[key].(map[string]any)
		if is {
			same(t, under+key+".", section, inside)
		} else if !reflect.DeepEqual(value, there[key]) {
			t.Errorf("docs/contract.md shows %s%s: %v, config.yaml %v", under, key, value, there[key])
		}
	}
}
