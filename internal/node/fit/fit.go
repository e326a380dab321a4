// Package fit looks whether a machine and a configuration are fit for a node: what
// `tidemark check` prints. It changes nothing but a file in data_dir that it writes to
// time a synced write, and removes.
//
// [Look] (fit.go) does all of it and returns a [Report] of findings. machine.go has what is
// of this machine: files (files_unix.go, files_other.go), disk, keys, ports. log.go has what
// the NATS server says: whether it is there, its clock, the streams, what the key may do.
// Each bound has a name.
package fit

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Verdict is what a finding comes to.
type Verdict string

// A thing that could not be looked at is neither good nor bad.
const (
	Good    Verdict = "good"
	Bad     Verdict = "bad"
	Unknown Verdict = "unknown"
)

// Finding is one thing that was looked at.
type Finding struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Is      string  `json:"is"`           // as it is, with the bound
	Do      string  `json:"do,omitempty"` // of a bad one: what to do
}

// Report is all of them, in the order of looking.
type Report struct {
	Fit      bool      `json:"fit"` // nothing is bad
	Findings []Finding `json:"findings"`
}

// Options say where to look.
type Options struct {
	Config  *config.Config
	File    string // where the configuration came from
	Connect jetlog.ConnectOptions
	Within  time.Duration // the longest for what is asked of the server
}

// Look looks at everything.
func Look(ctx context.Context, o Options) Report {
	r := Report{Fit: true}
	r.good("configuration", "%s", o.File)
	r.files(o.Config)
	if !o.Config.Thin() {
		r.disk(o.Config)
	}
	r.keys(o.Config)
	r.log(ctx, o)
	return r
}

func (r *Report) add(f Finding) {
	r.Fit = r.Fit && f.Verdict != Bad
	r.Findings = append(r.Findings, f)
}

func (r *Report) good(name, format string, args ...any) {
	r.add(Finding{Name: name, Verdict: Good, Is: fmt.Sprintf(format, args...)})
}

func (r *Report) unknown(name, format string, args ...any) {
	r.add(Finding{Name: name, Verdict: Unknown, Is: fmt.Sprintf(format, args...)})
}

func (r *Report) bad(name, do, format string, args ...any) {
	r.add(Finding{Name: name, Verdict: Bad, Is: fmt.Sprintf(format, args...), Do: do})
}

// judge is good or bad.
func (r *Report) judge(fit bool, name, do, format string, args ...any) {
	if fit {
		r.good(name, format, args...)
	} else {
		r.bad(name, do, format, args...)
	}
}
