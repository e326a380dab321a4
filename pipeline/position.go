package pipeline

import (
	"fmt"
	"strconv"
)

// PackMax is the most events one message may carry.
const PackMax = 1 << lineBits

const (
	lineBits = 10
	lineMask = PackMax - 1
)

// Position is an event's place in the log: its message's stream sequence
// shifted left by ten bits, plus its line in the message (0 for the first).
// Positions grow with log order and are never used twice; 0 is before every
// event.
type Position uint64

// PositionMax is beyond every log: 2^53 messages. Shards use the bit above.
const PositionMax Position = 1<<63 - 1

// At is the position of one line of a message; line is below PackMax.
func At(sequence uint64, line int) Position {
	return Position(sequence<<lineBits | uint64(line))
}

// EndOf is the position that covers every line a message can have.
// A window that ends there has read the whole message.
func EndOf(sequence uint64) Position { return At(sequence, lineMask) }

// Sequence is the stream sequence of the message.
func (p Position) Sequence() uint64 { return uint64(p) >> lineBits }

// Line is the line within the message.
func (p Position) Line() int { return int(p & lineMask) }

// Next is the message a reader goes on with after p. Lines at or before p in
// that message have been read already.
func (p Position) Next() (sequence uint64) {
	if p.Line() == lineMask {
		return p.Sequence() + 1
	}
	return max(p.Sequence(), 1)
}

func (p Position) String() string { return strconv.FormatUint(uint64(p), 10) }

// ParsePosition reads the decimal form.
func ParsePosition(s string) (Position, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pipeline: position %q is not an unsigned 64-bit decimal number", s)
	}
	return Position(n), nil
}
