package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
)

const (
	budgetMiB     = 1024
	budgetSetting = "memory: {budget: 1GiB}\n"
)

// budget is more rows than memory holds: every other event makes a new one,
// and the others go to earlier ones by Zipf's law, the newer the likelier.
func (b *bench) budget(ctx context.Context) error {
	rows, settings := b.size.distinct, budgetSetting
	if rows == 0 {
		b.table.note("memory.budget is measured at large sizes only (-full).")
		return nil
	}
	what := fmt.Sprintf("memory.budget %d MiB", budgetMiB)
	if _, err := config.Parse("bench", []byte(settings)); err != nil {
		rows, settings, what = b.size.unbounded, "", "no memory.budget in this version"
	}
	what += fmt.Sprintf(", %s distinct rows", number(float64(rows)))
	b.say("budget: %s", what)
	p, c, err := b.launch(ctx, settings)
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	watched := p.watch()
	begun := time.Now()
	err = feedLines(ctx, c, func(add func([]byte) error) error { return zipfLines(add, rows) })
	took := time.Since(begun)
	peak := watched()
	if err != nil {
		return err
	}
	b.table.add(line{what: what, unit: "events/s", ours: sample{2 * float64(rows) / took.Seconds()}})
	memory := line{what: "the same, peak RssAnon", unit: "MiB", ours: sample{peak}, beside: "the budget"}
	if settings != "" {
		memory.theirs = sample{budgetMiB}
	} else {
		memory.beside = ""
	}
	b.table.add(memory)
	b.table.add(line{what: "the same, peak resident memory", unit: "MiB", ours: sample{p.resident("VmHWM")}})
	return nil
}

// zipfLines writes two events for each row.
func zipfLines(add func([]byte) error, rows int) error {
	ages := rand.NewZipf(rand.New(rand.NewPCG(1, 3)), 1.1, 10, uint64(rows))
	var buffer []byte
	for i := range uint64(rows) {
		for _, at := range []uint64{i, i - min(i, ages.Uint64())} {
			buffer = adjustLine(buffer[:0], postID(at), "like", int64(i&0x7f)+1)
			if err := add(buffer); err != nil {
				return err
			}
		}
	}
	return nil
}

// watch looks at the process's memory; the returned function ends that and
// gives the most RssAnon seen, in MiB.
func (p *program) watch() (peak func() float64) {
	var most float64
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			most = max(most, p.resident("RssAnon"))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	return func() float64 {
		close(stop)
		work.Wait()
		return most
	}
}
