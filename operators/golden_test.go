package operators_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// goldenEvents are events of every type, well and badly made, one a line: the
// same ones always.
func goldenEvents(n int) (lines []string) {
	r := rand.New(rand.NewPCG(1, 1))
	id := func() string {
		switch r.IntN(20) {
		case 0:
			return fmt.Sprintf(`"%d"`, r.Uint64N(50))
		case 1:
			return fmt.Sprint(r.Uint64())
		case 2:
			return []string{`null`, `0`, `-1`, `1.0`, `"\u0037"`, `"x"`, `true`, `1e3`, `[1]`, `18446744073709551616`}[r.IntN(10)]
		}
		return fmt.Sprint(1 + r.Uint64N(500))
	}
	templates := []string{
		`{"type":"post","actor":%s,"post":%s}`,
		`{"type":"post","actor":%s,"post":%s,"repost_of":%s,"author":%s}`,
		`{"type":"post","delete":true,"actor":%s,"post":%s}`,
		`{"type":"comment","actor":%s,"post":%s,"author":%s,"text":"söme \"text\" 😀"}`,
		`{"type":"like","actor":%s,"post":%s,"author":%s,"at":1341286912000}`,
		`{ "type" : "like" , "actor" : %s , "post" : %s , "author" : %s , "delete" : false }`,
		`{"type":"like","actor":%s,"post":%s,"author":%s,"delete":true}`,
		`{"type":"mention","actor":%s,"target":%s,"post":%s}`,
		`{"type":"message","actor":%s,"target":%s}`,
		`{"type":"follow","actor":%s,"target":%s}`,
		`{"type":"follow","actor":%s,"target":%s,"delete":true}`,
		`{"type":"notice","channel":"town","notice":%s}`,
		`{"type":"notice","channel":"town","notice":%s,"delete":true}`,
		`{"type":"read","actor":%s,"what":["all"]}`,
		`{"type":"read","actor":%s,"what":["like","channel:town","feed"],"seen":{"like":2},"as_of":%s}`,
		`{"type":"adjust","counter":"post","id":%s,"column":"like","add":%s}`,
		`{"type":"adjust","counter":"video","id":%s,"column":"views","set":%s}`,
		`{"type":"adjust","counter":"user","id":%s,"del":true}`,
		`{"type":"view","video":%s,"by":%s,"long":%s}`,
		`{"type":"view","video":%s,"nested":{"a":[1,{"b":null}]},"long":1.5e-3}`,
		`{"type":"like","actor":%s,"actor":%s}`,
		`{"type":"like","x":1,"x":%s}`,
		`{"type":"like","actor":%s,}`,
		`{"type":"like" "actor":%s}`,
		`{"type":"l\u0069ke","actor":%s,"post":%s,"author":%s}`,
		`{"type":"dance","actor":%s}`,
		`{"actor":%s}`,
		`[%s]`,
		`{"type":"like","x":"` + "\x01" + `","actor":%s}`,
		`{"type":"like","x":"` + "\xff" + `","actor":%s}`,
		`{"type":"like","actor":%s,"post":%s,"author":%s} {}`,
		`{"type":"like","actor":%s`,
		``,
	}
	for range n {
		template := templates[r.IntN(len(templates))]
		if r.IntN(3) > 0 {
			template = templates[r.IntN(9)] // the usual ones
		}
		line := template
		for strings.Contains(line, "%s") {
			line = strings.Replace(line, "%s", id(), 1)
		}
		lines = append(lines, line)
	}
	return lines
}

// goldenMessages are those events as messages: packs and single ones.
func goldenMessages() (messages []pipeline.Message) {
	r := rand.New(rand.NewPCG(2, 2))
	lines := goldenEvents(20_000)
	for len(lines) > 0 {
		m := pipeline.Message{Sequence: uint64(len(messages) + 1), Time: 1_700_000_000_000 + int64(len(messages))*137, Subject: "events.pack"}
		n := min(1+r.IntN(200), len(lines))
		if r.IntN(10) == 0 {
			n, m.Subject = 1, "events.like"
		}
		for i, line := range lines[:n] {
			if i > 0 {
				m.Data = append(m.Data, '\n')
			}
			m.Data = append(m.Data, line...)
		}
		messages, lines = append(messages, m), lines[n:]
	}
	return messages
}

// goldenWindows are the first bytes of the SHA-256 of all windows and dead
// letters of goldenMessages, by the number of shards and the windows' bounds.
var goldenWindows = map[[3]int]string{
	{1, 8192, 512 << 10}:  "3cff80d4ee8145d6",
	{64, 8192, 512 << 10}: "41627e2cfcb33413",
	{64, 500, 512 << 10}:  "37a127fc19e05150",
	{7, 8192, 64 << 10}:   "24a02acb736f3411",
}

// "A window's content is a pure function of its events and the rules" (I5), of
// every version alike: nodes derive again what another version has derived.
func TestGoldenWindows(t *testing.T) { goldenBy(t, goldenWindows, program) }

// Those of rules that count in sets.
func TestGoldenOnce(t *testing.T) {
	goldenBy(t, map[[3]int]string{{1, 8192, 512 << 10}: "484e21cda9bb7c0f", {64, 500, 64 << 10}: "902177fae376a952"}, onceProgram)
}

func goldenBy(t *testing.T, windows map[[3]int]string, program func(testing.TB, int, operators.Limits) *operators.Program) {
	messages := goldenMessages()
	end := pipeline.EndOf(messages[len(messages)-1].Sequence)
	for bounds, want := range windows {
		lane := program(t, bounds[0], operators.Limits{Events: bounds[1], Bytes: bounds[2]}).NewLane()
		derived, err := lane.Derive(0, end, messages)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		letters := 0
		for _, d := range derived {
			h.Write(binary.AppendUvarint(nil, uint64(len(d.Window))))
			h.Write(d.Window)
			for _, l := range d.Letters {
				fmt.Fprintf(h, "%d %s %s %q\n", l.Position, l.Reason, l.Detail, l.Data)
			}
			letters += len(d.Letters)
			_, _ = io.WriteString(h, "\n")
		}
		if got := hex.EncodeToString(h.Sum(nil)[:8]); got != want {
			t.Errorf("%d shards, %d events, %d bytes: %s of %d windows and %d letters, want %s", bounds[0], bounds[1], bounds[2], got, len(derived), letters, want)
		}
	}
}
