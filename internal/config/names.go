package config

import (
	"fmt"
	"strings"
)

// names says which names are allowed: of which characters, and how many.
type names struct {
	chars       string
	most        int
	letterFirst bool
	allowed     string // in words
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

var (
	columnNamed = names{lower + digits + "_", 63, true, "a-z, 0-9 and _ are allowed, a letter first, 63 at most"}
	// labelNamed is for names that subjects and headers carry: event types and channels.
	labelNamed = names{lower + digits + "_-", 64, false, "a-z, 0-9, _ and - are allowed, 64 at most"}
	// nodeNamed is for names that subjects carry.
	nodeNamed = names{lower + upper + digits + "_-", 64, false, "letters, digits, _ and - are allowed, 64 at most"}
	zoneNamed = names{lower + upper + digits + "_-.", 64, false, "letters, digits, _, - and . are allowed, 64 at most"}
)

// wrong says which character of a name is not allowed, and where; "": none.
func (n *names) wrong(name string) string {
	if name == "" {
		return "is empty: " + n.allowed
	}
	for i, r := range []rune(name) {
		if !strings.ContainsRune(n.chars, r) || i == 0 && n.letterFirst && !strings.ContainsRune(lower, r) {
			return fmt.Sprintf("%s has %q at character %d: %s", quote(name), r, i+1, n.allowed)
		}
	}
	if len(name) > n.most {
		return fmt.Sprintf("%s has %d characters: %s", quote(name), len(name), n.allowed)
	}
	return ""
}

// named faults a key whose name, or value that is one, is not allowed.
func (d *decoder) named(line int, key, name string, allowed *names) {
	if why := allowed.wrong(name); why != "" {
		d.fault(line, key, "%s", why)
	}
}
