package cluster

import (
	"fmt"
	"regexp"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Versions are those that a process reads of a format, the oldest and the newest. It
// can write each of them.
type Versions [2]int

// Formats are the formats that a process knows, by name. One that is not there has
// version 0 alone: a format that comes later reads version 0 where a process without
// it does no harm.
type Formats map[string]Versions

// Bounds of Formats.
const (
	formatsMax = 32
	versionMax = 1 << 8 // a window has one byte for it
)

var formatName = regexp.MustCompile(`^[a-z]{1,16}$`)

// OwnFormats are those of this program.
func OwnFormats() Formats {
	own := make(Formats)
	for _, f := range pipeline.Formats() {
		own[f.Name] = Versions{f.Oldest, f.Newest}
	}
	return own
}

func (fs Formats) check() error {
	if len(fs) > formatsMax {
		return fmt.Errorf("%d formats, %d at most", len(fs), formatsMax)
	}
	for name, v := range fs {
		if !formatName.MatchString(name) {
			return fmt.Errorf("format %.80q does not match %v", name, formatName)
		}
		if v[0] < 0 || v[0] > v[1] || v[1] >= versionMax {
			return fmt.Errorf("formats.%s is from %d to %d, must be from 0 to %d, the oldest first", name, v[0], v[1], versionMax-1)
		}
	}
	return nil
}

// Reads is the newest version of a format that both this program and a member know.
func (m *Member) Reads(f pipeline.Format) int { return f.Within(m.Formats[f.Name][1]) }

// Reads is that of a member by its name; the oldest of one that is not known.
func (v *View) Reads(node string, f pipeline.Format) int {
	if m, there := v.Member(node); there {
		return m.Reads(f)
	}
	return f.Oldest
}

// Writes is the version of a format that is written for all members: the newest that
// each of them reads, those that are away too, since they come back. A member that
// reads nothing that this process writes has no part in it: it cannot join (Misfit).
// While members may not have been heard of yet, because the bucket is new, it is the
// oldest that those known read.
func (v *View) Writes(f pipeline.Format) int {
	version, _ := v.writes(f)
	return version
}

// writes names a member that reads no newer version as well; "": all read the newest.
func (v *View) writes(f pipeline.Format) (version int, node string) {
	version = f.Newest
	if !v.Settled && !v.Stored {
		version = f.Oldest
		for _, m := range v.Members {
			version = max(version, f.Within(m.Formats[f.Name][0]))
		}
	}
	for _, m := range v.Members {
		if newest := m.Formats[f.Name][1]; newest < version && newest >= f.Oldest {
			version, node = newest, m.Node
		}
	}
	return version, node
}

// Lagging says of which formats an older version is written than this program
// could, and for which member; a line each. Empty: of none.
func (v *View) Lagging() (lines []string) {
	for _, f := range pipeline.Formats() {
		if version, node := v.writes(f); node != "" {
			m, _ := v.Member(node)
			lines = append(lines, fmt.Sprintf("%s are written in version %d, not %d: node %s (version %s) reads no newer one", f.Name, version, f.Newest, node, m.Version))
		}
	}
	return lines
}
