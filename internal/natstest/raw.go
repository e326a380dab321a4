package natstest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// PublishRaw publishes to a stream from a connection without credentials, with the bytes of
// header as they are, which client libraries would refuse. It returns the sequence of the
// acknowledgement, 0 if the server refused the message.
func PublishRaw(tb testing.TB, address, subject, header, body string) (sequence uint64) {
	tb.Helper()
	server, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := net.Dial("tcp", server.Host)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(e2e.Patience))
	const connect = `CONNECT {"verbose":false,"headers":true,"no_responders":true}` + "\r\nSUB _INBOX.raw 1\r\n"
	fmt.Fprintf(c, "%sHPUB %s _INBOX.raw %d %d\r\n%s%s\r\nPING\r\n", connect, subject, len(header), len(header)+len(body), header, body)
	for lines := bufio.NewScanner(c); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "-ERR") {
			tb.Fatal(line)
		}
		if !strings.HasPrefix(line, "{") || !strings.Contains(line, `"stream"`) && !strings.Contains(line, `"error"`) {
			continue
		}
		var ack struct {
			Sequence uint64 `json:"seq"`
		}
		if err := json.Unmarshal([]byte(line), &ack); err != nil {
			tb.Fatal(err)
		}
		return ack.Sequence
	}
	tb.Fatalf("no acknowledgement of a message on %s", subject)
	return 0
}
