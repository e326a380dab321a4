package importer

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
)

const benchLines = 1_000_000

// BenchmarkRead is everything but the server: read, cut, hash.
func BenchmarkRead(b *testing.B) {
	_, text := events(benchLines)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		in := &input{force: true, source: bytes.NewReader([]byte(text))}
		if err := in.open(); err != nil {
			b.Fatal(err)
		}
		n := uint64(0)
		for p := range in.read(context.Background(), 1<<20, record{Pack: packDefault, Bytes: packBytesMax}) {
			n = p.last
		}
		if n != benchLines {
			b.Fatal(n)
		}
	}
	b.ReportMetric(benchLines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkImport is a whole import into a real server.
func BenchmarkImport(b *testing.B) {
	_, text := events(benchLines)
	path := write(b, filepath.Join(b.TempDir(), "events"), []byte(text))
	t := newBench(b)
	b.SetBytes(int64(len(text)))
	for i := 0; b.Loop(); i++ {
		r, err := Run(t.ctx, t.nc, path, nil, Options{Name: string(rune('a' + i))})
		if err != nil || r.Lines != benchLines {
			b.Fatal(r, err)
		}
		stream, err := t.js.Stream(t.ctx, eventsStream)
		t.must(err)
		b.StopTimer()
		t.must(stream.Purge(t.ctx))
		b.StartTimer()
	}
	b.ReportMetric(benchLines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	_ = os.Remove(path)
}
