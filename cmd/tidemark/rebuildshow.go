package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cheggaaa/pb/v3"

	"github.com/tidemark-io/tidemark/internal/node"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// whyShown is how much is shown of why a rebuild was aborted, or does not go on.
const whyShown = 1024

// printRebuild is how a rebuild stands, for people.
func printRebuild(to io.Writer, s *node.RebuildStatus) error {
	if s.Building != 0 && len(s.Examples) > 0 {
		out := &table{left: []bool{0: true, 2: true, 7: true}}
		out.add("COUNTER", "ID", "COLUMN", "IS", "SHOULD", "AT", "GENERATION", "NODE")
		for _, d := range s.Examples {
			out.add(printable(d.Counter, nameShown), strconv.FormatUint(d.ID, 10), printable(d.Column, nameShown),
				strconv.FormatInt(d.Is, 10), strconv.FormatInt(d.Should, 10), d.At.String(),
				strconv.FormatUint(uint64(d.Generation), 10), printable(d.Node, nameShown))
		}
		if err := out.print(to); err != nil {
			return err
		}
	}
	if s.State == generation.Building && len(s.Nodes) > 0 {
		out := &table{left: []bool{0: true, 3: true}}
		out.add("NODE", "SHARDS", "POSITION", "TROUBLE")
		for _, n := range s.Nodes {
			out.add(printable(n.Node, nameShown), strconv.Itoa(n.Shards), strconv.FormatUint(n.Position, 10), printable(n.Trouble, 1024))
		}
		if err := out.print(to); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(to, "generation %d serves; %s\n", s.Serving, besideText(s)); err != nil || s.Why == "" {
		return err
	}
	_, err := fmt.Fprintf(to, "why: %s\n", printable(s.Why, whyShown))
	return err
}

// besideText says what is beside the generation that serves, and what can be done.
func besideText(s *node.RebuildStatus) string {
	switch {
	case s.Waits:
		return fmt.Sprintf("generation %d waits, it or the one that serves differs from the log in %s: 'tidemark rebuild --accept' has it serve all the same, '--abort' drops it", s.Building, count(int(s.Differs), "id"))
	case s.State == generation.Comparing:
		return fmt.Sprintf("generation %d has caught up and is compared", s.Building)
	case s.State == generation.Building:
		return fmt.Sprintf("generation %d is building, %s", s.Building, farText(s))
	case s.Kept != 0 && s.Lost:
		return fmt.Sprintf("generation %d has counted events that EVENTS has lost, and will be dropped", s.Kept)
	case s.Kept != 0:
		return fmt.Sprintf("generation %d is kept up to date: 'tidemark rebuild --back' has it serve again", s.Kept)
	case s.State == generation.Aborted:
		return "the rebuild was aborted"
	case s.State == generation.Switched:
		return "the one before is dropped"
	}
	return "there was no rebuild"
}

// farText is how far the new generation is.
func farText(s *node.RebuildStatus) string {
	text := fmt.Sprintf("at %d of %d, %d %%", s.Position, s.Of, int(100*share(s)))
	if s.ETA > 0 {
		text += ", " + leftText(s) + " left"
	}
	return text
}

func share(s *node.RebuildStatus) float64 {
	if s.Of == 0 {
		return 1
	}
	return min(float64(s.Position)/float64(s.Of), 1)
}

func leftText(s *node.RebuildStatus) string {
	const most = float64(100 * 365 * 24 * time.Hour / time.Second)
	return (time.Duration(min(s.ETA, most)*float64(time.Second)) / time.Second * time.Second).String()
}

// rebuildBar shows how far a generation is: a bar on a terminal, else a line each
// checkTellEvery.
type rebuildBar struct {
	to   io.Writer
	bar  *pb.ProgressBar // nil: lines
	told time.Time
	last string
}

func newRebuildBar(to io.Writer) *rebuildBar {
	b := &rebuildBar{to: to}
	if f := screen(to); f != nil {
		b.bar = pb.New64(0).SetTemplateString(`{{string . "what"}} {{bar . }} {{percent . }} {{string . "left"}}`).SetWriter(f).Start()
	}
	return b
}

// Write shows something in between.
func (b *rebuildBar) Write(text []byte) (int, error) {
	if b.bar != nil {
		fmt.Fprint(b.to, "\r\x1b[K")
	}
	return b.to.Write(text)
}

func (b *rebuildBar) show(s *node.RebuildStatus) {
	if b.bar != nil {
		what, left := "building", ""
		if s.State == generation.Comparing {
			what = "comparing"
		} else if s.ETA > 0 {
			left = leftText(s) + " left"
		}
		b.bar.Set("what", what).Set("left", left).SetTotal(int64(max(s.Of, 1))).SetCurrent(int64(share(s) * float64(max(s.Of, 1))))
		return
	}
	text := besideText(s)
	if s.Why != "" {
		text += ": " + printable(s.Why, whyShown)
	}
	if text != b.last && time.Since(b.told) >= checkTellEvery {
		b.told, b.last = time.Now(), text
		fmt.Fprintf(b.to, "rebuild: %s\n", text)
	}
}

// end may be called twice.
func (b *rebuildBar) end() {
	if b.bar != nil {
		b.bar.Finish()
		b.bar = nil
	}
}
