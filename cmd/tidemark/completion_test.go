package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

// completes are the words that may follow each command, by the command line itself: the
// naive twin of package complete.
func completes() map[string][]string {
	all := map[string][]string{}
	var visit func(node *kong.Node, path string)
	visit = func(node *kong.Node, path string) {
		words := map[string]bool{}
		for _, child := range node.Children {
			words[child.Name] = true
			visit(child, path+" "+child.Name)
		}
		for n := node; n != nil; n = n.Parent {
			for _, flag := range n.Flags {
				words["--"+flag.Name] = !flag.Hidden
			}
		}
		if node.DefaultCmd != nil {
			for _, flag := range node.DefaultCmd.Flags {
				words["--"+flag.Name] = !flag.Hidden
			}
		}
		if path == " completion" {
			words["bash"], words["zsh"], words["fish"] = true, true, true
		}
		for word, shown := range words {
			if shown {
				all[path] = append(all[path], word)
			}
		}
		slices.Sort(all[path])
	}
	visit(newParser(terminal{}).Model.Node, "")
	all[" help"] = all[""]
	return all
}

// shell writes a script of completion and runs it with more of the shell's language before
// and after it. A shell that is not here is no failure on a developer's machine.
func shell(t *testing.T, name, before, after string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("no %s here: its completion is not tested", name)
	}
	script := command(t, nil, "", "completion", name)
	if script.code != 0 {
		t.Fatalf("%+v", script)
	}
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(before+script.out+after), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, file)
	cmd.Dir = t.TempDir() // without files to offer
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=dumb", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %.2000s", name, err, out)
	}
	return string(out)
}

// Every shell that has read its script offers every command, and every flag of it, and
// nothing else.
func TestCompletion(t *testing.T) {
	ask := map[string]func(path string) string{
		"bash": func(path string) string {
			words := strings.Fields("tidemark" + path)
			return fmt.Sprintf("COMP_WORDS=(%s ''); COMP_CWORD=%d; _tidemark; echo \"== %s\"; printf '%%s\\n' \"${COMPREPLY[@]}\"\n",
				strings.Join(words, " "), len(words), path)
		},
		"zsh": func(path string) string {
			words := strings.Fields("tidemark" + path)
			return fmt.Sprintf("words=(%s ''); CURRENT=%d; echo '== %s'; _tidemark\n", strings.Join(words, " "), len(words)+1, path)
		},
		"fish": func(path string) string {
			return fmt.Sprintf("echo '== %s'; complete -C 'tidemark%s '; complete -C 'tidemark%s --'\n", path, path, path)
		},
	}
	for name, question := range ask {
		t.Run(name, func(t *testing.T) {
			if name != "bash" {
				natstest.Long(t)
			}
			want, before := completes(), ""
			var questions strings.Builder
			if name == "zsh" { // the words as zsh's own function for showing them is given them
				before = "autoload -U compinit && compinit -u -D\n"
				questions.WriteString("_files() { }\n_describe() { print -rl -- \"${(P@)@[-1]}\"; }\n")
			}
			for path := range want {
				questions.WriteString(question(path))
			}
			got := offered(shell(t, name, before, questions.String()))
			for path, words := range want {
				if !slices.Equal(got[path], words) {
					t.Errorf("after tidemark%s %s offers\n%q, want\n%q", path, name, got[path], words)
				}
			}
			if len(want) < 50 {
				t.Errorf("%d places", len(want))
			}
		})
	}
}

// offered reads what shells were made to print: the places, each with its words.
func offered(text string) map[string][]string {
	got, path := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if place, is := strings.CutPrefix(line, "== "); is {
			path = place
			continue
		}
		word, _, _ := strings.Cut(line, "\t")
		if name, _, _ := strings.Cut(word, ":"); name != "" {
			got[path] = append(got[path], name)
		}
	}
	for path, words := range got {
		slices.Sort(words)
		got[path] = slices.Compact(words)
	}
	return got
}

// A word that is begun is completed, the value of a flag is no command, and help takes
// the names of commands.
func TestCompletionOfAWord(t *testing.T) {
	out := shell(t, "bash", "", `
ask() { COMP_WORDS=(tidemark "$@"); COMP_CWORD=$#; _tidemark; echo "${COMPREPLY[*]}"; }
ask nodes dr
ask --nats get nodes unf
ask nodes undr
ask help deplo
ask get post --colu
ask get --columns ''
`)
	if want := "drain\n\nundrain\ndeploy\n--columns\n\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}
