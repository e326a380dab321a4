package audit

import (
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
)

// key is a fact without its value.
type key struct {
	kind      pipeline.FactKind
	column    pipeline.Column
	id, other uint64
	name      string
}

// entries are facts by what they are about.
type entries map[key]int64

func (e entries) add(f pipeline.Fact) { e[key{f.Kind, f.Column, f.ID, f.Other, f.Name}] = f.Value }

// facts are what the ledger knows of what was asked, in the form of an answer.
// Followers are those in (ask.After, last].
func (l *ledger) facts(ask *pipeline.FactsAsk, last uint64) entries {
	e := entries{}
	for _, id := range ask.IDs {
		u := l.users[id]
		switch {
		case ask.Part == pipeline.PartRows:
			for i, v := range l.rows[ask.Counter][id] {
				if v != 0 {
					e.add(pipeline.Fact{Kind: pipeline.FactCell, Column: l.schema.Counters[ask.Counter].First + pipeline.Column(i), ID: id, Value: v})
				}
			}
		case u == nil:
		case ask.Part == pipeline.PartUser:
			for which, at := range u.marks {
				if at != 0 {
					e.add(pipeline.Fact{Kind: pipeline.FactMark, ID: id, Other: uint64(which), Value: int64(at)})
				}
			}
			for other, since := range u.follows {
				e.add(pipeline.Fact{Kind: pipeline.FactFollows, ID: id, Other: other, Value: int64(since)})
			}
			for name, at := range u.cursors {
				e.add(pipeline.Fact{Kind: pipeline.FactCursor, ID: id, Name: name, Value: int64(at)})
			}
		case ask.Part == pipeline.PartFollowers:
			for other := range u.followers {
				if other > ask.After && other <= last {
					e.add(pipeline.Fact{Kind: pipeline.FactFollower, ID: id, Other: other, Value: 1})
				}
			}
		case ask.Part == pipeline.PartPosts:
			for _, p := range u.posts[max(0, len(u.posts)-l.limits.PostsMax):] {
				e.add(pipeline.Fact{Kind: pipeline.FactPost, ID: id, Other: p.post, Value: int64(p.position)})
			}
		}
	}
	if ask.Part == pipeline.PartNotices {
		if ch := l.channels[ask.Channels[0]]; ch != nil {
			for notice, at := range ch.at {
				e.add(pipeline.Fact{Kind: pipeline.FactNotice, Name: ask.Channels[0], Other: notice, Value: int64(at)})
			}
		}
	}
	return e
}

// settle leaves of facts, served or derived, what is defined: "compare what an
// answer can tell". A follow from before what its user has read counts from then;
// a cursor before it says nothing; a post older than the retention is listed by
// nobody, stored or not; columns of earlier configurations are not derived.
func (l *ledger) settle(e entries, at pipeline.Position) {
	mark := func(id uint64, which uint64) int64 { return e[key{kind: pipeline.FactMark, id: id, other: which}] }
	horizon := l.clock.horizon(at, l.limits.Retention)
	for k, v := range e {
		switch k.kind {
		case pipeline.FactCell:
			if spec := &l.schema.Columns[k.column]; spec.Hidden && l.exists[spec.Counter] != int(k.column) {
				delete(e, k)
			}
		case pipeline.FactFollows:
			if v <= max(mark(k.id, pipeline.MarkFeed), mark(k.id, pipeline.MarkAll)) {
				e[k] = 0
			}
		case pipeline.FactCursor:
			if v <= max(mark(k.id, pipeline.MarkAll), mark(k.id, pipeline.MarkFirst)) {
				delete(e, k)
			}
		case pipeline.FactPost:
			if pipeline.Position(v) < horizon {
				delete(e, k)
			}
		}
	}
}

// keeps says whether the ledger takes facts of a base about an id; 0: channels.
func (l *ledger) keeps(id uint64) bool {
	if id == 0 {
		return l.common
	}
	return l.shards[pipeline.ShardOf(id, len(l.shards))] && l.has(id)
}

// seed takes in a fact of a base. Posts and notices come by position.
func (l *ledger) seed(f pipeline.Fact) {
	switch f.Kind {
	case pipeline.FactCell:
		l.change(int(f.Column), f.ID, pipeline.Set(f.Value))
	case pipeline.FactMark:
		l.user(f.ID).marks[f.Other] = pipeline.Position(f.Value)
	case pipeline.FactCursor:
		l.user(f.ID).cursors[f.Name] = pipeline.Position(f.Value)
		l.bytes += cursorBytes + len(f.Name)
	case pipeline.FactFollows:
		l.user(f.ID).follows[f.Other] = pipeline.Position(f.Value)
		l.bytes += edgeBytes
	case pipeline.FactFollower:
		l.user(f.ID).followers[f.Other] = true
		l.bytes += edgeBytes
	case pipeline.FactPost:
		l.list(l.user(f.ID), &pipeline.Operation{Op: pipeline.OpPost, ID: f.ID, Other: f.Other, Position: pipeline.Position(f.Value)})
	case pipeline.FactNotice:
		l.notice(&pipeline.Operation{Op: pipeline.OpNotice, ID: f.Other, Position: pipeline.Position(f.Value), Channels: []string{f.Name}})
	}
}

// markNames are those of a user's marks.
var markNames = [pipeline.MarksCount]string{
	pipeline.MarkFeed: "feed", pipeline.MarkAll: "all", pipeline.MarkFirst: "first", pipeline.MarkLast: "last",
}

// differ are the facts of which two sides do not say the same.
func (l *ledger) differ(is, should entries, at pipeline.Position, tell func(Difference)) {
	for k, v := range should {
		if have, there := is[k]; !there || have != v {
			tell(l.difference(k, is, should, at))
		}
	}
	for k := range is {
		if _, there := should[k]; !there {
			tell(l.difference(k, is, should, at))
		}
	}
}

func (l *ledger) difference(k key, is, should entries, at pipeline.Position) Difference {
	value := func(e entries) int64 {
		v, there := e[k]
		if !there && k.kind >= pipeline.FactFollows {
			return -1
		}
		return v
	}
	d := Difference{ID: k.id, Column: strconv.FormatUint(k.other, 10), Is: value(is), Should: value(should), At: at}
	switch k.kind {
	case pipeline.FactCell:
		spec := &l.schema.Columns[k.column]
		d.Counter, d.Column, d.cell = l.schema.Counters[spec.Counter].Name, spec.Name, true
	case pipeline.FactMark:
		d.Counter, d.Column = "mark", markNames[k.other]
	case pipeline.FactCursor:
		d.Counter, d.Column = "cursor", k.name
	case pipeline.FactFollows:
		d.Counter = "following"
	case pipeline.FactFollower:
		d.Counter = "follower"
	case pipeline.FactPost:
		d.Counter = "listed post"
	case pipeline.FactNotice:
		d.Counter, d.Column, d.ID = "notice", k.name, k.other
	}
	return d
}
