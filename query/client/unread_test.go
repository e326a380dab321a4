package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
	"github.com/tidemark-io/tidemark/query/client"
	"github.com/tidemark-io/tidemark/query/internal/querytest"
)

func TestUnread(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	r.reader.Channels([]string{"news", "system"}, []string{"games"})
	r.reader.SetUnread(7, query.UserUnread{Feed: math.MaxUint64, Counts: []int64{3, math.MaxInt64}, Notices: []uint64{0, 2}, Dots: []bool{true}})
	r.reader.StopShardOf(43)
	r.reader.Apply(2048)
	got, err := r.client.Unread(ctx, 43, 7, 8)
	if err != nil {
		t.Fatal(err)
	}
	want := client.UnreadReply{
		Users: []client.UserUnread{
			{User: 43, Missing: true},
			{User: 7, Feed: math.MaxUint64, Counts: map[string]int64{"comment": 3, "mention": math.MaxInt64}, Channels: map[string]uint64{"news": 0, "system": 2}, Dots: map[string]bool{"games": true}},
			{User: 8, Counts: map[string]int64{"comment": 0, "mention": 0}, Channels: map[string]uint64{"news": 0, "system": 0}, Dots: map[string]bool{"games": false}},
		},
		AsOf: 2048, Degraded: true, Missing: []uint64{43},
	}
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	for asked, want := range map[string]string{"system,games,none": "map[none:0 system:2] map[games:true]", "": "map[] map[]"} {
		names := strings.FieldsFunc(asked, func(r rune) bool { return r == ',' })
		got, err := r.client.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{7}, Channels: append([]string{}, names...)})
		if err != nil || fmt.Sprint(got.Users[0].Channels, got.Users[0].Dots) != want {
			t.Errorf("channels %q: %+v %v", asked, got, err)
		}
	}
	if _, err := r.client.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{7}, Channels: []string{"a", `"`}}); !has(err, 400, "channels[1]") {
		t.Error(err)
	}
	if got, err := r.client.Unread(ctx); err != nil || len(got.Users) != 0 || got.AsOf != 2048 {
		t.Errorf("nobody: %v %v", got, err)
	}
	if _, err := r.client.Unread(ctx, 7, 0); !has(err, 400, "users[1]") {
		t.Error(err)
	}
	if _, err := r.client.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{7}, MinPosition: 4096, Timeout: time.Millisecond}); !has(err, 504, "4096") {
		t.Error(err)
	}
	// Of an acknowledgement: the whole message. Sequence 2 begins at 2048.
	if _, err := r.client.UnreadMany(ctx, client.UnreadRequest{Users: []uint64{7}, MinPosition: client.Acked(2), Timeout: time.Millisecond}); !has(err, 504, "3071") {
		t.Error(err)
	}
	if got := client.Acked(0); got != 0 {
		t.Errorf("acknowledged 0: position %s", got)
	}
	if _, err := r.client.Stats(ctx, client.Wait(client.Acked(math.MaxUint64)), client.Within(time.Millisecond)); !has(err, 504, "9223372036854775807") {
		t.Error(err)
	}
}

func has(err error, code int, words ...string) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == code && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) })
}

func TestUnreadMany(t *testing.T) {
	r := start(t, func(o *server.Options) { o.MaxPayload = 100_000 })
	users := make([]uint64, 5_001)
	for i := range users {
		users[i] = uint64(i) + 1
		r.reader.SetUnread(users[i], query.UserUnread{Feed: uint64(i)})
	}
	r.reader.StopShardOf(users[0])
	users[4_500] = users[0] // missing twice, in two parts
	r.reader.Apply(5)
	// 2,000 users do not fit into 100,000 bytes: halves do.
	got, err := r.client.Unread(t.Context(), users...)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Users) != len(users) || got.AsOf != 5 || !got.Degraded || !slices.Equal(got.Missing, users[:1]) {
		t.Fatalf("%d users as of %d, missing %v", len(got.Users), got.AsOf, got.Missing)
	}
	for i, u := range got.Users {
		if u.User != users[i] || u.Missing != (users[i] == 1) || !u.Missing && u.Feed != uint64(i) {
			t.Fatalf("user %d is %+v", i, u)
		}
	}
}

// docs/contract.md:
// "`{"user":"7","what":["comment"],"seen":{"comment":3},"as_of":"…","wait":true}` |
// `{"position":"…"}`: in the log"
func TestRead(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	at, err := r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"comment", "channel:system"}, Seen: map[string]int64{"mention": 0, "comment": 3}, AsOf: new(client.Position(9))})
	if err != nil || at != 1024 {
		t.Errorf("%d %v", at, err)
	}
	// As of 0 is before everything, not without one.
	if _, err := r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"all"}, AsOf: new(client.Position)}); err != nil {
		t.Error(err)
	}
	want := []string{
		`{"type":"read","actor":7,"what":["comment","channel:system"],"seen":{"comment":3,"mention":0},"as_of":"9"}`,
		`{"type":"read","actor":7,"what":["all"],"as_of":"0"}`,
	}
	if got := r.stored(t); !slices.Equal(got, want) {
		t.Errorf("stored %q", got)
	}

	time.AfterFunc(20*time.Millisecond, func() { r.reader.Apply(pipeline.At(3, 0)) })
	at, err = r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"feed"}, Wait: true})
	if err != nil || at != pipeline.At(3, 0) {
		t.Errorf("wait: %d %v", at, err)
	}
	at, err = r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"feed"}, Wait: true, Timeout: time.Millisecond})
	if at != pipeline.At(4, 0) || !has(err, 504, "4096", "do not send it again") || errors.Is(err, client.ErrUncertain) {
		t.Errorf("not visible in time: %d %v", at, err)
	}
	for code, request := range map[int]client.ReadRequest{
		400: {What: []string{"feed"}}, 404: {User: 7, What: []string{"likes"}},
		504: {User: 7, What: []string{"feed"}, MinPosition: 1 << 40, Timeout: time.Millisecond},
	} {
		if at, err := r.client.Read(ctx, request); at != 0 || !has(err, code) || errors.Is(err, client.ErrUncertain) {
			t.Errorf("%d: %d %v", code, at, err)
		}
	}
	if _, err := r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"\xff"}}); err == nil {
		t.Error("what is not UTF-8")
	}
	lost := errors.New("lost")
	r.fail.Store(&lost)
	if at, err := r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"feed"}}); at != 0 || !has(err, 503, "no harm") || !errors.Is(err, client.ErrUncertain) {
		t.Errorf("publisher fails: %d %v", at, err)
	}
	// No answer at all is as uncertain; nobody there is not.
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.client.Read(ctx, client.ReadRequest{User: 7, What: []string{"feed"}}); !errors.Is(err, client.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	alone, err := client.Connect(querytest.Server(t, &server.Options{}).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if _, err := alone.Read(t.Context(), client.ReadRequest{User: 7, What: []string{"feed"}}); !has(err, 503) || errors.Is(err, client.ErrUncertain) {
		t.Error(err)
	}
}

// Pages follow one another to the end, and end loudly.
func TestPages(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	for i := range uint64(12_001) {
		r.reader.Follow(i+10, 7)
		if i%10 == 0 {
			r.reader.Follow(7, i+10)
			r.reader.Post(i+10, i+1, pipeline.At(i+1, 0))
		}
	}
	r.reader.Apply(5)
	feed, err := r.client.Feed(ctx, client.FeedRequest{User: 7, Limit: 2})
	if err != nil || fmt.Sprint(feed) != "{[{12001 12010 12289024} {11991 12000 12278784}] 12278784 5 false [] 0s}" {
		t.Errorf("feed %v %v", feed, err)
	}
	if feed, err = r.client.Feed(ctx, client.FeedRequest{User: 7, Before: pipeline.At(2, 0)}); err != nil || fmt.Sprint(feed) != "{[{1 10 1024}] 0 5 false [] 0s}" {
		t.Errorf("feed %v %v", feed, err)
	}
	if feed, err = r.client.Feed(ctx, client.FeedRequest{User: 7}); err != nil || len(feed.Posts) != 20 {
		t.Errorf("feed %v %v", feed, err)
	}
	users, err := r.client.Following(ctx, client.UsersRequest{User: 7, Limit: 2, After: 10})
	if err != nil || fmt.Sprint(users) != "{[20 30] 30 5 false [] 0s}" {
		t.Errorf("following %v %v", users, err)
	}
	if users, err = r.client.Followers(ctx, client.UsersRequest{User: 7}); err != nil || len(users.Users) != 100 || users.Next != 109 {
		t.Errorf("followers %v %v", users, err)
	}

	var ids []uint64
	for id, err := range r.client.AllFollowers(ctx, 7, client.Wait(5)) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(ids) != 12_001 || ids[0] != 10 || ids[12_000] != 12_010 || !slices.IsSorted(ids) {
		t.Errorf("%d followers", len(ids))
	}
	ids = ids[:0]
	for id := range r.client.AllFollowing(ctx, 7) {
		if ids = append(ids, id); len(ids) == 3 {
			break
		}
	}
	if fmt.Sprint(ids) != "[10 20 30]" {
		t.Errorf("following %v", ids)
	}
	var posts []client.FeedPost
	for post, err := range r.client.AllFeed(ctx, 7) {
		if err != nil {
			t.Fatal(err)
		}
		posts = append(posts, post)
	}
	if len(posts) != 1201 || posts[1200].Post != 1 {
		t.Errorf("%d posts", len(posts))
	}

	for _, err := range r.client.AllFollowers(ctx, 7, client.Wait(6), client.Within(time.Millisecond)) {
		if !has(err, 504) {
			t.Error(err)
		}
	}
	for code, request := range map[int]client.UsersRequest{400: {User: 0}, 413: {User: 7, Limit: 10_001}} {
		if _, err := r.client.Followers(ctx, request); !has(err, code) {
			t.Errorf("%d: %v", code, err)
		}
	}
	if _, err := r.client.Feed(ctx, client.FeedRequest{User: 7, Limit: -1}); !has(err, 400, "limit: -1") {
		t.Error(err)
	}
	r.reader.StopShardOf(7)
	if users, err := r.client.Following(ctx, client.UsersRequest{User: 7}); err != nil || fmt.Sprint(users) != "{[] 0 5 true [7] 0s}" {
		t.Errorf("stopped: %v %v", users, err)
	}
	failures := 0
	for _, err := range r.client.AllFeed(ctx, 7) {
		failures++
		if !has(err, 503, "feed of user 7") {
			t.Error(err)
		}
	}
	for _, err := range r.client.AllFollowing(ctx, 7) {
		failures++
		if !has(err, 503, "following of user 7") {
			t.Error(err)
		}
	}
	if failures != 2 {
		t.Errorf("a stopped shard ended %d of 2 lists loudly", failures)
	}
}
