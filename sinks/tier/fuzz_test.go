package tier_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/hot"
	"github.com/tidemark-io/tidemark/sinks/shard"
	"github.com/tidemark-io/tidemark/sinks/tier"
)

const fuzzUsers = 6

// fuzzStore is a store with a little of everything.
func fuzzStore(f *testing.F) *cold.Store {
	store := openStore(f, "user.post", "user.following", "user.follower", "user.friend", "user.exists", "unread.follower", "post.like")
	s := restarted(f, store)
	for user := uint64(1); user <= fuzzUsers; user++ {
		other := user%fuzzUsers + 1
		w := window(s,
			pipeline.Operation{Op: pipeline.OpRead, ID: user, Looked: pipeline.LookedFeed},
			pipeline.Operation{Op: pipeline.OpRead, ID: user, Channels: []string{"a", "b"}},
			pipeline.Operation{Op: pipeline.OpFollow, ID: user, Other: other},
			pipeline.Operation{Op: pipeline.OpFollowed, ID: other, Other: user},
			pipeline.Operation{Op: pipeline.OpPost, ID: user, Other: 100 + user},
		)
		w.Sections[0] = append(pipeline.AppendChange(nil, 0, user, pipeline.Add(int64(user)<<14)), w.Sections[0]...)
		apply(f, s, w)
	}
	checkpoint(f, store, s)
	return store
}

// answers is all that a shard says of some ids, as text.
func answers(t *testing.T, schema *pipeline.Schema, s *tier.Shard, ids []uint64) (out string) {
	disk := onDisk()
	var b tier.Batch
	var p shard.Profile
	var g shard.Gathering
	var errs []error
	for counter := range schema.Counters {
		rows := make([]string, len(ids))
		_, err := s.Read(counter, ids, &b, disk, func(i int, cells []int64) { rows[i] = fmt.Sprint(cells) })
		out, errs = out+fmt.Sprintln(rows), append(errs, err)
	}
	for _, id := range ids {
		_, err := s.Profile(id, 0, []string{"a", "b", "c"}, &p, disk)
		out += fmt.Sprintln(id, p.Marks, p.Cells, p.Cursors)
		for _, followee := range p.Following { // when the follow was is told of those after the mark
			out += fmt.Sprintln(" follows", followee.A, max(followee.B, uint64(p.Marks.Feed), uint64(p.Marks.All)))
		}
		following, _, _, err2 := s.Following(id, 0, 100, nil, disk)
		followers, _, _, err3 := s.Followers(id, 0, 100, nil, disk)
		_, err4 := s.Posts([]hot.Pair{{A: id}}, 0, pipeline.PositionMax, &g, disk, func(_ uint64, p hot.Pair) bool {
			out += fmt.Sprintln(" posted", p)
			return true
		})
		n, _, err5 := tier.NewTimeline([]*tier.Shard{s}).CountPosts([]hot.Pair{{A: id}}, 0, &g, disk)
		out += fmt.Sprintln(following, followers, n)
		errs = append(errs, err, err2, err3, err4, err5)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever the sections of a window hold: the shard, and the channels, apply
// it or stop with ErrWindow. A shard that has everything in memory and one
// that has just started come to the same, and go on with the next window.
func FuzzApply(f *testing.F) {
	store := fuzzStore(f)
	from := restarted(f, store).State().Applied
	columns := make([]pipeline.Column, len(store.Schema().Columns)+1)
	for i := range columns {
		columns[i] = pipeline.Column(i)
	}
	columns[len(columns)-1] = shard.NoColumn
	var all, notices []byte
	for column := range columns {
		all = pipeline.AppendChange(all, column, uint64(column+1), pipeline.Set(0))
		all = pipeline.AppendChange(all, column, 1, pipeline.Take(1<<40))
	}
	f.Add(slices.Clone(all), []byte(nil))
	for i, o := range []pipeline.Operation{
		{Op: pipeline.OpUnfollow, ID: 1, Other: 2},
		{Op: pipeline.OpUnfollowed, ID: 2, Other: 1},
		{Op: pipeline.OpFollow, ID: 2, Other: 1},
		{Op: pipeline.OpFollowed, ID: 9, Other: 1},
		{Op: pipeline.OpUnpost, ID: 3, Other: 103},
		{Op: pipeline.OpPost, ID: 3, Other: 103},
		{Op: pipeline.OpPost, ID: 10, Other: 1},
		{Op: pipeline.OpRead, ID: 1, Looked: pipeline.LookedAll, Channels: []string{"c"}},
		{Op: pipeline.OpRead, ID: 11, Channels: []string{"a", "b", "c"}},
	} {
		o.Position = from + pipeline.Position(i) + 1
		o.Mark = o.Position
		all = pipeline.AppendOperation(all, from, &o)
		f.Add(pipeline.AppendOperation(nil, from, &o), []byte(nil))
	}
	f.Add(all, []byte(nil))
	for _, op := range []pipeline.Op{pipeline.OpFollow, pipeline.OpFollowed, pipeline.OpPost, pipeline.OpUnpost, pipeline.OpRead} {
		o := pipeline.Operation{Op: op, Other: 7, Position: from + 1, Mark: from + 1} // of nobody
		f.Add(pipeline.AppendOperation(nil, from, &o), []byte(nil))
	}
	for i, o := range []pipeline.Operation{
		{Op: pipeline.OpNotice, ID: 1}, {Op: pipeline.OpNotice, ID: 2}, {Op: pipeline.OpWithdraw, ID: 1}, {Op: pipeline.OpNotice, ID: 1},
	} {
		o.Position, o.Channels = from+pipeline.Position(i)+1, []string{"a"}
		notices = pipeline.AppendOperation(notices, from, &o)
		f.Add([]byte(nil), slices.Clone(notices))
	}
	// Positions that go back, and one before the window by an overflow.
	back := binary.AppendUvarint([]byte{byte(pipeline.OpNotice)<<2 | 3, 5}, 9)
	back = append(back, 1, 'a', byte(pipeline.OpNotice)<<2|3, 6, 3, 1, 'a', byte(pipeline.OpWithdraw)<<2|3, 5, 1, 'a')
	f.Add(binary.AppendUvarint([]byte{byte(pipeline.OpPost)<<2 | 3, 1}, 1<<64-8), back)

	f.Fuzz(func(t *testing.T, section, last []byte) {
		w := &pipeline.Window{
			Header:   pipeline.Header{From: from, To: from + 1<<20},
			Columns:  make([]string, len(columns)),
			Sections: [][]byte{section, last},
		}
		warm, started := restarted(t, store), restarted(t, store)
		if err := warm.Warm(tier.WarmOptions{Bytes: tier.Everything, Entries: 64, More: always}); err != nil {
			t.Fatal(err)
		}
		commons := tier.NewCommons(shard.NewCommons(1, shard.NewClock(100), started.State(), []string{"a"}, nil, shard.ChannelLimits{}), store, 1)
		var said []string
		for _, s := range []interface {
			Prepare(*pipeline.Window, []pipeline.Column) (shard.Moment, error)
			Apply(uint64, *pipeline.Window, []pipeline.Column) error
		}{warm, started, commons} {
			if _, err := s.Prepare(w, columns); err != nil {
				t.Fatal(err)
			}
			err := s.Apply(2, w, columns)
			said = append(said, fmt.Sprint(err))
		}
		if said[0] != said[1] {
			t.Fatalf("with everything in memory: %s; with nothing: %s", said[0], said[1])
		}
		next := &pipeline.Window{Header: pipeline.Header{From: w.To, To: w.To + 10}, Columns: w.Columns, Sections: [][]byte{nil, nil}}
		if err := commons.Err(); err == nil {
			if err := commons.Apply(3, next, nil); err != nil {
				t.Fatal(err)
			}
			_, notices := commons.Channels()
			commons.Unread([]string{"a"}, func(string) pipeline.Position { return from }, func(_ int, unread uint64) {
				if unread > uint64(notices) {
					t.Fatalf("%d of %d notices are unread", unread, notices)
				}
			})
		} else if !errors.Is(err, pipeline.ErrWindow) {
			t.Fatal(err)
		}
		if err := started.Err(); err != nil {
			if !errors.Is(err, pipeline.ErrWindow) && !strings.Contains(err.Error(), "which this node's configuration does not have") {
				t.Fatal(err)
			}
			return
		}
		ids := make([]uint64, 0, 2*fuzzUsers)
		for id := uint64(1); id <= 2*fuzzUsers; id++ {
			ids = append(ids, id)
		}
		r := pipeline.ReadSection(section, from)
		for c, ok := r.Next(); ok && len(ids) < 100; c, ok = r.Next() {
			if ids = append(ids, c.ID); r.Operation.Other > 0 {
				ids = append(ids, r.Operation.Other)
			}
		}
		for _, s := range []*tier.Shard{warm, started} {
			_, err := s.Prepare(next, nil)
			if err = errors.Join(err, s.Apply(3, next, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := answers(t, store.Schema(), warm, ids), answers(t, store.Schema(), started, ids); a != b {
			t.Fatalf("with everything in memory:\n%s\nwith nothing:\n%s", a, b)
		}
	})
}
