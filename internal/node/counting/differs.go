package counting

import "strings"

// What is counted belongs to the generation. A node whose file says something else counts
// by the generation all the same, and says so for as long as that is so.

// toAgree are the two ways to make the file and what serves say the same.
const toAgree = "'tidemark rebuild --config FILE' has all nodes count by the file, 'tidemark config adopt --config FILE' has the file say what serves"

// byVariables says that the file does not state all of it.
func (g *Generation) byVariables() string {
	if len(g.Config.Variables) == 0 {
		return ""
	}
	return "; the environment sets " + strings.Join(g.Config.Variables, ", ") + ", which wins over the file: unset it, too"
}

// sayDiffers logs what this node's file counts differently from the generation.
func (g *Generation) sayDiffers() {
	if len(g.Differs) > 0 {
		g.Log.Warn("tidemark: the configuration file counts differently from what serves; this node counts by what serves",
			"generation", g.Number, "the_file", strings.Join(g.Differs, "; "), "remedy", toAgree+g.byVariables())
	}
}

// differing says so at /readyz.
func (g *Generation) differing() string {
	if len(g.Differs) == 0 {
		return ""
	}
	return "config: this node's file counts differently from generation " + g.Number.String() + ", which serves (from what serves to the file: " + strings.Join(g.Differs, "; ") +
		"). The node counts by what serves; " + toAgree + g.byVariables() + "\n"
}
