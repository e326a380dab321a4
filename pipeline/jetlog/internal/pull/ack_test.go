package pull

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestParseAck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Ack{
			Stream: rapid.Uint64().Draw(t, "stream"), Consumer: rapid.Uint64().Draw(t, "consumer"),
			Nanos: rapid.Int64Min(0).Draw(t, "nanos"), Pending: rapid.Uint64().Draw(t, "pending"),
		}
		numbers := fmt.Sprintf("1.%d.%d.%d.%d", want.Stream, want.Consumer, want.Nanos, want.Pending)
		for _, reply := range []string{
			"$JS.ACK.EVENTS.name." + numbers,
			"$JS.ACK._.hash.EVENTS.name." + numbers,
			"$JS.ACK.hub.hash.EVENTS.name." + numbers + ".token",
		} {
			if got, ok := parseAck(ackPrefix(reply), reply); !ok || got != want {
				t.Fatalf("%s: %+v, %t", reply, got, ok)
			}
		}
	})
	prefix := "$JS.ACK.EVENTS.name."
	for _, reply := range []string{
		"", "x", "$JS.ACK.EVENTS.name.1.2.3.4", "$JS.ACK.EVENTS.name.1.2.3.4.", "$JS.ACK.EVENTS.name.1.2.x.4.5",
		"$JS.ACK.EVENTS.other.1.2.3.4.5", "$JS.ACK.EVENTS.name.1.2.3.4.5x",
	} {
		if got, ok := parseAck(prefix, reply); ok {
			t.Errorf("%q is read as %+v", reply, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { parseAck(prefix, prefix+"1.2.3.4.5") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
