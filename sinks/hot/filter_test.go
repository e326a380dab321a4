package hot

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A filter beside a map of its prints: there is what was added, and nothing else.
func TestFilterTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, twin := NewFilter(), map[Print]bool{}
		few := rapid.Uint32Range(1, 60)
		print := rapid.OneOf(
			rapid.Map(few, func(n uint32) Print { return Print(n) }),  // in the first places
			rapid.Map(few, func(n uint32) Print { return Print(-n) }), // in the last, and around the end
			rapid.Map(few, func(n uint32) Print { return Print(n << 26) }),
			rapid.Map(few, func(n uint32) Print { return PrintOf(uint64(n), pipeline.Member{A: 7}) }),
		)
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := print.Draw(t, "print")
				f.Add(p)
				twin[p] = true
			},
			"add many": func(t *rapid.T) {
				for range rapid.IntRange(1, 9000).Draw(t, "many") {
					next++
					p := PrintOf(next, pipeline.Member{A: 7})
					f.Add(p)
					twin[p] = true
				}
			},
			"has": func(t *rapid.T) {
				if p := print.Draw(t, "print"); f.Has(p) != twin[p] {
					t.Fatalf("Has(%x): %v", p, f.Has(p))
				}
			},
			"": func(t *rapid.T) {
				if f.Len() != len(twin) {
					t.Fatalf("%d prints, want %d", f.Len(), len(twin))
				}
			},
		})
		for p := range twin {
			if !f.Has(p) {
				t.Fatalf("%x is not there", p)
			}
		}
		checkFilter(t, f)
	})
}

// checkFilter holds a filter against its own sums.
func checkFilter(t fatal, f *Filter) {
	prints, bytes := 0, 8*cap(f.dir)
	for i := 0; i < len(f.dir); i += 1 << (f.depth - f.dir[i].depth) {
		p, n := f.dir[i], 0
		for at, print := range p.places {
			if print == 0 {
				continue
			}
			n++
			if f.page(print) != p || p.find(print) != at {
				t.Fatalf("print %x is at %d of page %d", print, at, i)
			}
		}
		if n != p.prints || 5*n > 4*len(p.places) {
			t.Fatalf("%d prints in %d places, counted %d", n, len(p.places), p.prints)
		}
		prints += n
		bytes += 4*cap(p.places) + pageBytes
	}
	if len(f.dir) > 4*f.pages<<pageSlack {
		t.Fatalf("a directory of %d entries for %d pages", len(f.dir), f.pages)
	}
	if prints != f.Len() || bytes != f.Bytes() {
		t.Fatalf("%d prints, %d bytes; counted %d, %d", prints, bytes, f.Len(), f.Bytes())
	}
}

// Prints that agree in all high bits have one page, which grows, and not the directory.
func TestFilterOfPrintsAlike(t *testing.T) {
	f := NewFilter()
	const prints = 30_000
	for print := range Print(prints) {
		f.Add(print + 1)
	}
	for print := range Print(prints) {
		if !f.Has(print + 1) {
			t.Fatalf("%x is not there", print+1)
		}
	}
	checkFilter(t, f)
}

// BenchmarkFilterAdd adds prints that are new, 64 at a time, as a window does.
func BenchmarkFilterAdd(b *testing.B) {
	for name, filters := range map[string]int{"one": 1, "of 32": 32} {
		b.Run(name, func(b *testing.B) {
			all, prints := make([]*Filter, filters), make([]Print, b.N)
			for i := range all {
				all[i] = NewFilter()
			}
			for i := range prints {
				prints[i] = PrintOf(rand.Uint64(), pipeline.Member{A: 1})
			}
			b.ResetTimer()
			touched := uint64(0)
			for i := 0; i < b.N; i += 64 {
				f, some := all[i/64%filters], prints[i:min(i+64, b.N)]
				for _, print := range some {
					touched += f.Touch(print)
				}
				for _, print := range some {
					f.Add(print)
				}
			}
			bytes, n := 0, 0
			for _, f := range all {
				bytes, n = bytes+f.Bytes(), n+f.Len()
			}
			b.ReportMetric(float64(bytes)/float64(n), "B/print")
		})
	}
}
