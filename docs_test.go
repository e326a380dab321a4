package tidemark_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Paths that a document names exist: each link of a page leads to a file, and to a
// heading where it names one.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	for page, text := range files(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, match[1])
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s links to %s, and there is no such heading", page, match[1])
			}
		}
	}
}

// Error messages, comments and alerts that name a page, or a heading in it, name one
// that exists.
func TestNamedPages(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/([a-z-]+\.md)(?:, "?([A-Z][A-Za-z ]*[a-z]\??))?`)
	for _, extension := range []string{".go", ".yml", ".yaml", ".conf"} {
		for file, text := range files(t, extension) {
			for _, match := range named.FindAllStringSubmatch(text, -1) {
				page := filepath.Join("docs", match[1])
				if _, err := os.Stat(page); err != nil {
					t.Errorf("%s names %s, which does not exist", file, page)
				} else if match[2] != "" && !strings.Contains(read(t, page), "# "+match[2]) {
					t.Errorf("%s names %q of %s, and there is no such heading", file, match[2], page)
				}
			}
		}
	}
}

// anchors returns what GitHub makes of a page's headings.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	left := regexp.MustCompile(`[^a-z0-9_ -]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := left.ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return all
}

// files returns the repository's files with that extension, by path.
func files(t *testing.T, extension string) map[string]string {
	t.Helper()
	all, err := walk(extension)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files %s: %v", len(all), extension, err)
	}
	return all
}

func walk(extension string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && path != "."
		if entry.IsDir() && (hidden || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if err == nil && !entry.IsDir() && filepath.Ext(path) == extension {
			b, err := os.ReadFile(path)
			all[filepath.ToSlash(path)] = string(b)
			return err
		}
		return err
	})
	return all, err
}
