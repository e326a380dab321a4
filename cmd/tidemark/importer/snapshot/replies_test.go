package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pretend is a server that answers INFO like a Redis, and SCAN with a text, which goes on for
// minutes once endless, if it is not nil, is called.
func pretend(t *testing.T, answer string, endless func()) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go pretendTo(conn, answer, endless)
		}
	}()
	return "redis://" + listener.Addr().String()
}

func pretendTo(conn net.Conn, answer string, endless func()) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		command, err := readCommand(in)
		switch {
		case err != nil:
			return
		case command == "hello":
			fmt.Fprint(conn, "-ERR unknown command\r\n")
		case command == "info":
			fmt.Fprint(conn, "$10\r\nrun_id:abc\r\n")
		case command == "scan":
			if _, err = fmt.Fprint(conn, answer); endless != nil {
				endless()
			}
			for endless != nil && err == nil {
				_, err = fmt.Fprint(conn, strings.Repeat(":1\r\n", 10))
				time.Sleep(time.Millisecond)
			}
		default:
			fmt.Fprint(conn, "+OK\r\n")
		}
	}
}

// readCommand reads a command and its arguments, and gives its name.
func readCommand(in *bufio.Reader) (name string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	for i := range 2 * n {
		if err != nil {
			return "", err
		}
		if line, err = in.ReadString('\n'); i == 1 {
			name = strings.ToLower(strings.TrimSpace(line))
		}
	}
	return name, err
}

// "Replies of a Redis are bounded before memory is reserved for them"
func TestRepliesAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, want string }{
		"an array of 10^9":      {"*2\r\n$1\r\n0\r\n*1000000000\r\n", "announces \"1000000000\" elements, and at most 1048576"},
		"a length near 2^63":    {"*2\r\n$9223372036854775806\r\n", "announces \"9223372036854775806\" bytes, and at most 67108864"},
		"an array near 2^63":    {"*9223372036854775807\r\n", "elements, and at most"},
		"a length over 2^63":    {"*2\r\n$99999999999999999999999\r\n", "bytes, and at most"},
		"a negative length":     {"*2\r\n$-7\r\n", "announces \"-7\" bytes"},
		"a map of 10^9":         {"%1000000000\r\n", "elements, and at most"},
		"arrays in arrays":      {strings.Repeat("*1048576\r\n", 100), "more than 4 arrays stand in one another"},
		"a line without an end": {"+" + strings.Repeat("x", 1<<20), "a line of it has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Take(ctx, Options{URL: pretend(t, c.answer, nil), Patterns: []string{"post:{id}:likes=post.like"}, Schema: schema, Dir: t.TempDir()})
			if !errors.Is(err, errReply) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// What comes in parts that are allowed is bounded in all.
func TestReplyIsBoundedInAll(t *testing.T) {
	r, part := replies{}, []byte("$50000000\r\n"+strings.Repeat("x", 50_000_000)+"\r\n")
	err := r.look([]byte("*1000\r\n"))
	parts := 0
	for ; err == nil && parts < 1000; parts++ {
		err = r.look(part)
	}
	if !errors.Is(err, errReply) || parts != replyBytesMax/len(part)+2 {
		t.Errorf("%v after %d parts", err, parts)
	}
}

// "An import ends at SIGTERM at once": amid a reply that does not end.
func TestTakeEndsAmidAReply(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := pretend(t, "*2\r\n$1\r\n0\r\n*1048576\r\n", cancel)
	_, err := Take(ctx, Options{URL: url, Patterns: []string{"post:{id}:likes=post.like"}, Schema: schema, Dir: t.TempDir()})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Replies that a Redis gives are passed on, however they come in pieces.
func TestRepliesTwin(t *testing.T) {
	good := "+OK\r\n:5\r\n$-1\r\n$0\r\n\r\n*-1\r\n*0\r\n*2\r\n$2\r\n17\r\n*3\r\n$1\r\na\r\n$3\r\n\r\nb\r\n:1\r\n-ERR x\r\n" +
		"%1\r\n+a\r\n*1\r\n:1\r\n|1\r\n+ttl\r\n:1\r\n*1\r\n:1\r\n_\r\n,1.5\r\n#t\r\n~1\r\n:1\r\n"
	for size := 1; size < len(good); size++ {
		var r replies
		for at := 0; at < len(good); at += size {
			if err := r.look([]byte(good[at:min(at+size, len(good))])); err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
		}
		if len(r.open) != 0 || len(r.line) != 0 || r.bulk != 0 || r.bytes != 0 {
			t.Fatalf("pieces of %d: %+v", size, r)
		}
	}
}
