// Package bundle writes what one looks at when a node is in trouble into one .tar.gz,
// without secrets: `tidemark debug bundle`.
//
// A [Bundle] is created for a file, is given parts with [Bundle.Add], and is closed. A part
// that cannot be had is no failure: the bundle says so in missing.txt, since a node in
// trouble may answer nothing. Texts pass through a [Scrubber], which takes out the secrets
// that the configuration has, and what looks like one wherever it comes from.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// PartMax bounds a part. What is longer is cut, and listed as such.
const PartMax = 32 << 20

// Bundle is not safe for concurrent use.
type Bundle struct {
	file    *os.File
	packed  *gzip.Writer
	tar     *tar.Writer
	scrub   *Scrubber
	at      time.Time
	most    int // bytes of a part
	parts   int
	missing []string
	failed  error // the first failure to write
}

// Create makes the file, which must not be there: only its owner may read it.
func Create(path string, scrub *Scrubber) (*Bundle, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	packed := gzip.NewWriter(f)
	return &Bundle{file: f, packed: packed, tar: tar.NewWriter(packed), scrub: scrub, at: time.Now(), most: PartMax}, nil
}

// Add writes a part. get's error is noted, and not returned; so is a part over PartMax.
func (b *Bundle) Add(name string, get func() ([]byte, error)) {
	data, err := get()
	if err != nil {
		b.Miss(name, err.Error())
		return
	}
	if len(data) > b.most {
		data = data[:bytes.LastIndexByte(data[:b.most], '\n')+1] // half a secret is not found
		b.Miss(name, fmt.Sprintf("what comes after its first %d MiB", b.most>>20))
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) { // profiles are packed, and hold no values
		data = []byte(b.scrub.Clean(string(data)))
	}
	b.write(name, data)
}

// Miss notes why a part is not there.
func (b *Bundle) Miss(name, why string) {
	b.missing = append(b.missing, b.scrub.Clean(name+": "+why))
}

// Missing lists what was noted.
func (b *Bundle) Missing() []string { return b.missing }

// Parts is how many were written.
func (b *Bundle) Parts() int { return b.parts }

func (b *Bundle) write(name string, data []byte) {
	if b.failed != nil {
		return
	}
	head := &tar.Header{Name: "tidemark-debug/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.at}
	if b.failed = b.tar.WriteHeader(head); b.failed == nil {
		_, b.failed = b.tar.Write(data)
	}
	b.parts++
}

// Close writes missing.txt and closes the file. A bundle that could not be written is
// removed.
func (b *Bundle) Close() error {
	if len(b.missing) > 0 {
		b.write("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"))
	}
	for _, c := range []io.Closer{b.tar, b.packed, b.file} {
		if err := c.Close(); b.failed == nil {
			b.failed = err
		}
	}
	if b.failed != nil {
		os.Remove(b.file.Name())
	}
	return b.failed
}

// Scrubber takes secrets out of texts.
type Scrubber struct{ known *strings.Replacer }

// secretMin is the least length of a secret that is looked for everywhere: a shorter one
// would take pieces out of other words.
const secretMin = 6

// NewScrubber is for the secrets of a configuration (config.Config.Shown).
func NewScrubber(secrets []string) *Scrubber {
	var pairs []string
	secrets = slices.Clone(secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be in another
	for _, s := range slices.Compact(secrets) {
		if len(s) >= secretMin {
			pairs = append(pairs, s, kit.Hidden)
		}
	}
	return &Scrubber{strings.NewReplacer(pairs...)}
}

// Clean returns the text without secrets.
func (s *Scrubber) Clean(text string) string { return kit.Clean(s.known.Replace(text)) }
