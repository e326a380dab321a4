// Package complete writes completion scripts for shells from the command line that
// kong knows, so a new command or flag is in them without further work.
//
// [Of] lists each [Place] of the command line: the program itself, a command, a command
// of a command, with the words that may come next. [Bash], [Zsh] and [Fish] write that
// list in the language of a shell (shells.go). A script needs nothing of the program
// when it runs: it is the list, and a loop that finds the place where the cursor is.
package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Place is where a word is expected.
type Place struct {
	Path  string // commands so far, each after a space: " nodes drain"; "" is the program
	Words []Word
	Files bool // what the command takes may be a file
}

// Word may come next.
type Word struct {
	Name, Help string
	Valued     bool // a flag that takes the next word
}

// Flag says that the word is one.
func (w Word) Flag() bool { return strings.HasPrefix(w.Name, "-") }

// Of lists all places, a command before its own commands.
func Of(program *kong.Node) []Place { return places(nil, program, "") }

func places(list []Place, node *kong.Node, path string) []Place {
	list = append(list, at(node, path))
	for _, child := range node.Children {
		if !child.Hidden {
			list = places(list, child, path+" "+child.Name)
		}
	}
	return list
}

// at is the place after a command.
func at(node *kong.Node, path string) Place {
	place := Place{Path: path, Files: node.Leaf()}
	for _, child := range node.Children {
		if !child.Hidden {
			place.Words = append(place.Words, Word{Name: child.Name, Help: child.Help})
		}
	}
	for _, positional := range node.Positional {
		if positional.Enum == "" {
			continue
		}
		place.Files = false
		for _, value := range positional.EnumSlice() {
			place.Words = append(place.Words, Word{Name: value, Help: positional.Help})
		}
	}
	place.Words = append(place.Words, flags(node)...)
	return place
}

// flags are the flags of a command, and of the command that is meant when it is named
// alone: "nodes" is "nodes list".
func flags(node *kong.Node) []Word {
	var words []Word
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			words = append(words, Word{Name: "--" + flag.Name, Help: flag.Help, Valued: !flag.IsBool()})
		}
	}
	if node.DefaultCmd != nil {
		words = append(words, flags(node.DefaultCmd)...)
	}
	slices.SortStableFunc(words, func(a, b Word) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(words, func(a, b Word) bool { return a.Name == b.Name })
}

// valued are the names of all flags that take the next word, wherever they are.
func valued(list []Place) []string {
	var names []string
	for _, place := range list {
		for _, word := range place.Words {
			if word.Valued {
				names = append(names, word.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
