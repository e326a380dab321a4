package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/query/client"
)

// Exit codes.
const (
	exitGood   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong command line, or mistakes in the configuration
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errTold: what went wrong has been said already.
var errTold = errors.New("told")

// report says on one line what went wrong, except that mistakes in a
// configuration get a line each, and gives the exit code.
func report(to io.Writer, err error) int {
	faults, mistaken := errors.AsType[config.Faults](err)
	_, misused := errors.AsType[usageError](err)
	switch {
	case err == nil:
		return exitGood
	case mistaken:
		fmt.Fprintf(to, "%v\ntidemark: %s: %s\n", faults, faults[0].File, count(len(faults), "mistake"))
		return exitUsage
	case errors.Is(err, errTold):
		return exitFailed
	}
	fmt.Fprintf(to, "tidemark: %s\n", sentence(err))
	if misused {
		return exitUsage
	}
	return exitFailed
}

// sentence is an error on one line, the way a user needs it.
func sentence(err error) string {
	text := err.Error()
	answer, answered := errors.AsType[*client.Error](err)
	switch {
	case answered:
		text = answer.Message
		if errors.Is(err, client.ErrUncertain) {
			text = err.Error()
		}
	case errors.Is(err, context.Canceled):
		text = "interrupted"
	}
	text = packageNames.ReplaceAllString(text, "$1")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// packageNames are what errors of the program's own packages begin with: of use in its
// source and in nobody's terminal. Those that are users' words too (archive, config)
// stay.
var packageNames = regexp.MustCompile(`(^|: |; |\n)(?:(?:` + strings.Join([]string{
	"backup", "bucket", "check", "client", "cluster", "cold", "demo", "generation", "importer", "index", "jetlog",
	"job", "letters", "move", "operators", "packed", "pipeline", "query", "run", "shard", "sinks", "snapshot", "spread", "tier", "wire",
}, "|") + `): )+`)

// count is "1 mistake", "2 mistakes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
