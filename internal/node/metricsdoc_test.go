package node

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/kit/figures"
)

const root = "../.."

// Every metric has a line in docs/metrics.md, and every line there is of a metric. The other
// documents and the alerts name metrics that exist.
func metricsAreDocumented(t *testing.T, n *Node, _ *nats.Conn) {
	metrics, documented := metricNames(t, n), documentedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if !documented[name] {
			t.Errorf("docs/metrics.md has no line for tidemark_%s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !metrics[name] {
			t.Errorf("docs/metrics.md has a line for tidemark_%s, which is no metric", name)
		}
	}
	var files []string
	for _, pattern := range []string{"README.md", "docs/*.md", "deploy/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	named := regexp.MustCompile(`\btidemark_([a-z_]*[a-z])\b`)
	for _, file := range files {
		for _, match := range named.FindAllStringSubmatch(readText(t, file), -1) {
			if name := withoutSeries(match[1]); !metrics[name] {
				t.Errorf("%s names tidemark_%s, which is no metric", filepath.Base(file), match[1])
			}
		}
	}
}

// withoutSeries cuts what Prometheus appends to a histogram's name.
func withoutSeries(name string) string {
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// metricNames returns what the node exports, what it describes although it has no
// value yet, and what the code registers by its full name.
func metricNames(t *testing.T, n *Node) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	add := func(texts ...string) {
		for _, text := range texts {
			if name, ours := strings.CutPrefix(text, "tidemark_"); ours {
				names[name] = true
			}
		}
	}
	families, err := n.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		add(family.GetName())
	}
	process := &figures.Collector{Look: func() {}}
	n.generationFigures(process)
	add(describedNames(n.Serving().Registry(), process)...)
	add(literalNames(t)...)
	if len(names) < 100 {
		t.Fatalf("%d metrics: %v", len(names), names)
	}
	return names
}

func describedNames(collectors ...prometheus.Collector) (names []string) {
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range collectors {
		described := make(chan *prometheus.Desc)
		go func() {
			defer close(described)
			c.Describe(described)
		}()
		for d := range described {
			names = append(names, name.FindStringSubmatch(d.String())[1])
		}
	}
	return names
}

// literalNames finds the metrics that code registers with prometheus itself.
func literalNames(t *testing.T) (names []string) {
	t.Helper()
	name := regexp.MustCompile(`\bName:\s*"(tidemark_[a-z_]*[a-z])"`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, match := range name.FindAllStringSubmatch(readText(t, path), -1) {
			names = append(names, match[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// documentedMetrics reads the first cell of each row of the tables.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	name := regexp.MustCompile("`([a-z_]+)[`{]")
	for _, cell := range row.FindAllStringSubmatch(readText(t, filepath.Join(root, "docs/metrics.md")), -1) {
		for _, match := range name.FindAllStringSubmatch(cell[1], -1) {
			names[match[1]] = true
		}
	}
	return names
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
