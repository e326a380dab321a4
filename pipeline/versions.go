package pipeline

import (
	"cmp"
	"strconv"
)

// Format is the layout of something that one node writes and another reads. Its
// versions are what two versions of the program must have in common to work
// together.
//
// A node reads versions Oldest to Newest and can write each of them. It says both in
// its member record, and writes the newest version that all members read
// (cluster.View.Writes). So nodes can be upgraded one after the other.
//
// A change of a layout increments Newest. The old version must still be written until
// no supported release reads it alone; then Oldest is incremented.
type Format struct {
	Name           string
	Oldest, Newest int
}

// The formats. What only one process reads on its own disk is not among them: see
// cold.Format, and the marker of the data directory.
var (
	FormatWire    = format("wire", 1, 1)    // questions between nodes (query/wire)
	FormatWindows = format("windows", 1, 1) // messages of DELTAS (AppendWindow)
	FormatMoves   = format("moves", 1, 1)   // runs on their way to another node, as cold.Format has them (sinks/move)
	FormatJobs    = format("jobs", 1, 1)    // what commands and nodes ask of a node (internal/job)
	FormatRecord  = format("record", 1, 1)  // which generations there are (pipeline/generation)
	FormatBackups = format("backups", 1, 1) // manifests and objects of backups, segments of archives
)

// Formats are all formats, by name.
func Formats() []Format {
	return []Format{FormatBackups, FormatJobs, FormatMoves, FormatRecord, FormatWindows, FormatWire}
}

// Reads says whether this process reads a version.
func (f Format) Reads(version int) bool { return version >= f.Oldest && version <= f.Newest }

// Within is the version that is nearest to one and that this process writes.
func (f Format) Within(version int) int { return min(max(version, f.Oldest), f.Newest) }

// ahead and drops are set by the linker for tests of upgrades alone
// (-X .../pipeline.ahead=1): ahead adds so many versions to each format, of which each
// has the layout of the one before; drops takes so many of the oldest ones away.
var ahead, drops string

func format(name string, oldest, newest int) Format {
	f := Format{Name: name, Newest: newest + number(ahead)}
	f.Oldest = min(oldest+number(drops), f.Newest)
	return f
}

func number(text string) int {
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		panic("pipeline: a number of versions set by the linker: " + err.Error())
	}
	return n
}
