package main

import (
	"regexp"
	"slices"
	"strings"
)

// kong takes every argument that begins with a hyphen for a flag, -5 too, and
// a command's flags only after the command's name. Users know neither: so the
// command line is put in order before kong sees it.
//
// A negative number of incr and set goes through with a minus sign that is not
// a hyphen, which amount reads. (Moving it behind a "--" would lose its place,
// and "set -3 42.cntcm" would pass.)
const minus = "\u2212"

var (
	negative  = regexp.MustCompile(`^-[0-9]`)
	hyphens   = strings.NewReplacer(minus, "-")
	withValue = []string{"--nats", "--creds", "--nkey", "--timeout"}
)

func arguments(args []string) []string {
	if len(args) == 1 && args[0] == "--version" {
		return []string{"version"}
	}
	args = commandFirst(args)
	if len(args) > 0 && (args[0] == "incr" || args[0] == "set") {
		for i, arg := range args {
			if arg == "--" {
				break
			}
			if negative.MatchString(arg) {
				args[i] = minus + arg[1:]
			}
		}
	}
	return args
}

// commandFirst moves flags in front of the command behind it:
// tidemark --nats URL get post 42.
func commandFirst(args []string) []string {
	first := 0
	for first < len(args) && strings.HasPrefix(args[first], "--") && args[first] != "--" {
		if slices.Contains(withValue, args[first]) {
			first++
		}
		first++
	}
	if first >= len(args) || args[first] == "--" {
		return slices.Clone(args)
	}
	return slices.Concat(args[first:first+1], args[:first], args[first+1:])
}
