package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// kong takes every argument that begins with a hyphen for a flag, -5 too, a
// command's flags only after the command's name, and a list (ID…) as ended by
// the first flag. Users know none of it: so the command line is put in order
// before kong sees it.
//
// A negative number goes through with a minus sign that is not a hyphen: amount
// reads it, and id says of it that it is no id. (Moving it after a "--" would lose
// its place, and "set -3 42.cntcm" would pass.)
const minus = "\u2212"

var (
	negative = regexp.MustCompile(`^-[0-9]`)
	hyphens  = strings.NewReplacer(minus, "-")
)

// arguments puts flags between the command's name and the rest:
// tidemark --nats URL get post --json 42. What stands behind "--" stays.
func arguments(parser *kong.Kong, args []string) []string {
	if len(args) == 1 && args[0] == "--version" {
		return []string{"version"}
	}
	valued := withValue(map[string]bool{}, parser.Model.Node)
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	var flags, words []string
	for i := 0; i < end; i++ {
		switch arg := args[i]; {
		case arg == "-" || !strings.HasPrefix(arg, "-") || negative.MatchString(arg):
			words = append(words, arg)
		case !valued[arg]:
			flags = append(flags, arg)
		case i+1 < end:
			i++
			flags = append(flags, arg, args[i])
		default: // its value is missing, and no other word may be taken for it
			words = append(words, arg)
		}
	}
	name := min(1, len(words))
	if name == 1 && words[0] == "help" {
		return append(words[1:], "--help")
	}
	if len(words) > 1 && isCommand(parser.Model.Node, words[0], words[1]) {
		name = 2
	}
	for i, word := range words {
		if negative.MatchString(word) {
			words[i] = minus + word[1:]
		}
	}
	return slices.Concat(words[:name], flags, words[name:], args[end:])
}

// isCommand says that sub is a command of the command top: config check.
func isCommand(root *kong.Node, top, sub string) bool {
	for _, command := range root.Children {
		for _, child := range command.Children {
			if command.Name == top && child.Name == sub {
				return true
			}
		}
	}
	return false
}

// withValue collects the flags that take the next argument.
func withValue(names map[string]bool, node *kong.Node) map[string]bool {
	for _, flag := range node.Flags {
		if !flag.IsBool() {
			names["--"+flag.Name] = true
		}
	}
	for _, child := range node.Children {
		withValue(names, child)
	}
	return names
}
