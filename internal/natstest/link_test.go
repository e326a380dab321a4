package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) {
	defer Clean()
	m.Run()
}

// A server that is cut off acknowledges nothing, the others do; mended, all are whole. The stories
// that cut one off fail as well where the cut is none; this says why.
func TestCut(t *testing.T) {
	Long(t)
	c := NewCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: clusterSize}); err != nil {
		t.Fatal(err)
	}
	c.WaitWhole()
	alone := c.Leader("S")
	c.Cut(alone)
	if err := publish(ctx, alone, time.Second); err == nil {
		t.Errorf("%s is cut off from the others and acknowledges", alone.Name)
	}
	for _, m := range c.Servers {
		for m != alone && publish(ctx, m, 3*time.Second) != nil {
			if ctx.Err() != nil {
				t.Fatalf("%s does not acknowledge while %s is cut off", m.Name, alone.Name)
			}
		}
	}
	c.Mend(alone)
	c.WaitWhole()
	for publish(ctx, alone, 3*time.Second) != nil {
		if ctx.Err() != nil {
			t.Fatalf("%s does not acknowledge after it was cut off", alone.Name)
		}
	}
}

func publish(ctx context.Context, m *Member, within time.Duration) error {
	nc, err := nats.Connect(m.URL, nats.DontRandomize())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err = js.Publish(ctx, "s", nil)
	return err
}
