package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

func TestClean(t *testing.T) {
	s := NewScrubber([]string{"sesame", "open sesame", "abc"})
	for _, c := range [][2]string{
		{"say open sesame, or sesame", "say [secret], or [secret]"},
		{"abc is too short to look for", "abc is too short to look for"},
		{"open sesame, nats://a:b@c:4222", "[secret], nats://[secret]@c:4222"},
	} {
		if got := s.Clean(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestBundle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	b, err := Create(path, NewScrubber([]string{"sesame"}))
	if err != nil {
		t.Fatal(err)
	}
	if b.most != 32<<20 {
		t.Errorf("a part may have %d bytes", b.most)
	}
	b.most = 1 << 20 // else scrubbing takes seconds
	b.Add("a.txt", func() ([]byte, error) { return []byte("open sesame"), nil })
	b.Add("b.txt", func() ([]byte, error) { return nil, errors.New("no sesame") })
	b.Add("c.txt", func() ([]byte, error) { return []byte(strings.Repeat("1234567\n", b.most/8) + "sesa"), nil })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	got := e2e.Unpack(t, path)
	if got["tidemark-debug/a.txt"] != "open [secret]" || len(got) != 3 || len(got["tidemark-debug/c.txt"]) > b.most {
		t.Errorf("%.200q", got)
	}
	if got["tidemark-debug/missing.txt"] != "b.txt: no [secret]\nc.txt: what comes after its first 1 MiB\n" {
		t.Errorf("%q", got["tidemark-debug/missing.txt"])
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, err := Create(path, NewScrubber(nil)); !errors.Is(err, os.ErrExist) {
		t.Errorf("over one that is there: %v", err)
	}
}
