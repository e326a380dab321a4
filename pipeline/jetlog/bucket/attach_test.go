package bucket_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// "nothing is created": a command does not make a server Tidemark's.
func TestAttachMembers(t *testing.T) {
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	if _, err := bucket.AttachMembers(t.Context(), nc, 0, bucket.MembersOptions{}); !errors.Is(err, jetlog.ErrNoBucket) {
		t.Errorf("got %v", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := js.AccountInfo(t.Context()); err != nil || info.Streams != 0 {
		t.Errorf("%v %+v", err, info)
	}
}
