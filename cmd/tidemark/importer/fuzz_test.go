package importer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Whatever a file holds, plain or compressed: its lines that are not blank
// come in order in packs within the bounds, a word in the place of each that is too long;
// and an import that goes on behind any pack sends the rest.
func FuzzInput(f *testing.F) {
	const lineMax = 1000
	f.Add([]byte("{\"a\":1}\n\n \r\n{\"b\":2}\r\nlast"), false, uint8(1), uint8(20))
	f.Add([]byte("\xef\xbb\xbf{}\n{}\n{}\n"), true, uint8(2), uint8(0))
	f.Add([]byte(strings.Repeat("x", lineMax)+"\n"+strings.Repeat("y", lineMax+1)+"\nz"), false, uint8(255), uint8(255))
	f.Add(zip("{}\n{}\n"), false, uint8(1), uint8(1))
	f.Add(zip("{}\n{}\n")[:15], false, uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, compressed bool, most, size uint8) {
		from := record{Pack: int(most) + 1, Bytes: int(size) + 1}
		read := func(from record) (packs []*pack, lines []string, err error) {
			source := text
			if compressed {
				source = zip(string(text))
			}
			in := &input{force: true, source: bytes.NewReader(source)}
			if err := in.open(); err != nil {
				return nil, nil, err
			}
			for p := range in.read(context.Background(), lineMax, from) {
				packs = append(packs, p)
				lines = append(lines, strings.Split(string(p.body), "\n")...)
				if p.last-p.first+1 > uint64(from.Pack) || len(p.body) > from.Bytes && p.first != p.last || p.last != from.Lines+uint64(len(lines)) {
					t.Fatalf("lines %s in %d bytes, %d lines so far", p.lines(), len(p.body), len(lines))
				}
			}
			return packs, lines, in.err
		}
		packs, lines, err := read(from)
		if !compressed && bytes.HasPrefix(text, gzipMagic) {
			return // whatever it is, it was read
		}
		var want []string
		for line := range strings.SplitSeq(strings.TrimPrefix(string(text), string(byteOrder)), "\n") {
			if len(line) > lineMax {
				line = fmt.Sprintf(leftOut, len(line))
			}
			if strings.Trim(line, " \t\r") != "" {
				want = append(want, line)
			}
		}
		if err != nil || !slices.Equal(lines, want) {
			t.Fatalf("%q, %v; want %q", lines, err, want)
		}
		if len(packs) > 0 {
			p := packs[(int(most)+int(size))%len(packs)]
			on := from
			on.Lines, on.Hash = p.last, p.hash
			if _, rest, _ := read(on); !slices.Equal(rest, want[p.last:]) {
				t.Fatalf("behind line %d: %q, want %q", p.last, rest, want[p.last:])
			}
		}
	})
}
