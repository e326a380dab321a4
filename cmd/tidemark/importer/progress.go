package importer

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cheggaaa/pb/v3"
)

// tellEvery is how often progress is written where there is no terminal.
const tellEvery = 5 * time.Second

// progress shows how far an import is. Its one goroutine is pb's own.
type progress struct {
	in    *input
	began time.Time
	told  time.Time
	to    io.Writer       // nil: nobody listens
	bar   *pb.ProgressBar // nil: lines of text
}

func startProgress(to io.Writer, in *input) *progress {
	now := time.Now()
	p := &progress{in: in, to: to, began: now, told: now}
	f, ok := to.(*os.File)
	if !ok {
		return p
	}
	if i, err := f.Stat(); err != nil || i.Mode()&os.ModeCharDevice == 0 {
		return p
	}
	template := `{{string . "lines"}} {{bar . }} {{percent . }} {{string . "left"}}`
	if in.size == 0 {
		template = `{{string . "lines"}} {{cycle . "-" "\\" "|" "/"}}`
	}
	p.bar = pb.New64(in.size).SetTemplateString(template).SetWriter(f).Start()
	return p
}

// show is called again and again with the lines imported so far.
func (p *progress) show(lines uint64) {
	switch {
	case p.bar != nil:
		p.bar.Set("lines", p.rate(lines)).Set("left", p.left()).SetCurrent(min(p.in.done.Load(), p.in.size))
	case p.to != nil && time.Since(p.told) >= tellEvery:
		p.told = time.Now()
		text := p.rate(lines)
		if p.in.size > 0 {
			text += fmt.Sprintf(", %d %%, %s", 100*p.in.done.Load()/p.in.size, p.left())
		}
		fmt.Fprintf(p.to, "import: %s\n", text)
	}
}

func (p *progress) end(lines uint64) {
	if p.bar == nil {
		return
	}
	p.show(lines)
	p.bar.Finish()
}

func (p *progress) rate(lines uint64) string {
	return fmt.Sprintf("%d lines, %.0f/s", lines, float64(lines)/max(time.Since(p.began).Seconds(), 1e-3))
}

// left is the time that the rest takes at the rate so far.
func (p *progress) left() string {
	done := p.in.done.Load()
	if done == 0 || p.in.size == 0 {
		return ""
	}
	left := time.Duration(float64(time.Since(p.began)) * float64(p.in.size-min(done, p.in.size)) / float64(done))
	return left.Round(time.Second).String() + " left"
}
