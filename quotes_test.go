package tidemark_test

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	spanned = regexp.MustCompile("`[^`]*`")
	quoted  = regexp.MustCompile(`"([^"]+)"`)
	marks   = regexp.MustCompile("[*`_\\\\]|\\]\\([^)]*\\)|\\[")
	begin   = regexp.MustCompile(`(?m)^\s*(#+|>|//)\s?`)
	spaces  = regexp.MustCompile(`[\s|→]+`)
)

// A test quotes the sentence that it holds: where a test's comment quotes four words or
// more, they stand in a comment of the package that it tests or of package pipeline, or in
// a page or config.yaml, which the comment names. "…" stands for what is left out. What
// only a test says, it says without quotes.
func TestQuotedSentences(t *testing.T) {
	pages, comments := map[string]string{"config.yaml": plain(read(t, "config.yaml"))}, map[string]string{}
	for name, text := range files(t, ".md") {
		pages[name] = plain(text)
	}
	for dir, files := range rooms(t) {
		var text strings.Builder
		for _, s := range files {
			for _, c := range s.Comments {
				text.WriteString(c.Text())
			}
		}
		comments[dir] = plain(text.String())
	}
	nowhere, unnamed, looked := map[string]int{}, map[string]int{}, 0
	for _, s := range house(t) {
		for _, c := range s.Comments {
			if !s.test {
				break
			}
			for _, quote := range quotes(c) {
				looked++
				if has(comments[s.dir], quote) || has(comments["pipeline"], quote) {
					continue
				}
				where, named := stands(quote, pages, c.Text())
				switch {
				case where == "":
					nowhere[s.dir]++
					t.Logf("%s: %q stands nowhere", fset.Position(c.Pos()), quote)
				case !named:
					unnamed[s.dir]++
					t.Logf("%s: %q stands in %s", fset.Position(c.Pos()), quote, where)
				}
			}
		}
	}
	if looked < 300 {
		t.Errorf("%d quotes", looked)
	}
	ratchet(t, "quote", "(Sentences; -v lists them.) A test that quotes what nobody promised holds nothing: say it in docs/, or without quotes.", nowhere)
	ratchet(t, "quote without place", "(Sentences; -v lists them.) Name the page, so that a reader finds what else is promised there.", unnamed)
}

// quotes returns what a comment quotes, if it is a sentence: four words or more. Lines
// that are code, indented, quote nothing.
func quotes(c *ast.CommentGroup) (all []string) {
	text := spanned.ReplaceAllStringFunc(c.Text(), func(code string) string { return strings.ReplaceAll(code, `"`, "'") })
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		if quote := plain(match[1]); len(strings.Fields(quote)) >= 4 {
			all = append(all, quote)
		}
	}
	return all
}

var invariant = regexp.MustCompile(`\bI\d+\b`)

// stands returns a page whose text has all pieces of a quote, in order: one that the
// comment names, if there is one. An invariant names docs/architecture.md.
func stands(quote string, pages map[string]string, comment string) (where string, named bool) {
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		if !has(pages[page], quote) {
			continue
		}
		name := page
		if !strings.Contains(page, "/") { // README, config.yaml
			name = strings.TrimSuffix(page, ".md")
		}
		if strings.Contains(comment, name) || page == "docs/architecture.md" && invariant.MatchString(comment) {
			return page, true
		}
		if where == "" || !strings.HasPrefix(where, "docs/") || page == "docs/contract.md" {
			where = page
		}
	}
	return where, false
}

func has(text, quote string) bool {
	for piece := range strings.SplitSeq(strings.ReplaceAll(quote, "...", "…"), "…") {
		piece = strings.Trim(piece, " .,;:")
		at := strings.Index(text, piece)
		if at < 0 {
			return false
		}
		text = text[at+len(piece):]
	}
	return true
}

// plain takes off what marks up: a quote and a page may differ in that, in where lines
// end and in which words are capitals.
func plain(text string) string {
	text = begin.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, `"`, "'")
	return strings.ToLower(strings.TrimSpace(spaces.ReplaceAllString(marks.ReplaceAllString(text, ""), " ")))
}
