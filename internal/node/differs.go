package node

import "strings"

// What is counted belongs to the generation. A node whose file says something else counts
// by the generation all the same, and says so for as long as that is so.

// toAgree are the two ways to make the file and what serves say the same.
const toAgree = "'tidemark rebuild --config FILE' has all nodes count by the file, 'tidemark config adopt --config FILE' has the file say what serves"

// byVariables says that the file does not state all of it.
func (g *generation) byVariables() string {
	if len(g.config.Variables) == 0 {
		return ""
	}
	return "; the environment sets " + strings.Join(g.config.Variables, ", ") + ", which wins over the file: unset it, too"
}

// sayDiffers logs what this node's file counts differently from the generation.
func (g *generation) sayDiffers() {
	if len(g.differs) > 0 {
		g.log.Warn("tidemark: the configuration file counts differently from what serves; this node counts by what serves",
			"generation", g.number, "the_file", strings.Join(g.differs, "; "), "remedy", toAgree+g.byVariables())
	}
}

// differing says so at /readyz.
func (g *generation) differing() string {
	if len(g.differs) == 0 {
		return ""
	}
	return "config: this node's file counts differently from generation " + g.number.String() + ", which serves (from what serves to the file: " + strings.Join(g.differs, "; ") +
		"). The node counts by what serves; " + toAgree + g.byVariables() + "\n"
}
