package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/internal/pull"
)

const (
	// gatherViews is how long what comes is gathered into one view.
	gatherViews = 10 * time.Millisecond
	// watchHeartbeatMin is the least heartbeat of the watch.
	watchHeartbeatMin = 500 * time.Millisecond
	// watchOpenWithin bounds one attempt to begin a watch, watchWaitMin is the first pause
	// before the next attempt, and watchLogEvery how often the log says that they fail.
	watchOpenWithin = 5 * time.Second
	watchWaitMin    = 50 * time.Millisecond
	watchLogEvery   = 10 * time.Second

	keyOperation = "KV-Operation" // header of deletions
	keyPurged    = "PURGE"        // its value, of one with all that was before
)

// watch follows the keys until ctx ends.
func (m *Members) watch(ctx context.Context) {
	defer close(m.done)
	rewatch(ctx, m.follow, m.options.Beat/2, func(err error) {
		m.options.Logger.Warn("bucket: members cannot be watched", "error", err)
	})
}

// rewatch follows keys of the bucket until ctx ends, beginning again whenever anything
// is odd: the bucket is deleted or recreated, the connection or the consumer lost.
// follow says whether it had all keys that there were. tell hears now and then that
// it has not.
func rewatch(ctx context.Context, follow func(context.Context) (listed bool, err error), waitMax time.Duration, tell func(error)) {
	wait, told := watchWaitMin, time.Now()
	for ctx.Err() == nil {
		listed, err := follow(ctx)
		if listed {
			wait = watchWaitMin
		}
		if time.Since(told) >= watchLogEvery && !listed && ctx.Err() == nil {
			told = time.Now()
			tell(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, waitMax)
	}
}

// follow reads all keys that there are and what comes after, through a consumer
// of its own. It returns when that is of no more use; listed says that it had all.
func (m *Members) follow(ctx context.Context) (listed bool, err error) {
	status := m.streams.Conn().StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer m.streams.Conn().RemoveStatusListener(status)
	heartbeat := max(m.options.Beat, watchHeartbeatMin)
	pull, err := m.openWatch(ctx, heartbeat)
	if err != nil {
		return false, err
	}
	defer pull.Close()
	listed = pull.Waiting == 0
	if listed {
		m.listed()
	}
	due := time.NewTimer(m.options.Beat / 4) // the next view
	defer due.Stop()
	silence := time.NewTimer(2 * heartbeat)
	defer silence.Stop()
	news := false
	for {
		select {
		case <-ctx.Done():
			return listed, ctx.Err()
		case <-status:
			return listed, errors.New("connected again") // what was asked for is forgotten
		case <-silence.C:
			return listed, errors.New("nothing heard")
		case <-due.C:
			if listed {
				m.publish(news)
			}
			news = false
			due.Reset(m.options.Beat / 4)
		case msg := <-pull.Arrived:
			silence.Reset(2 * heartbeat)
			a, stored, err := pull.Take(msg)
			if stored {
				m.take(msg, a)
			}
			if err != nil {
				return listed, err
			}
			// A heartbeat comes only when nothing waits.
			if !listed && (!stored || a.Pending == 0 || pull.Delivered >= pull.Waiting) {
				listed = true
				m.listed()
			} else if stored && !news {
				news = true
				due.Reset(gatherViews)
			}
		}
	}
}

// openWatch makes the consumer, and gives the roster the bucket that its keys come
// from.
func (m *Members) openWatch(ctx context.Context, heartbeat time.Duration) (*pull.Puller, error) {
	ctx, cancel := context.WithTimeout(ctx, watchOpenWithin)
	defer cancel()
	before, err := m.streams.State(ctx, jetlog.BucketStream)
	if err != nil {
		return nil, err
	}
	pull, err := pull.Open(ctx, m.streams.JetStream(), jetlog.BucketStream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		FilterSubjects: []string{
			keyPrefix + m.memberKey("*"), keyPrefix + slotKey(m.streams.Slot(), cluster.AssignmentKey),
			keyPrefix + cluster.DrainPrefix + "*", keyPrefix + cluster.DegradeKey,
		},
	}, pull.Options{Heartbeat: heartbeat})
	if err != nil {
		return nil, err
	}
	state, err := m.streams.State(ctx, jetlog.BucketStream)
	if err == nil && !state.Created.Equal(before.Created) {
		err = errors.New("the bucket was recreated meanwhile")
	}
	if err != nil {
		pull.Close()
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roster.Begin(time.Now(), state.Created)
	return pull, nil
}

func (m *Members) take(msg *nats.Msg, a pull.Ack) {
	m.mu.Lock()
	operation := msg.Header.Get(keyOperation)
	err := m.roster.Take(time.Now(), cluster.Entry{
		Key: withoutSlot(m.streams.Slot(), strings.TrimPrefix(msg.Subject, keyPrefix)), Revision: a.Stream, Nanos: a.Nanos,
		Value: msg.Data, Deleted: operation != "", Purged: operation == keyPurged,
	})
	if j := m.joining; j != nil && m.roster.Session(j.node) == m.session {
		j.before, m.joining = m.roster.Others(j.node), nil
		close(j.seen)
	}
	m.mu.Unlock()
	if err != nil {
		m.tellStrange(err)
	}
}

func (m *Members) listed() {
	m.mu.Lock()
	m.roster.Listed()
	m.mu.Unlock()
	m.publish(true)
}

// publish makes the next view, and wakes callers that wait for it if it has news.
func (m *Members) publish(news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, was := m.roster.View(time.Now()), m.view.Load()
	m.view.Store(v)
	if news || was == nil || v.Layout != was.Layout || v.Settled != was.Settled {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// tellStrange logs why the value of a key is ignored.
func (m *Members) tellStrange(why error) {
	if now, was := time.Now().UnixNano(), m.strange.Load(); was == 0 || now-was > int64(strangeEvery) {
		m.strange.Store(now)
		m.options.Logger.Warn("bucket: the value of a key is ignored", "bucket", jetlog.Bucket, "error", fmt.Sprintf("%.500v", why))
	}
}
