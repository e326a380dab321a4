package importer

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func cutAll(lines []string, from record) (packs []*pack) {
	in := &input{force: true, source: strings.NewReader(strings.Join(lines, "\n"))}
	if err := in.open(); err != nil {
		panic(err)
	}
	ch := in.read(context.Background(), 1000, from)
	for p := range ch {
		packs = append(packs, p)
	}
	if in.err != nil {
		panic(in.err)
	}
	return packs
}

// "every run, and every attempt in a run, cuts the same packs"
func TestSamePacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,40}`), 1, 200).Draw(t, "lines")
		from := record{Pack: rapid.IntRange(1, 20).Draw(t, "pack"), Bytes: rapid.IntRange(10, 300).Draw(t, "bytes")}
		// The input was shorter once, and ended in an early pack.
		short := rapid.IntRange(0, len(lines)).Draw(t, "short")
		from.Cut = uint64(short)
		packs := cutAll(lines, from)
		if short > 0 {
			before := cutAll(lines[:short], record{Pack: from.Pack, Bytes: from.Bytes})
			for i, p := range before {
				if q := packs[i]; q.first != p.first || q.last != p.last || q.hash != p.hash || !bytes.Equal(p.body, q.body) {
					t.Fatalf("pack %d: lines %s, were %s", i, q.lines(), p.lines())
				}
			}
		}
		var all []string
		for i, p := range packs {
			all = append(all, strings.Split(string(p.body), "\n")...)
			if p.last != uint64(len(all)) || len(all)-int(p.first)+1 > from.Pack || len(p.body) > from.Bytes && p.first != p.last {
				t.Fatalf("pack %d: lines %s, %d bytes", i, p.lines(), len(p.body))
			}
			// Going on behind this pack gives the others.
			on := from
			on.Lines, on.Hash = p.last, p.hash
			rest := cutAll(lines, on)
			if len(rest) != len(packs)-i-1 {
				t.Fatalf("behind pack %d: %d packs, want %d", i, len(rest), len(packs)-i-1)
			}
			for j, q := range rest {
				if w := packs[i+1+j]; q.hash != w.hash || q.first != w.first || q.last != w.last {
					t.Fatalf("behind pack %d: %s, want %s", i, q.lines(), w.lines())
				}
			}
		}
		if strings.Join(all, "\n") != strings.Join(lines, "\n") {
			t.Fatal("lines are missing")
		}
	})
}

func TestPlainName(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a b", "a-b", "a  b", "a.b", "é", "ü", repeat("x", 65), repeat("x", 66), "higgs_v1"} {
		plain := plainName(name)
		if notPlain.MatchString(plain) || len(plain) > 80 {
			t.Errorf("%q becomes %q", name, plain)
		}
		if other, twice := seen[plain]; twice {
			t.Errorf("%q and %q become %q", name, other, plain)
		}
		seen[plain] = name
	}
}

func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		text, want string
		whole      bool
	}{
		{"", "", true},
		{"a\n\n \r\nb\nc", "a\nb\nc\n", true},
		{"a\n\n \r\nb\nc", "a\nb\n", false},
		{"abc", "abc\n", false},
	} {
		if got := string(prefixOf([]byte(c.text), c.whole)); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
