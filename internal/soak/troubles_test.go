package soak

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// telling is a line that a node must have logged; of no node: any of them.
type telling struct {
	node *node
	line *regexp.Regexp
}

// marks are where the nodes' logs end.
type marks map[*node]int64

func (s *soak) marks() marks {
	m := marks{}
	for _, n := range s.everyone() {
		m[n] = s.logged(n)
	}
	return m
}

func (s *soak) logged(n *node) int64 {
	info, err := os.Stat(n.Log())
	if err != nil {
		s.fail("%v", err)
	}
	return info.Size()
}

// lines are what a node has logged from a place on.
func (s *soak) lines(n *node, from int64) []string {
	s.Helper()
	f, err := os.Open(n.Log())
	if err != nil {
		s.fail("%v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, from, 1<<40))
	if err != nil {
		s.fail("%v", err)
	}
	if end := bytes.LastIndexByte(b, '\n'); end >= 0 {
		return strings.Split(string(b[:end]), "\n")
	}
	return nil
}

// trouble is a line that a user looks at.
var trouble = regexp.MustCompile(`^time=\S+ level=(WARN|ERROR) |^tidemark: `)

// saidSince finds a line of trouble.
func (s *soak) saidSince(n *node, from int64, what *regexp.Regexp) bool {
	return slices.ContainsFunc(s.lines(n, from), func(line string) bool { return trouble.MatchString(line) && what.MatchString(line) })
}

// connected says whether the node has the server, by what it has logged: it
// cannot lose one twice.
func (s *soak) connected(n *node) bool {
	lines := s.lines(n, 0)
	for _, line := range slices.Backward(lines) {
		switch {
		case connection.MatchString(line):
			return false
		case strings.Contains(line, "tidemark: running"), strings.Contains(line, "nats: connected again"):
			return true
		}
	}
	return false
}

// awaited is what a fault's nodes must have said by the next comparison.
type awaited struct {
	kind string
	from marks
	told []telling
}

func (s *soak) expect(kind string, from marks, told []telling) {
	s.awaited = append(s.awaited, awaited{kind, from, told})
}

// told makes sure that the nodes have named every trouble since the last
// comparison, each in one clear line, and have said nothing that is none.
func (s *soak) told() {
	s.Helper()
	for _, a := range s.awaited {
		for _, t := range a.told {
			ok := false
			for n, from := range a.from {
				ok = ok || (t.node == nil || t.node == n) && s.saidSince(n, from, t.line)
			}
			if !ok {
				s.fail("%s: %v did not say so: no line matches %q", a.kind, t.node, t.line)
			}
		}
	}
	s.awaited = nil
	for _, n := range s.everyone() {
		for _, line := range s.lines(n, s.read[n]) {
			s.clear(n, line)
			s.read[n] += int64(len(line)) + 1
		}
	}
}

// shape is what a line looks like that a process prints: the log's, or the
// reason for which it ended.
var shape = regexp.MustCompile(`^time=\S+ level=(DEBUG|INFO|WARN|ERROR) msg=|^tidemark: `)

// lineMax is the most a clear line has.
const lineMax = 2000

func (s *soak) clear(n *node, line string) {
	s.Helper()
	s.report.lines++
	switch {
	case !shape.MatchString(line):
		s.fail("%v prints what is not a line of the log:\n%s", n, s.last(n))
	case len(line) > lineMax:
		s.fail("%v prints a line of %d bytes: %s", n, len(line), line)
	}
	if trouble.MatchString(line) {
		s.report.troubles++
	}
}

// lastLines of a log are shown.
const lastLines = 20

// last is what a node printed last: up to the first lines of a crash, if it did.
func (s *soak) last(n *node) string {
	s.Helper()
	lines := s.lines(n, 0)
	if crash := slices.IndexFunc(lines, func(line string) bool { return !shape.MatchString(line) }); crash >= 0 {
		lines = lines[:min(len(lines), crash+lastLines)]
		return strings.Join(lines[max(0, crash-lastLines):], "\n")
	}
	return strings.Join(lines[max(0, len(lines)-lastLines):], "\n")
}
