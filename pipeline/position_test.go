package pipeline

import "testing"

// docs/architecture.md: "stream sequence × 1,024 + line in the message."
func TestPosition(t *testing.T) {
	p := At(7, 3)
	if p != 7<<10|3 || p.Sequence() != 7 || p.Line() != 3 {
		t.Fatalf("At(7, 3) = %d: sequence %d, line %d", p, p.Sequence(), p.Line())
	}
	for _, c := range []struct {
		after Position
		next  uint64
	}{{0, 1}, {At(7, 3), 7}, {EndOf(7), 8}} {
		if got := c.after.Next(); got != c.next {
			t.Errorf("after %d comes message %d, want %d", c.after, got, c.next)
		}
	}
	if _, err := ParsePosition("-1"); err == nil {
		t.Error("-1 was taken for a position")
	}
}

// Stored rows depend on these values.
func TestShardGolden(t *testing.T) {
	golden := map[uint64]uint64{
		1:         0x910a2dec89025cc1,
		42:        0xbdd732262feb6e95,
		1<<64 - 1: 0xe4d971771b652c20,
	}
	for id, want := range golden {
		if got := Mix(id); got != want {
			t.Errorf("Mix(%d) = %#x, want %#x", id, got, want)
		}
		if got := ShardOf(id, 64); got != Shard(want%64) {
			t.Errorf("ShardOf(%d, 64) = %d, want %d", id, got, want%64)
		}
	}
}
