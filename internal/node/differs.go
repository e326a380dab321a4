package node

import (
	"strings"
)

// What is counted belongs to the generation. A node whose file says something else counts
// by the generation all the same, and says so for as long as that is so.

// toAgree are the two ways to make the file and what serves say the same.
const toAgree = "'tidemark rebuild --config FILE' has all nodes count by the file, 'tidemark config adopt --config FILE' has the file say what serves"

// byVariables says that the file does not state all of it.
func (n *generation) byVariables() string {
	if len(n.Node.config.Variables) == 0 {
		return ""
	}
	return "; the environment sets " + strings.Join(n.Node.config.Variables, ", ") + ", which wins over the file: unset it, too"
}

// sayDiffers logs what this node's file counts differently from the generation.
func (n *generation) sayDiffers() {
	if len(n.differs) > 0 {
		n.log.Warn("tidemark: the configuration file counts differently from what serves; this node counts by what serves",
			"generation", n.number, "the_file", strings.Join(n.differs, "; "), "remedy", toAgree+n.byVariables())
	}
}

// differing says so at /readyz.
func (n *generation) differing() string {
	if len(n.differs) == 0 {
		return ""
	}
	return "config: this node's file counts differently from generation " + n.number.String() + ", which serves (from what serves to the file: " + strings.Join(n.differs, "; ") +
		"). The node counts by what serves; " + toAgree + n.byVariables() + "\n"
}
