package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (make build VERSION=v1.2.3).
var version string

type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON document."`
}

func (versionCommand) Help() string {
	return `EXAMPLE

    tidemark version
    tidemark version --json`
}

// build is what a binary knows of itself.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that differ from Commit
}

func (v *versionCommand) Run(t *terminal) error {
	b := readBuild()
	if v.JSON {
		return printJSON(t.out, b)
	}
	line := fmt.Sprintf("tidemark %s (%s", b.Version, b.Go)
	if b.Commit != "" {
		line += ", commit " + b.Commit
	}
	if b.Modified {
		line += ", modified"
	}
	_, err := fmt.Fprintln(t.out, line+")")
	return err
}

func readBuild() build {
	b := build{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "(devel)" {
		b.Version = cmp.Or(b.Version, info.Main.Version)
	}
	b.Version = cmp.Or(b.Version, "0.1.0-dev")
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
