package complete

import (
	"fmt"
	"strings"
)

// bashBegin takes the flags with values and the places, each as alternatives of a case.
const bashBegin = `# Completion of tidemark for bash: source <(tidemark completion bash)
_tidemark() {
    local word=${COMP_WORDS[COMP_CWORD]} at= next= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            %s) ((i++)); continue ;;
        esac
        case "$at ${COMP_WORDS[i]}" in
            ' help') ;;
            %s) at="$at ${COMP_WORDS[i]}" ;;
        esac
    done
    COMPREPLY=()
    ((i > COMP_CWORD)) && return
    case $at in
`

const bashEnd = `    esac
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -W "$next" -- "$word")
}
complete -o default -F _tidemark tidemark
`

// Bash writes the script for bash 3.2 and later. Where no word fits, bash offers files.
func Bash(list []Place) string {
	var b strings.Builder
	fmt.Fprintf(&b, bashBegin, strings.Join(valued(list), "|"), strings.Join(paths(list), "|"))
	for _, place := range list {
		fmt.Fprintf(&b, "        %s) next=%s ;;\n", quoted(place.Path), quoted(names(place.Words)))
	}
	b.WriteString(bashEnd)
	return b.String()
}

// names are words with a space between them.
func names(words []Word) string {
	var all []string
	for _, word := range words {
		all = append(all, word.Name)
	}
	return strings.Join(all, " ")
}

// zshBegin takes the flags with values and the places, each as alternatives of a case.
const zshBegin = `#compdef tidemark
# Completion of tidemark for zsh: source <(tidemark completion zsh)
_tidemark() {
    local at= i
    local -a next flags
    for ((i = 2; i < CURRENT; i++)); do
        case ${words[i]} in
            %s) ((i++)); continue ;;
        esac
        case "$at ${words[i]}" in
            ' help') ;;
            %s) at="$at ${words[i]}" ;;
        esac
    done
    if ((i > CURRENT)); then
        _files
        return
    fi
    case $at in
`

// zshEnd takes the places where files are offered.
const zshEnd = `    esac
    _describe -t commands 'command' next
    _describe -o -t options 'option' flags
    case $at in
        %s) _files ;;
    esac
}
if [[ ${funcstack[1]} == _tidemark ]]; then _tidemark "$@"; else compdef _tidemark tidemark; fi
`

// Zsh writes the script for zsh, to be sourced after compinit, or to lie in $fpath as
// _tidemark.
func Zsh(list []Place) string {
	var b strings.Builder
	fmt.Fprintf(&b, zshBegin, strings.Join(valued(list), "|"), strings.Join(paths(list), "|"))
	for _, place := range list {
		fmt.Fprintf(&b, "        %s)\n", quoted(place.Path))
		zshWords(&b, "next", place.Words, false)
		zshWords(&b, "flags", place.Words, true)
		b.WriteString("            ;;\n")
	}
	fmt.Fprintf(&b, zshEnd, strings.Join(paths(withFiles(list)), "|"))
	return b.String()
}

func zshWords(b *strings.Builder, array string, words []Word, flags bool) {
	fmt.Fprintf(b, "            %s=(\n", array)
	for _, word := range words {
		if word.Flag() == flags {
			fmt.Fprintf(b, "                %s\n", quoted(word.Name+":"+word.Help))
		}
	}
	b.WriteString("            )\n")
}

// fishBegin takes the flags with values and the places, each as a list.
const fishBegin = `# Completion of tidemark for fish: tidemark completion fish | source
function __tidemark_at
    set -l at ''
    set -l skip no
    for word in (commandline -opc)[2..]
        if test $skip = yes
            set skip no
        else if contains -- $word %s
            set skip yes
        else if contains -- "$at $word" %s; and test "$at $word" != ' help'
            set at "$at $word"
        end
    end
    test $skip = no; and test "$at" = "$argv[1]"
end
`

// Fish writes the script for fish.
func Fish(list []Place) string {
	var b strings.Builder
	fmt.Fprintf(&b, fishBegin, strings.Join(valued(list), " "), strings.Join(paths(list), " "))
	for _, place := range list {
		at := quoted(fmt.Sprintf("__tidemark_at %q", place.Path))
		if !place.Files {
			fmt.Fprintf(&b, "complete -c tidemark -n %s -f\n", at)
		}
		for _, word := range place.Words {
			fmt.Fprintf(&b, "complete -c tidemark -n %s %s -d %s\n", at, fishWord(word), quoted(word.Help))
		}
	}
	return b.String()
}

func fishWord(word Word) string {
	long, flag := strings.CutPrefix(word.Name, "--")
	switch {
	case word.Valued:
		return "-l " + quoted(long) + " -r -F"
	case flag:
		return "-l " + quoted(long)
	}
	return "-a " + quoted(word.Name)
}

// withFiles are the places where files are offered, after the program itself.
func withFiles(list []Place) []Place {
	some := list[:1:1]
	for _, place := range list[1:] {
		if place.Files {
			some = append(some, place)
		}
	}
	return some
}

// paths are the places below the program, each as one word of a shell.
func paths(list []Place) []string {
	var all []string
	for _, place := range list[1:] {
		all = append(all, quoted(place.Path))
	}
	return all
}

// quoted is a text as one word of a shell: the three agree on single quotes, but fish
// also reads a backslash in them.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, ""), "'", `'\''`) + "'"
}
