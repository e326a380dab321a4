package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	s := NewScrubber([]string{"sesame", "open sesame", "abc"})
	seed := "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
	for _, c := range [][2]string{
		{"say open sesame, or sesame", "say [secret], or [secret]"},
		{"abc is too short to look for", "abc is too short to look for"},
		{"lost nats://a:b@c:4222 and nats://tok@d", "lost nats://[secret]@c:4222 and nats://[secret]@d"},
		{"nats://u@x:y@h:1", "nats://[secret]@h:1"},
		{"http://h:1/a@b", "http://h:1/a@b"},
		{"Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"},
		{"GET /v1/live?token=abc&x=1", "GET /v1/live?token=[secret]&x=1"},
		{"seed " + seed + ".", "seed [secret]."},
		{"jwt eyJ0eXAiOiJKV1Q.eyJqdGkiOi.c2ln end", "jwt [secret] end"},
		{`{"url":"nats://a:b@c"}`, `{"url":"nats://[secret]@c"}`},
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
	b.Add("a.txt", func() ([]byte, error) { return []byte("open sesame"), nil })
	b.Add("b.txt", func() ([]byte, error) { return nil, errors.New("no sesame") })
	b.Add("c.txt", func() ([]byte, error) { return []byte(strings.Repeat("1234567\n", PartMax/8) + "sesa"), nil })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, path)
	if got["a.txt"] != "open [secret]" || len(got) != 3 || len(got["c.txt"]) > PartMax {
		t.Errorf("%.200q", got)
	}
	if got["missing.txt"] != "b.txt: no [secret]\nc.txt: what comes after its first 32 MiB\n" {
		t.Errorf("%q", got["missing.txt"])
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, err := Create(path, NewScrubber(nil)); !errors.Is(err, os.ErrExist) {
		t.Errorf("over one that is there: %v", err)
	}
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for r := tar.NewReader(unpacked); ; {
		head, err := r.Next()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		parts[strings.TrimPrefix(head.Name, "tidemark-debug/")] = string(data)
	}
}
