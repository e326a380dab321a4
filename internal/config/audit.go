package config

import "github.com/tidemark-io/tidemark/pipeline"

// Audit is the comparison of what is served with the log that never ends.
type Audit struct {
	Rate   int    `yaml:"rate"`   // events a second, 0 to 10000000, 0 = off; 5000
	Sample string `yaml:"sample"` // of all ids at a time, 1/1 to 1/1048576, a power of two; 1/64
	Memory Size   `yaml:"memory"` // bytes for the numbers of a sample, 1MiB to 64GiB; 64MiB
}

// Bits is the sample as a number of bits: it is one in 2^Bits.
func (a *Audit) Bits() int {
	bits, _ := pipeline.ParseShare(a.Sample) // checked
	return bits
}

func (d *decoder) checkAudit(a *Audit) {
	const sample = "audit.sample"
	within(d, "audit.rate", a.Rate, 0, 10_000_000)
	within(d, "audit.memory", a.Memory, MiB, 64*GiB)
	if _, err := pipeline.ParseShare(a.Sample); err != nil && d.sound(sample) {
		d.fault(d.lines[sample], sample, "%v", err)
	}
}
