package e2e

import (
	"strings"
	"sync"
)

// Lines are what was logged or printed, to be read while more comes. Safe for concurrent
// use.
type Lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Reset forgets what has come.
func (l *Lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// Has says whether a text is in what has come.
func (l *Lines) Has(text string) bool { return strings.Contains(l.String(), text) }
