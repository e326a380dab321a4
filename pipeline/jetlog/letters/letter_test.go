package letters

import (
	"bytes"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// Whatever an event's headers, body and fault are: its letter can be
// published, says where it came from, carries each header or counts it, and
// none of those acts on the stream.
func FuzzLetter(f *testing.F) {
	f.Add("A: 1\r\nNats-Msg-Id: m\r\nTidemark-Line: 7", []byte(`{"actor":NaN}`), "not JSON", uint64(1024), uint16(0))
	f.Add("nats-ttl: 1s\r\n a b: c\r\n:x\r\nA: 2\r\na:\r\nA: 3", []byte{0xff, 0}, strings.Repeat("é", 600), uint64(1<<63), uint16(300))
	f.Add(strings.Repeat("Nats-X: v\r\n", 400), []byte(nil), "\x00\r\n", uint64(0), uint16(65535))
	plain := strings.NewReplacer("\r", " ", "\n", " ") // as nats.go does, too
	f.Fuzz(func(t *testing.T, text string, body []byte, detail string, position uint64, room uint16) {
		came, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + text + "\r\n\r\n"))
		if err != nil {
			return // the server and the client let no such message pass
		}
		l := pipeline.DeadLetter{
			Position: pipeline.Position(position), Reason: pipeline.ReasonJSON, Detail: detail,
			Subject: "events." + strings.Repeat("t", int(room)%300), Header: came, Data: body,
		}
		bytesMax := int64(len(body)) + jetlog.EnvelopeBytes + int64(room)
		m := letterMessage(l, bytesMax)
		if m.Subject != "deadletter.json" || !bytes.Equal(m.Data, body) {
			t.Fatalf("%s %q", m.Subject, m.Data)
		}
		var wire bytes.Buffer // as nats.go writes it
		wire.WriteString("NATS/1.0\r\n")
		if err := http.Header(m.Header).Write(&wire); err != nil {
			t.Fatal(err)
		}
		wire.WriteString("\r\n")
		if n := int64(wire.Len()); n > headersBytesMax || n+int64(len(body)) > bytesMax {
			t.Fatalf("%d bytes of headers beside %d, at most %d", n, len(body), bytesMax)
		}
		kept, err := nats.DecodeHeadersMsg(wire.Bytes())
		if err != nil {
			t.Fatalf("%v: %q", err, wire.Bytes())
		}
		if kept.Get(HeaderSequence) != strconv.FormatUint(position>>10, 10) || kept.Get(HeaderLine) != strconv.FormatUint(position&1023, 10) ||
			kept.Get(HeaderReason) != "json" || len(kept.Get(HeaderError)) > detailBytesMax || kept.Get(nats.MsgIdHdr) != eventIDOf(l.Position, l.Data).messageID() {
			t.Fatalf("%q", kept)
		}
		own := []string{HeaderSequence, HeaderLine, HeaderReason, HeaderError, HeaderLeftOut, HeaderSubject, nats.MsgIdHdr, nats.ExpectedStreamHdr}
		left, names := 0, map[string][]string{}
		for name, values := range kept {
			if slices.Contains(own, name) {
				if len(values) != 1 {
					t.Fatalf("%s is there %d times", name, len(values))
				}
				continue
			}
			if hasPrefixFold(name, "Nats-") {
				t.Fatalf("%s acts on the stream", name)
			}
			names[name] = values
		}
		for name, values := range came {
			for _, v := range values {
				if !slices.Contains(names[carriedName(name)], textproto.TrimString(plain.Replace(v))) {
					left++
					break
				}
			}
		}
		// Two names may become one; so one that is left out need not be missed.
		if omitted, _ := strconv.Atoi(kept.Get(HeaderLeftOut)); omitted < left || omitted > len(came) {
			t.Fatalf("%d headers are missing, %d are said to be; %q became %q", left, omitted, came, kept)
		}
	})
}
