package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrCorrupt wraps every complaint about stored bytes.
var ErrCorrupt = errors.New("archive: damaged")

// Sum is a SHA-256; its text is 64 hexadecimal digits.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(s[:], text[:min(len(text), 2*len(s))]); err != nil || n != len(s) || len(text) != 2*len(s) {
		return fmt.Errorf("%.80q is not a SHA-256 of %d hexadecimal digits", text, 2*len(s))
	}
	return nil
}

// Seal is v as one line of JSON, and a second line: the SHA-256 of the first.
func Seal(v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	line = append(line, '\n')
	return fmt.Appendf(line, "%s\n", Sum(sha256.Sum256(line))), nil
}

// Unseal reads what Seal made. The error wraps [ErrCorrupt] unless a later version
// has written it.
func Unseal(b []byte, v any) error {
	line, rest, found := bytes.Cut(b, []byte{'\n'})
	if want := Sum(sha256.Sum256(b[:min(len(line)+1, len(b))])).String() + "\n"; !found || string(rest) != want {
		return fmt.Errorf("%w: its %d bytes are not those that were written: the checksum does not fit", ErrCorrupt, len(b))
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
