package sinks

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/service"
)

// "413 too many": of 10,000 users with 4,096 channels each, no reply would have room.
// It is refused before it is worked out, which took seconds and 330 MB.
func TestWhatCannotFitIsNotWorkedOut(t *testing.T) {
	const channels, users = 4096, 10_000
	n := newBare(t)
	for i := range channels {
		n.operate(bareShards, pipeline.Operation{Op: pipeline.OpNotice, ID: uint64(i) + 1, Position: n.at + pipeline.Position(i) + 1, Channels: []string{fmt.Sprint("channel-", i)}})
	}
	n.apply(t, n.at+channels+1)
	server := natstest.Server(t)
	service, err := service.New(natstest.Connect(t, server), service.Options{Schema: n.schema, Reader: n.Node})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := service.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	nc := natstest.Connect(t, server)
	ask := func(users int, more string) (reply string, allocated uint64) {
		body := bytes.NewBufferString(`{"users":[1`)
		for i := range users - 1 {
			body.WriteString("," + strconv.Itoa(i+2))
		}
		body.WriteString("]" + more + "}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := nc.Request("tidemark.unread", body.Bytes(), time.Minute)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Nats-Service-Error") + string(m.Data), after.TotalAlloc - before.TotalAlloc
	}

	const why = "10000 users with 3 columns and 4096 channels each; ask for fewer users at once, or name the channels that are wanted"
	reply, allocated := ask(users, "")
	if !strings.Contains(reply, why) {
		t.Errorf("%d users: %.300s", users, reply)
	}
	if allocated > 32<<20 {
		t.Errorf("%d MiB were allocated for a reply that is not sent", allocated>>20)
	}
	if reply, _ = ask(users/2, `,"channels":["channel-7"]`); strings.Count(reply, `"channel-7":`) != users/2 {
		t.Errorf("one channel: %.300s", reply)
	}
	if reply, _ = ask(10, ""); strings.Count(reply, `"channel-7":`) != 10 {
		t.Errorf("10 users: %.300s", reply)
	}
}
