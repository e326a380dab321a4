package soak

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// What somebody may do to the streams who reaches the NATS server: write into
// those that are Tidemark's own, and delete them. EVENTS is never deleted.
// Counting goes on, without anybody starting anything again, and the nodes say
// what happened.

// headerForeign marks what is not Tidemark's.
const headerForeign = "Soak-Foreign"

// jetStreamWithin bounds what is asked of JetStream here.
const jetStreamWithin = 5 * time.Second

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), jetStreamWithin)
}

// names finds a line about a stream.
func names(stream string) []telling { return []telling{{nil, regexp.MustCompile(stream)}} }

// foreignWindows writes what is no window into DELTAS.
func (s *soak) foreignWindows() *fault {
	if s.noServer() {
		return nil
	}
	subject, last, err := s.deltas()
	if err != nil {
		return nil // just deleted, or the server just started
	}
	bodies := [][]byte{[]byte("oops"), nil, []byte(`{"type":"like","actor":1}`), make([]byte, 64<<10)}
	for i := range bodies[3] {
		bodies[3][i] = byte(s.random.Uint32())
	}
	if len(last) > 8 { // a window of ours, but for a bit, and the half of it
		flipped := slices.Clone(last)
		flipped[s.random.IntN(len(flipped))] ^= 1 << s.random.IntN(8)
		bodies = append(bodies, flipped, last[:len(last)/2])
	}
	s.random.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
	stored := 0
	for _, body := range bodies[:1+s.random.IntN(len(bodies))] {
		stored += s.put(subject, body)
		time.Sleep(s.between(0, 200*time.Millisecond))
	}
	if stored == 0 {
		return nil
	}
	return &fault{
		what: fmt.Sprintf("%d messages to %s", stored, subject), until: s.counting(), soon: patience,
		told: names(jetlog.DeltasStream),
	}
}

// foreignValues writes what is no value of ours into the bucket: at the
// router's place, a node's, and one of nobody. Windows that every node has go
// on being purged.
func (s *soak) foreignValues() *fault {
	if s.noServer() {
		return nil
	}
	at, err := s.deltasInfo()
	if err != nil {
		return nil
	}
	stored := 0
	for _, key := range []string{"router", "node.stranger", "stranger"} {
		stored += s.put("$KV."+jetlog.Bucket+"."+key, []byte("oops"))
	}
	if stored == 0 {
		return nil
	}
	counts := s.counting()
	return &fault{soon: patience, until: func() bool {
		now, err := s.deltasInfo()
		return err == nil && (now.State.FirstSeq > at.State.LastSeq || !now.Created.Equal(at.Created)) && counts()
	}}
}

func (s *soak) deltasInfo() (*jetstream.StreamInfo, error) {
	ctx, cancel := deadline()
	defer cancel()
	stream, err := s.js.Stream(ctx, jetlog.DeltasStream)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// foreignLetters writes what no router has refused into DEADLETTER: it is for
// people to read.
func (s *soak) foreignLetters() *fault {
	if s.noServer() || s.put(jetlog.DeadLetterSubject+"foreign", []byte("oops")) == 0 {
		return nil
	}
	return &fault{until: s.counting(), soon: patience}
}

// partsSubject begins what nodes ask each other on: parts of answers, and runs of
// shards that move.
const partsSubject = "tidemark.hold."

// foreignParts listens to what nodes ask each other, and asks it again: as it was,
// with a bit turned, and cut. Replies go to who asked, who has one already; or to
// nobody.
func (s *soak) foreignParts() *fault {
	const listenFor, repeatedMax = 300 * time.Millisecond, 200
	heard := make(chan *nats.Msg, repeatedMax)
	sub, err := s.nc.ChanSubscribe(partsSubject+">", heard)
	if err != nil {
		return nil
	}
	time.Sleep(listenFor)
	if sub.Unsubscribe() != nil || len(heard) == 0 {
		return nil
	}
	sent := 0
	for range len(heard) {
		m := <-heard
		flipped := slices.Clone(m.Data)
		if len(flipped) == 0 {
			continue
		}
		flipped[s.random.IntN(len(flipped))] ^= 1 << s.random.IntN(8)
		for _, body := range [][]byte{m.Data, flipped, m.Data[:s.random.IntN(len(m.Data))], []byte("oops")} {
			reply := []string{"", m.Reply, nats.NewInbox()}[s.random.IntN(3)]
			if s.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: reply, Data: body}) == nil {
				sent++
			}
		}
	}
	return &fault{what: fmt.Sprintf("%d", sent), until: s.counting(), soon: patience}
}

// put stores a message; it says how many were.
func (s *soak) put(subject string, body []byte) int {
	ctx, cancel := deadline()
	defer cancel()
	_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body, Header: nats.Header{headerForeign: {"1"}}})
	if err != nil {
		return 0 // another fault has the server; or the stream refuses it
	}
	return 1
}

// deltas is the subject of DELTAS, and the last message there.
func (s *soak) deltas() (subject string, last []byte, err error) {
	ctx, cancel := deadline()
	defer cancel()
	stream, err := s.js.Stream(ctx, jetlog.DeltasStream)
	if err != nil {
		return "", nil, err
	}
	info := stream.CachedInfo()
	subject = strings.TrimSuffix(info.Config.Subjects[0], ".>")
	if m, err := stream.GetMsg(ctx, info.State.LastSeq); err == nil {
		last = m.Data
	}
	return subject, last, nil
}

// replayWindow stores the last window once more when others have come: it is
// ours, and does not follow on the one before it.
func (s *soak) replayWindow() *fault {
	if s.noServer() {
		return nil
	}
	subject, last, err := s.deltas()
	if err != nil || len(last) == 0 {
		return nil
	}
	time.Sleep(s.between(200*time.Millisecond, 600*time.Millisecond))
	if s.put(subject, last) == 0 {
		return nil
	}
	return &fault{what: fmt.Sprintf("%d bytes", len(last)), until: s.counting(), soon: patience, told: names(jetlog.DeltasStream)}
}

func (s *soak) deleteDeltas() *fault { return s.deleteStream(jetlog.DeltasStream) }

func (s *soak) deleteBucket() *fault { return s.deleteStream("KV_" + jetlog.Bucket) }

// deleteLetters: those that were there are gone, later ones are kept.
func (s *soak) deleteLetters() *fault {
	f := s.deleteStream(jetlog.DeadLetterStream)
	var end uint64
	read := func() (err error) {
		ctx, cancel := deadline()
		defer cancel()
		end, err = endOf(ctx, s.js)
		return err
	}
	// Also where it is not known to be deleted: an answer may have been lost.
	if !s.noServer() && !s.wait(func() bool { return read() == nil }, patience) {
		s.fail("the end of EVENTS cannot be read: %v", read())
	}
	s.truth.lettersGone(end)
	return f
}

func (s *soak) deleteStream(name string) *fault {
	if s.noServer() {
		return nil
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := s.js.DeleteStream(ctx, name); err != nil {
		return nil // it is not there again yet
	}
	counts := s.counting()
	return &fault{
		told: names(strings.TrimPrefix(name, "KV_")), soon: patience,
		until: func() bool {
			ctx, cancel := deadline()
			defer cancel()
			_, err := s.js.Stream(ctx, name)
			return err == nil && counts()
		},
	}
}

// counting is whether all nodes that run have come past where EVENTS ends now.
func (s *soak) counting() func() bool {
	var end uint64
	return func() bool {
		if end == 0 {
			ctx, cancel := deadline()
			defer cancel()
			var err error
			if end, err = endOf(ctx, s.js); err != nil {
				return false
			}
		}
		for _, n := range s.nodes {
			if n.running() && n.at(end) != nil {
				return false
			}
		}
		return true
	}
}
