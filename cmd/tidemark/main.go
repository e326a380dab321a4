// Tidemark counts: events come in over NATS, counts go out over NATS, and the
// program is both the node that does it (run) and the commands that speak to
// one.
//
//	tidemark run                  a node, with a NATS server of its own
//	tidemark get post 42          ask it
//	tidemark incr 42.cntcm        change a count by hand
//	tidemark unread 7             what user 7 has not looked at yet
//	tidemark import events.ndjson feed it
//	tidemark deadletters          what it could not understand
//	tidemark verify               whether it is what the log says
//	tidemark rebuild              count it again, by another configuration
//
// A file holds one command, or a few that belong together: people.go (following and
// followers), deadletters.go, letterupkeep.go (purge and summary), nodes.go, drain.go
// (drain, undrain and forget), events.go (trim and archive), backup.go (backup and
// backups). rebuild.go has rebuildshow.go beside it, what it prints. What commands
// share: arguments.go (the command line before kong sees it), remote.go (the connection
// and its flags), cell.go (42.cntcm), table.go (columns for people), fault.go (exit
// codes). debug.go packs a bundle. fit.go is the command check, and check.go is config
// check. figures.go has the tables that stats begins with. get.go prints rows for page.go,
// too. top.go asks, and topview.go has what top shows. deploy.go and completion.go
// print files for other programs.
//
// Large because each command is here, with its flags and its help.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line; kong reads it from the tags.
type commands struct {
	Run     runCommand     `cmd:"" help:"Run a node: take events, count, answer."`
	Import  importCommand  `cmd:"" help:"Publish the events in a file."`
	Publish publishCommand `cmd:"" help:"Publish one event."`

	Get     getCommand     `cmd:"" help:"Show counts." group:"Counts:"`
	Page    pageCommand    `cmd:"" help:"Show counts of posts as a viewer is shown them." group:"Counts:"`
	Members membersCommand `cmd:"" help:"Show the members of a row's set." group:"Counts:"`
	Inbox   inboxCommand   `cmd:"" help:"Show what is behind a user's unread numbers." group:"Counts:"`
	Explain explainCommand `cmd:"" help:"Show the events behind a number." group:"Counts:"`
	Incr    incrCommand    `cmd:"" help:"Add to a count." group:"Counts:"`
	Set     setCommand     `cmd:"" help:"Set a count." group:"Counts:"`
	Del     delCommand     `cmd:"" help:"Delete a row of counts." group:"Counts:"`

	Top         topCommand         `cmd:"" help:"Watch what goes on, live." group:"A node:"`
	Stats       statsCommand       `cmd:"" help:"Show a node's figures." group:"A node:"`
	Slowlog     slowlogCommand     `cmd:"" help:"Show requests that took long, and where their time went." group:"A node:"`
	Deadletters deadlettersCommand `cmd:"" help:"Show events that were refused, send them again, delete them." group:"A node:"`
	Deploy      deployCommand      `cmd:"" help:"Print files that are needed to run Tidemark elsewhere." group:"A node:"`
	Check       fitCommand         `cmd:"" help:"Look whether this machine and configuration are fit for a node." group:"A node:"`
	Debug       debugCommand       `cmd:"" help:"Gather what helps when a node is in trouble." group:"A node:"`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask a node here whether it is well." group:"A node:"`

	Nodes   nodesCommand   `cmd:"" help:"Show which nodes there are, drain one, forget one." group:"The cluster:"`
	Shards  shardsCommand  `cmd:"" help:"Show which nodes hold which shard." group:"The cluster:"`
	Degrade degradeCommand `cmd:"" help:"Show or say what all nodes leave undone." group:"The cluster:"`

	Unread    unreadCommand    `cmd:"" help:"Show what users have not looked at yet." group:"Users:"`
	Read      readCommand      `cmd:"" help:"Mark as read." group:"Users:"`
	Feed      feedCommand      `cmd:"" help:"Show a user's feed." group:"Users:"`
	Following followingCommand `cmd:"" help:"Show whom a user follows." group:"Users:"`
	Followers followersCommand `cmd:"" help:"Show who follows a user." group:"Users:"`

	Verify  verifyCommand  `cmd:"" help:"Compare what is served with the log." group:"Upkeep:"`
	Recount recountCommand `cmd:"" help:"Count some ids again from the log, and compare." group:"Upkeep:"`
	Rebuild rebuildCommand `cmd:"" help:"Count everything again from the log, by another configuration." group:"Upkeep:"`
	Config  struct {
		Check checkCommand `cmd:"" help:"Look for mistakes in a configuration file."`
		Adopt adoptCommand `cmd:"" help:"Have a configuration file say what serves."`
	} `cmd:"" help:"Look at a configuration, or change it to what serves." group:"Upkeep:"`
	Backup  backupCommand  `cmd:"" help:"Copy what is counted to another place." group:"Upkeep:"`
	Backups backupsCommand `cmd:"" help:"List backups." group:"Upkeep:"`
	Restore restoreCommand `cmd:"" help:"Make a data directory of a backup." group:"Upkeep:"`
	Events  eventsCommand  `cmd:"" help:"Trim or archive the stored events." group:"Upkeep:"`
	Repair  repairCommand  `cmd:"" help:"Mend a stopped node's data directory." group:"Upkeep:"`
	Version versionCommand `cmd:"" help:"Show the version." group:"Upkeep:"`
	Help    helpCommand    `cmd:"" help:"Show this, or how to use a command." group:"Upkeep:"`

	Completion completionCommand `cmd:"" help:"Print a script that completes commands in a shell." group:"Upkeep:"`
}

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
}

// exit ends the process: help does after it is printed, and kong where a command line is wrong.
// Tests, which run commands in a process of their own, replace it.
var exit = os.Exit

func main() {
	os.Exit(run(os.Args[1:], terminal{os.Stdin, os.Stdout, os.Stderr}))
}

// run is the whole program but for the process's own exit, which --help and a
// second signal take on their own.
func run(args []string, t terminal) int {
	parser := newParser(t)
	if len(args) == 0 {
		args = []string{"--help"}
		parser.Exit = func(int) { exit(exitUsage) }
		parser.Stdout = t.err
	}
	parsed, err := parser.Parse(arguments(parser, args))
	if err != nil {
		return report(t.err, usage("%s (see %s --help)", hyphens.Replace(err.Error()), commandOf(err)))
	}
	return report(t.err, parsed.Run(&t))
}

func newParser(t terminal) *kong.Kong {
	return kong.Must(
		new(commands),
		kong.Name("tidemark"),
		kong.Description("Counters, kept exactly, from a log of events."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(t.out, t.err),
		kong.Exit(func(code int) { exit(code) }),
		kong.Vars{
			"reasons":     reasonNames(),
			"letters_max": strconv.Itoa(lettersMax),
			"people_max":  strconv.Itoa(peopleMax),
			"inbox_max":   strconv.Itoa(inboxMax),
		},
	)
}

// commandOf is the command that a mistake was made in.
func commandOf(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil {
		if node := e.Context.Selected(); node != nil {
			return strings.TrimSpace("tidemark " + node.Path())
		}
	}
	return "tidemark"
}

// interruptible ends when the user has had enough.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
