package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// source makes the next event, and says which type it has.
type source func() (name string, body []byte)

// kind is what an event does.
type kind struct {
	upTo         uint64
	name, format string // of actor, author, post and the post that is published
}

// kinds are what events do, in a hundred of them: an actor to a post of an author, or
// publishing one.
var kinds = []kind{
	{55, "like", `{"type":"like","actor":%[1]d,"post":%[3]d,"author":%[2]d,"at":1341286912000}`},
	{70, "comment", `{"type":"comment","actor":%[1]d,"post":%[3]d,"author":%[2]d,"at":1341286912000}`},
	{80, "post", `{"type":"post","actor":%[1]d,"post":%[4]d,"at":1341286912000}`},
	{95, "post", `{"type":"post","actor":%[1]d,"post":%[4]d,"repost_of":%[3]d,"author":%[2]d,"at":1341286912000}`},
	{100, "mention", `{"type":"mention","actor":%[1]d,"target":%[2]d,"at":1341286912000}`},
}

// event is the n-th of a hundred.
func event(n, actor, author, post, published uint64) (name string, body []byte) {
	kind := kinds[slices.IndexFunc(kinds, func(k kind) bool { return n < k.upTo })]
	return kind.name, fmt.Appendf(nil, kind.format, actor, author, post, published)
}

const (
	users       = 1_000_000
	firstPost   = 1_000_000_000_000_000 // posts that events go to
	firstNew    = 2_000_000_000_000_000 // posts that events publish
	postsToLike = 5_000_000
)

// community draws the events of a million users whose posts are liked, commented and
// reposted by Zipf's law: the hot ones merge, the tail does not.
func community(seed uint64) source { return zipf(seed, 100) }

// likesAlone draws the likes of that community.
func likesAlone(seed uint64) source { return zipf(seed, kinds[0].upTo) }

// zipf draws the events of the community whose kinds go up to so many of a hundred.
func zipf(seed, upTo uint64) source {
	r := rand.New(rand.NewPCG(seed, 2))
	hot := rand.NewZipf(r, 1.1, 10, postsToLike)
	return func() (string, []byte) {
		return event(r.Uint64N(upTo), 1+r.Uint64N(users), 1+r.Uint64N(users), firstPost+hot.Uint64(), firstNew+r.Uint64N(1<<40))
	}
}

// distinct draws events of the same kinds whose ids are like no other's: nothing merges, and
// all that changes must be kept.
func distinct() source {
	r := rand.New(rand.NewPCG(3, 2))
	return func() (string, []byte) {
		return event(r.Uint64N(100), 1+r.Uint64N(1<<60), 1+r.Uint64N(1<<60), 1+r.Uint64N(1<<60), 1+r.Uint64N(1<<60))
	}
}

// columns of a post's row, in the order of counts.
var columns = []string{"repost", "comment", "like"}

// like is the last of columns.
var like = columns[2:]

// counts are a post's, none of them 0.
type counts [3]int64

// postID is the id of the i-th post: like ids made of a clock and a number drawn at random,
// they ascend with gaps. No two are the same.
func postID(i uint64) uint64 { return 1<<50 + i<<12 | pipeline.Mix(i)&0xfff }

// countsOf are the i-th post's: mostly small, with a long tail. One like count in 500 does
// not fit into the 8 bits that its column has at first.
func countsOf(i uint64) counts {
	tail := func(salt uint64, weight float64) int64 {
		u := (float64(pipeline.Mix(i*3+salt)>>11) + 1) / (1 << 53) // (0, 1]
		return int64(math.Pow(u, -weight))
	}
	return counts{tail(0, 0.7), tail(1, 0.7), tail(2, 0.9)}
}

// publish publishes lines in large packs, and waits until all of them are counted.
func publish(c *client.Client, write func(add func(line []byte))) {
	p := must(c.NewPacker(client.PackOptions{LinesMax: pipeline.PackMax, Delay: -1, InFlightMax: 32, Patience: time.Minute}))
	write(func(line []byte) { check(p.AddLine(line)) })
	check(p.Close(ctx))
	check(applied(c, p.Position()))
}

// publishRows gives the posts [from, to) all three columns.
func publishRows(c *client.Client, from, to int) {
	publish(c, func(add func([]byte)) {
		for i := uint64(from); i < uint64(to); i++ {
			for j, value := range countsOf(i) {
				add(fmt.Appendf(nil, `{"type":"adjust","counter":"post","id":%d,"column":"%s","set":%d}`, postID(i), columns[j], value))
			}
		}
	})
}

// published are messages on their way to EVENTS.
type published struct {
	jetstream.JetStream
	refused chan error // the first
}

func publishing(nc *nats.Conn) published {
	refused := make(chan error, 1)
	return published{must(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<14),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case refused <- err:
			default:
			}
		}))), refused}
}

// add is one more, of one kind of event or a pack.
func (p published) add(name string, body []byte) {
	must(p.PublishAsync("events."+name, body, jetstream.WithStallWait(time.Minute)))
}

// wait returns when all are acknowledged.
func (p published) wait() {
	select {
	case <-p.PublishAsyncComplete():
	case <-time.After(time.Minute):
		check(fmt.Errorf("%d messages are without an acknowledgement", p.PublishAsyncPending()))
	}
	select {
	case err := <-p.refused:
		check(err)
	default:
	}
}

// prepared are n events of a source: making them is not the subject.
func prepared(next source, n int) (names []string, bodies [][]byte) {
	for range n {
		name, body := next()
		names, bodies = append(names, name), append(bodies, body)
	}
	return names, bodies
}

// decodingCost is the processor time in which encoding/json decodes an event of a source,
// in µs: the measure of what counting it costs. Everything else in this process rests.
func decodingCost(next source) float64 {
	_, bodies := prepared(next, 1<<17)
	before := processorTime()
	for _, body := range bodies {
		var e struct {
			Type                                  string
			Actor, Post, RepostOf, Author, Target uint64
			At                                    int64
		}
		check(json.Unmarshal(body, &e))
	}
	return (processorTime() - before).Seconds() * 1e6 / float64(len(bodies))
}

// processorTime is what this process has taken.
func processorTime() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
