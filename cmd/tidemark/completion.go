package main

import (
	"io"

	"github.com/tidemark-io/tidemark/cmd/tidemark/complete"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `The script completes commands and flags. Print it again after an upgrade.

EXAMPLE

    source <(tidemark completion bash)
    tidemark completion bash > /etc/bash_completion.d/tidemark
    tidemark completion zsh > ~/.zfunc/_tidemark      # a directory in $fpath
    tidemark completion fish > ~/.config/fish/completions/tidemark.fish`
}

func (c *completionCommand) Run(t *terminal) error {
	script := map[string]func([]complete.Place) string{"bash": complete.Bash, "zsh": complete.Zsh, "fish": complete.Fish}[c.Shell]
	_, err := io.WriteString(t.out, script(complete.Of(newParser(*t).Model.Node)))
	return err
}
