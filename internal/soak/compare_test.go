package soak

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/twin"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// expected is what must be answered about people.
type expected struct {
	people
	users        []twin.Answer
	posts, pages [][]int64
}

// expect has the twin work it out, in parallel.
func expect(board *twin.Board, everyone []people) []expected {
	board.Work()
	out := make([]expected, len(everyone))
	var next atomic.Int64
	var work sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(out); i = int(next.Add(1)) - 1 {
				out[i].people = everyone[i]
				out[i].users, out[i].posts, out[i].pages = everyone[i].Answers()
			}
		})
	}
	work.Wait()
	return out
}

// some are the communities to compare: those with events since they were
// compared last, and as many of the others as a sample is. sample < 0: all. The
// abuse's crowd is one of them.
func (s *soak) some(sample int) []people {
	var fresh, old []people
	everyone := []people{s.abuse.crowd}
	for _, c := range s.book.communities {
		everyone = append(everyone, c)
	}
	for _, c := range everyone {
		switch {
		case c.Events() == 0:
		case sample < 0 || s.compared[c] != c.Events():
			fresh = append(fresh, c)
		default:
			old = append(old, c)
		}
	}
	s.random.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	return append(fresh, old[:min(max(sample, 0), len(old))]...)
}

// patience is how long a node may take to come to the end of the log.
const patience = 2 * time.Minute

const (
	// comparedWithin is how long one question may take. Nodes that have just
	// started, with little memory, look up a million followees on disk: for each
	// page of the hub's feed.
	comparedWithin = 55 * time.Second
	// listsWithin bounds the lists of everyone, a dozen such pages among them.
	listsWithin = 8 * time.Minute
)

// differencesMax are shown.
const differencesMax = 5

// questions asks the nodes that run and compares.
type questions struct {
	*client.Client
	at    pipeline.Position
	asked atomic.Int64 // numbers and lists compared

	mu          sync.Mutex
	differences []string
	left        int // not shown
}

func (q *questions) differ(about people, id uint64, format string, args ...any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.differences) == differencesMax {
		q.left++
		return
	}
	text := fmt.Sprintf(format, args...) + "\n  its events:\n" + about.About(id)
	q.differences = append(q.differences, text)
}

func (q *questions) err() error {
	if len(q.differences) == 0 {
		return nil
	}
	return fmt.Errorf("%d answers differ from the twin's:\n%s", len(q.differences)+q.left, strings.Join(q.differences, "\n"))
}

// compare asks everything about everyone expected.
func (q *questions) compare(want []expected) error {
	var users, posts, pages []uint64
	for _, w := range want {
		users = append(users, w.Users()...)
		posts = append(posts, w.Posts()...)
		pages = append(pages, w.Pages()...)
	}
	userRows, err := q.rows("user", twin.UserColumns, users)
	if err != nil {
		return err
	}
	postRows, err := q.rows("post", twin.PostColumns, posts)
	if err != nil {
		return err
	}
	pageRows, err := q.rows("page", twin.PageColumns, pages)
	if err != nil {
		return err
	}
	unread, err := again(func() (client.UnreadReply, error) {
		return q.UnreadMany(context.Background(), client.UnreadRequest{Users: users, Timeout: comparedWithin})
	})
	if err != nil {
		return err
	}
	if unread.Degraded || unread.AsOf != q.at || len(unread.Users) != len(users) {
		return fmt.Errorf("unread: %d of %d users as of %d of %d, missing: %v", len(unread.Users), len(users), unread.AsOf, q.at, unread.Missing)
	}
	lists := make([]twin.Answer, len(users))
	if err := q.lists(users, lists); err != nil {
		return err
	}
	user, post, page := 0, 0, 0
	for _, w := range want {
		for i, id := range w.Users() {
			got := lists[user]
			u := &unread.Users[user]
			got.Row, got.Feed, got.Unread, got.Channels, got.Dots = userRows[user], u.Feed, u.Counts, u.Channels, u.Dots
			if !reflect.DeepEqual(got, w.users[i]) {
				q.differ(w.people, id, "user %d:%s", id, difference(&got, &w.users[i]))
			}
			user++
		}
		for i, id := range w.Posts() {
			if !slices.Equal(postRows[post], w.posts[i]) {
				q.differ(w.people, id, "post %d: %v is %v, want %v", id, twin.PostColumns, postRows[post], w.posts[i])
			}
			post++
		}
		for i, id := range w.Pages() {
			if !slices.Equal(pageRows[page], w.pages[i]) {
				q.differ(w.people, id, "page %d: %v is %v, want %v", id, twin.PageColumns, pageRows[page], w.pages[i])
			}
			page++
		}
	}
	return q.err()
}

// difference shows what is not the same.
func difference(got, want *twin.Answer) string {
	var b strings.Builder
	g, w := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range g.NumField() {
		if g, w := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(g, w) {
			fmt.Fprintf(&b, "\n  %s\n     got %.2000s\n    want %.2000s", reflect.TypeOf(*got).Field(i).Name, fmt.Sprint(g), fmt.Sprint(w))
		}
	}
	return b.String()
}

func (q *questions) rows(counter string, columns []string, ids []uint64) ([][]int64, error) {
	reply, err := again(func() (client.GetReply, error) {
		return q.GetMany(context.Background(), client.GetRequest{Counter: counter, IDs: ids, Columns: columns, Timeout: comparedWithin})
	})
	if err != nil {
		return nil, err
	}
	if reply.Degraded || reply.AsOf != q.at || len(reply.Rows) != len(ids) {
		return nil, fmt.Errorf("%s: %d rows of %d as of %d of %d, missing: %v", counter, len(reply.Rows), len(ids), reply.AsOf, q.at, reply.Missing)
	}
	rows := make([][]int64, len(ids))
	for i, row := range reply.Rows {
		rows[i] = row.Values
	}
	q.asked.Add(int64(len(ids) * len(columns)))
	return rows, nil
}

// listsAtOnce are the questions for lists that are under way at once.
const listsAtOnce = 8

// lists asks for feeds, whom users follow, and who follows them.
func (q *questions) lists(users []uint64, to []twin.Answer) error {
	ctx, cancel := context.WithTimeout(context.Background(), listsWithin)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(listsAtOnce)
	for i, user := range users {
		g.Go(func() (err error) {
			posts, err := again(func() ([]client.FeedPost, error) { return all(q.AllFeed(ctx, user, client.Within(comparedWithin))) })
			if err != nil {
				return err
			}
			for _, p := range posts {
				to[i].Posts = append(to[i].Posts, twin.FeedPost(p))
			}
			if to[i].Following, err = again(func() ([]uint64, error) { return all(q.AllFollowing(ctx, user, client.Within(comparedWithin))) }); err != nil {
				return err
			}
			to[i].Followers, err = again(func() ([]uint64, error) { return all(q.AllFollowers(ctx, user, client.Within(comparedWithin))) })
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	q.asked.Add(int64(len(users) * (3 + 6 + 2 + 3))) // three lists; 1:1 kinds, dots, feed and channels
	return nil
}

func all[T any](list iter.Seq2[T, error]) (items []T, err error) {
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// again asks again while the node is busy reading its disk, which it says.
func again[T any](ask func() (T, error)) (T, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		reply, err := ask()
		busy, ok := errors.AsType[*client.Error](err)
		if !ok || busy.Code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return reply, err
		}
	}
}

// rest pauses the publishers, waits until every node is at the end of EVENTS
// and reads that back. Everything runs; the publishers go on when resumed.
func (s *soak) rest() (end uint64) {
	s.Helper()
	s.pause()
	s.settled()
	end, err := s.truth.read(s.js)
	if err != nil {
		s.fail("%v", err)
	}
	return end
}

// pause has the publishers wait, with all acknowledged.
func (s *soak) pause() {
	s.Helper()
	s.alive()
	paused := make(chan struct{})
	go func() {
		s.publishers.pause()
		close(paused)
	}()
	select {
	case <-paused:
	case <-time.After(patience):
		trouble := "nothing"
		if text := s.book.trouble.Load(); text != nil {
			trouble = *text
		}
		s.fail("the publishers wait for acknowledgements for %v; the last trouble was: %s", patience, trouble)
	}
}

// settled waits until every node is at the end of EVENTS.
func (s *soak) settled() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for still, was := 0, uint64(0); still < 3; time.Sleep(50 * time.Millisecond) {
		s.alive()
		end, err := endOf(ctx, s.js)
		for _, n := range s.nodes {
			if err == nil {
				err = n.at(end)
			}
		}
		switch {
		case err == nil && end == was:
			still++
		case ctx.Err() != nil:
			s.fail("EVENTS ends at %d and after %v: %v\n%s", end, patience, err, s.readiness())
		default:
			still = 0
		}
		was = end
	}
}

// reach waits until a node's answers reach a message.
func (s *soak) reach(n *node, end uint64) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for err := n.at(end); err != nil; err = n.at(end) {
		s.alive()
		if time.Now().After(deadline) {
			s.fail("after %v: %v; /readyz: %s", patience, err, n.readiness())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// comparison brings everything to rest, where it stays, and asks each half of
// the nodes alone; sample says how many of the communities nothing has happened to are
// asked about, too.
func (s *soak) comparison(sample int) {
	s.Helper()
	begun := time.Now()
	end := s.rest()
	s.told()
	var err error
	if s.report.letters, s.report.twice, err = s.truth.letters(s.js, s.cuts); err != nil {
		s.fail("%v", err)
	}
	everyone := s.some(sample)
	want := expect(s.book.board, everyone)
	events := 0
	for _, c := range everyone {
		events += c.Events()
		s.compared[c] = c.Events()
	}
	between, err := s.probes.check(&s.truth.ends)
	if err != nil {
		s.fail("%v", err)
	}
	s.report.between += between
	for _, alone := range s.halves() {
		s.allReady()
		others := slices.DeleteFunc(s.everyone(), func(n *node) bool { return slices.Contains(alone, n) })
		for _, n := range others {
			s.away(n)
		}
		for _, n := range alone {
			if !n.thin {
				s.reach(n, end)
			}
		}
		q := &questions{Client: client.New(s.nc), at: pipeline.EndOf(end)}
		if err := q.compare(want); err != nil {
			s.fail("%v alone: %v", alone, err)
		}
		s.report.asked += q.asked.Load()
		for _, n := range others {
			s.up(n)
		}
	}
	s.settled() // who was away is back at the end, with what DELTAS or its checkpoint has
	s.report.comparisons++
	s.note("compared %d communities of %d, the crowd is one, with %d events of %d, in %v", len(everyone), len(s.book.communities)+1, events, s.truth.events,
		time.Since(begun).Round(time.Millisecond))
}

// away takes a node off while another is asked.
func (s *soak) away(n *node) {
	if s.random.IntN(2) == 0 {
		n.kill()
		s.report.injected["kill -9 of a node, for a comparison"]++
		return
	}
	s.stop(n)
	s.report.injected["SIGTERM of a node, for a comparison"]++
}
