package service

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// request is one that is to be answered once. Its body is valid until then.
type request interface {
	body() []byte
	header(name string) string
	// answer answers with a body, or if f is not nil with why there is none. offers: the
	// answer says that there is a binary form.
	answer(body []byte, f *failure, offers bool) error
}

// message is a request that came over NATS.
type message struct {
	*nats.Msg
	nc *nats.Conn
}

func (m message) body() []byte { return m.Data }

func (m message) header(name string) string {
	if len(m.Header) == 0 {
		return ""
	}
	return m.Header.Get(name)
}

func (m message) answer(body []byte, f *failure, offers bool) error {
	if m.Reply == "" { // nobody waits for it
		return nil
	}
	if f == nil && !offers {
		return m.nc.Publish(m.Reply, body)
	}
	reply := nats.NewMsg(m.Reply)
	reply.Data = body
	if f != nil {
		reply.Header.Set(micro.ErrorHeader, f.line())
		reply.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(int(f.code)))
		reply.Data = f.body
	}
	if offers {
		offer(reply)
	}
	return m.nc.PublishMsg(reply)
}
