package service_test

import (
	"strconv"
	"strings"
	"testing"
)

// A request of this process gets what one over NATS gets.
func TestAskAnswersAsNATSDoes(t *testing.T) {
	r := start(t)
	for endpoint, bodies := range map[string][]string{
		"get": {
			`{"counter":"post","ids":["1","2"]}`, `{"counter":"nope","ids":["1"]}`, `{"counter":"post","ids":[]}`, `{`, "",
			`{"counter":"post","ids":["1"],"min_position":"99999","timeout_ms":1}`,
			`{"counter":"post","ids":[` + strings.Repeat(`"1",`, 3000) + `"2"]}`,
			`{"counter":"post","ids":[` + strings.Repeat(`"1",`, 30000) + `"2"]}`,
		},
		"unread": {`{"users":["7"]}`, `{"users":["0"]}`},
		"feed":   {`{"user":"7","limit":3}`},
		"read":   {`{"user":"7","what":["nope"]}`},
		"schema": {`{}`},
		"nodes":  {`{}`},
	} {
		for _, body := range bodies {
			reply, err := r.service.Ask(t.Context(), endpoint, []byte(body))
			got := string(reply.Data)
			if reply.Code != 200 {
				got = strconv.Itoa(reply.Code) + " " + reply.Message
			}
			if want := r.ask("tidemark."+endpoint, body); err != nil || got != want {
				t.Errorf("%s %.100s\ngot  %.300s (%v)\nwant %.300s", endpoint, body, got, err, want)
			}
		}
	}
	if reply, err := r.service.Ask(t.Context(), "nope", nil); reply.Code != 404 || err != nil {
		t.Errorf("no such endpoint: %+v, %v", reply, err)
	}
}
