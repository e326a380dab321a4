package run

import (
	"io"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// rowsOf has rows of three small columns by ascending ids.
func rowsOf(ids []uint64) (list []entry) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := []int{0, 1, 2}
	for _, id := range ids {
		cells := []int64{rng.Int64N(50) + 1, rng.Int64N(20) + 1, rng.Int64N(200) + 1}
		list = append(list, entry{key: Key{Kind: Row, A: id}, value: AppendWhole(nil, numbers, cells)})
	}
	return list
}

// idsOf are n ids: like those of one shard of 64 among consecutive ones, or
// any 64 bits.
func idsOf(shape string, n int) []uint64 {
	rng := rand.New(rand.NewPCG(3, 4))
	var list []uint64
	for i := range uint64(n) {
		if shape == "random" {
			list = append(list, max(rng.Uint64(), 1))
		} else {
			list = append(list, 64*i+1+rng.Uint64N(64))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func BenchmarkMerge(b *testing.B) {
	for _, c := range []struct {
		name, shape string
		changes     bool
		skewed      bool
	}{
		{name: "whole", shape: "consecutive"},
		{name: "whole-random", shape: "random"},
		{name: "whole-skewed", shape: "consecutive", skewed: true}, // each run twice the one after it
		{name: "changes", shape: "consecutive", changes: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			// Eight runs; in that of changes, each id is in two of them.
			list := rowsOf(idsOf(c.shape, 400_000))
			rng := rand.New(rand.NewPCG(5, 6))
			lists := make([][]entry, 8)
			for _, e := range list {
				n := rng.IntN(8)
				if c.skewed {
					n = min(bits.TrailingZeros64(rng.Uint64()), 7)
				}
				if c.changes {
					n = rng.IntN(4)
					lists[n+4] = append(lists[n+4], e)
					e.value = []byte{formAdds | 1<<formBits | 1<<(formBits+2), 2, 4}
				}
				lists[n] = append(lists[n], e)
			}
			entries := 0
			var runs []*Run
			for _, list := range lists {
				entries += len(list)
				runs = append(runs, open(b, list))
			}
			for b.Loop() {
				var its []*Iterator
				for _, r := range runs {
					its = append(its, r.Iterator(&Scratch{Ahead: 256 << 10}))
				}
				m, w := NewMerger(its, true, nil), NewWriter(io.Discard)
				for m.Next() {
					if err := w.Add(m.Key(), m.Value(), m.Gone()); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Close(); err != nil || m.Err() != nil {
					b.Fatal(err, m.Err())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*entries), "ns/row")
		})
	}
}

// BenchmarkGet reads from a file in the page cache.
func BenchmarkGet(b *testing.B) {
	list := rowsOf(idsOf("consecutive", 1_000_000))
	data, info := write(b, list)
	path := filepath.Join(b.TempDir(), "run")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	r, err := Open(file, 0, info)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	present := map[uint64]bool{}
	for i := range list {
		present[list[i].key.A] = true
	}
	for _, want := range []bool{true, false} {
		name := map[bool]string{true: "hit", false: "miss"}[want]
		b.Run(name, func(b *testing.B) {
			keys := make([]Key, 0, 1<<16)
			for len(keys) < cap(keys) {
				if id := 1 + rng.Uint64N(64_000_000); present[id] == want {
					keys = append(keys, Key{Kind: Row, A: id})
				}
			}
			var s Scratch
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, _, found, err := r.Get(&keys[i&(len(keys)-1)], &s); err != nil || found != want {
					b.Fatal(err)
				}
				i++
			}
		})
	}
	b.Run("ascending", func(b *testing.B) {
		var s Scratch
		i := 0
		for b.Loop() {
			if _, _, found, err := r.Get(&list[i].key, &s); err != nil || !found {
				b.Fatal(err)
			}
			i = (i + 7) % len(list)
		}
	})
	b.ReportMetric(float64(r.Memory())/float64(len(list)), "B/row-kept")
}
