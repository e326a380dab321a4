package main

// helpCommand is only listed: arguments turns "help get" into "get --help"
// before it could run.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

func (helpCommand) Help() string {
	return `EXAMPLE

    tidemark help
    tidemark help import
    tidemark help config check`
}
