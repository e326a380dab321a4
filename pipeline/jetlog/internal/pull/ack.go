package pull

import "strings"

// Ack is what the reply subject of a delivered message says of it.
type Ack struct {
	Stream   uint64 // sequence in the stream
	Consumer uint64 // sequence in the consumer: continuous, or something was lost on the way
	Nanos    int64  // the stream's timestamp, Unix
	Pending  uint64 // messages of the stream behind this one
}

// The reply subject, in its two forms:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<nanos>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<nanos>.<pending>[.<token>]
//
// Everything before <delivered> is the same for all messages of a consumer:
// it is measured once (ackPrefix), and the numbers behind it are read by hand,
// without allocation, because this happens for every message.

// ackPrefix is the part of a reply subject before <delivered>, or "" when
// reply is none.
func ackPrefix(reply string) string {
	if !strings.HasPrefix(reply, "$JS.ACK.") {
		return ""
	}
	tokens := 4
	switch n := strings.Count(reply, ".") + 1; {
	case n == 9:
	case n >= 11:
		tokens = 6
	default:
		return ""
	}
	end := 0
	for range tokens {
		end += strings.IndexByte(reply[end:], '.') + 1
	}
	return reply[:end]
}

// parseAck reads a reply subject that begins with prefix.
func parseAck(prefix, reply string) (a Ack, ok bool) {
	if prefix == "" || !strings.HasPrefix(reply, prefix) {
		return Ack{}, false
	}
	var n [5]uint64
	at := len(prefix)
	for i := range n {
		start := at
		for at < len(reply) && reply[at]-'0' <= 9 {
			n[i] = n[i]*10 + uint64(reply[at]-'0')
			at++
		}
		if at == start || (at < len(reply) && reply[at] != '.') {
			return Ack{}, false
		}
		at++ // the dot
	}
	return Ack{Stream: n[1], Consumer: n[2], Nanos: int64(n[3]), Pending: n[4]}, true
}
