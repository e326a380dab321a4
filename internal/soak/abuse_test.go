package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/twin"
)

var abuseFlag = flag.String("abuse", "all", "kinds of abuse beside the honest load, commas between: "+strings.Join(abuses, ", ")+"; all; none")

// The kinds of abuse.
const (
	abuseNotices   = "notices"   // by the hundred thousand, with long ids, in packs
	abuseFollowees = "followees" // of one user, a million
	abusePosts     = "posts"     // of one author, a hundred thousand
)

var abuses = []string{abuseNotices, abuseFollowees, abusePosts}

// abusesOf reads the flag.
func abusesOf(text string) ([]string, error) {
	switch text {
	case "all":
		return abuses, nil
	case "none":
		return nil, nil
	}
	kinds := strings.Split(text, ",")
	for _, kind := range kinds {
		if !slices.Contains(abuses, kind) {
			return nil, fmt.Errorf("-abuse %s: %q is none of %v", text, kind, abuses)
		}
	}
	return kinds, nil
}

// The sizes of a run of fullRun. A shorter one has its share of them, at least
// a tenth.
const (
	fullRun = 10 * time.Minute

	noticesFull   = 300_000 // most of them in one channel: more than it may list
	followeesFull = 1_000_000
	postsFull     = 100_000
)

func sized(full int) int {
	return max(full/10, min(full, int(float64(full)*soakFlag.Seconds()/fullRun.Seconds())))
}

// packFull is how many events a pack of abuse has, less a few: nearly all that
// a pack may have.
const packFull = 1000

// The abuse's own ids, apart from those of communities.
const (
	hub           = 1<<61 + iota // the user who follows everybody
	writer                       // the author with all the posts
	fan                          // follows the writer, and reads
	followeesFrom = uint64(3 << 59)
	postsFrom     = uint64(1<<61 + 1<<40)
	noticesFrom   = uint64(1_000_000_000_000_000_000)
)

// followee is the i-th whom the hub follows: ids come in no order.
func followee(i int) uint64 { return followeesFrom + uint64(i)*0x9E3779B1%(1<<32) }

// abuse is what is done beside the honest load: sizes that nobody means well by, of a crowd of
// their own.
type abuse struct {
	kinds []string
	book  *book
	crowd *twin.Crowd
	over  time.Duration // within which loads come to their sizes

	gate      sync.RWMutex // held by each deed; locked: nobody abuses
	loads     []*load
	work      sync.WaitGroup
	stop      context.CancelFunc
	connected []*nats.Conn
}

// load is one that publishes events up to a size.
type load struct {
	name string
	size int
	done atomic.Int64
	// pack makes the next events, of which n count to the size.
	pack func(r *rand.Rand, done, n int) []twin.Event
	most int // of n
}

const (
	// burstEvery is how often a load publishes what is due: in bursts.
	burstEvery = 500 * time.Millisecond
	// loadsShare is the part of a run within which loads come to their sizes.
	loadsShare = 0.6
	// leastOver is the same for a run of seconds.
	leastOver = 4 * time.Second
)

// newAbuse begins at rest.
func newAbuse(kinds []string, b *book) *abuse {
	a := &abuse{
		kinds: kinds, book: b,
		crowd: twin.NewCrowd(b.board, hub, writer, fan, followee(0), followee(1), followee(4321)),
		over:  max(leastOver, time.Duration(float64(*soakFlag)*loadsShare)),
	}
	for _, l := range []*load{
		{name: abuseNotices, size: sized(noticesFull), pack: noticesPack, most: packFull},
		{name: abuseFollowees, size: sized(followeesFull), pack: followeesPack, most: packFull},
		{name: abusePosts, size: sized(postsFull), pack: postsPack, most: packFull / 10},
	} {
		if a.does(l.name) {
			a.loads = append(a.loads, l)
		}
	}
	a.gate.Lock()
	return a
}

func (a *abuse) does(kind string) bool { return slices.Contains(a.kinds, kind) }

// rest returns when nobody abuses any more; goOn ends that.
func (a *abuse) rest() { a.gate.Lock() }

func (a *abuse) goOn() { a.gate.Unlock() }

// start begins what goes on all the time, once goOn says so.
func (a *abuse) start(url string, ps *publishers) error {
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	for i, l := range a.loads {
		p, err := ps.newPublisher(url, 200+uint64(i))
		if err != nil {
			return err
		}
		a.connected = append(a.connected, p.nc)
		a.work.Go(func() { a.publish(ctx, p, l) })
	}
	return nil
}

func (a *abuse) close() {
	a.stop()
	a.work.Wait()
	for _, nc := range a.connected {
		nc.Close()
	}
}

// publish brings a load to its size.
func (a *abuse) publish(ctx context.Context, p *publisher, l *load) {
	begun := time.Now()
	for ctx.Err() == nil {
		due := min(1, float64(time.Since(begun))/float64(a.over)) * float64(l.size)
		done := int(l.done.Load())
		if float64(done) >= due || !a.gate.TryRLock() {
			sleep(ctx, burstEvery)
			continue
		}
		if p.gate.TryRLock() {
			a.pack(ctx, p, l, done)
			p.gate.RUnlock()
		} else { // a pause of all publishers
			sleep(ctx, time.Millisecond)
		}
		a.gate.RUnlock()
	}
}

func (a *abuse) pack(ctx context.Context, p *publisher, l *load, done int) {
	n := min(l.most, l.size-done)
	var lines []line
	for _, e := range l.pack(p.random, done, n) {
		lines = append(lines, line{e, a.crowd})
	}
	if p.publish(ctx, lines) > 0 {
		l.done.Add(int64(n))
	}
}

func followeesPack(r *rand.Rand, done, n int) (events []twin.Event) {
	for i := range n {
		events = append(events, twin.Follow(hub, followee(done+i)))
	}
	anyone := func() uint64 { return followee(r.IntN(done + n)) }
	for range 10 {
		events = append(events, twin.Follow(hub, anyone()).Undone())
	}
	posted := twin.Posted(anyone(), postsFrom-1-uint64(done))
	if events = append(events, posted); r.IntN(4) == 0 {
		events = append(events, posted.Undone())
	}
	if events = append(events, twin.Follow(anyone(), hub)); r.IntN(5) == 0 {
		events = append(events, twin.ReadOf(hub, "feed"))
	}
	return events
}

func postsPack(r *rand.Rand, done, n int) []twin.Event {
	events := []twin.Event{twin.Follow(fan, writer)} // each time: a set takes everything twice
	for i := range n {
		events = append(events, twin.Posted(writer, postsFrom+uint64(done+i)))
	}
	for range n / 10 { // of the newest
		events = append(events, twin.Posted(writer, postsFrom+uint64(max(0, done+n-1-r.IntN(2*n)))).Undone())
	}
	if r.IntN(20) == 0 {
		events = append(events, twin.ReadOf(fan, "feed"))
	}
	return events
}

// squattersMax are the channels that have one notice each, for their names: as
// many as there may be, in half of the runs.
const squattersMax = 16

func noticesPack(r *rand.Rand, done, n int) (events []twin.Event) {
	channel := func(i int) string { return []string{"flood", "flood", "flood", "flood-2", "flood-3"}[i%5] }
	for i := done; i < done+n; i++ {
		events = append(events, twin.Notice(channel(i), noticesFrom+uint64(i)))
	}
	for range n / 100 {
		i := r.IntN(done + n)
		events = append(events, twin.Notice(channel(i), noticesFrom+uint64(i)))
		if r.IntN(2) == 0 {
			events = append(events, twin.Notice(channel(i), noticesFrom+uint64(i)).Undone())
		}
	}
	squatter := r.IntN(squattersMax)
	events = append(events, twin.Notice(fmt.Sprintf("squat-%d", squatter), noticesFrom))
	if r.IntN(10) == 0 {
		events = append(events, twin.ReadOf(fan, "channel:flood"))
	}
	return events
}

// sleep ends early with ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
