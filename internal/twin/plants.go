package twin

import (
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Plant is something that a shard comes to have and no event says.
type Plant struct {
	Counter, Column string // as a difference names it
	Once            bool   // there must be sets
	Items           bool   // there must be lists

	// Add appends the change of an id that makes it to a section of a window; at is the
	// change's position, within the window.
	Add func(dst []byte, w *pipeline.Window, id uint64, at pipeline.Position) []byte
}

// Plants are one of each kind of state. That of notices belongs to the section behind those of
// all shards.
var Plants = []Plant{
	{"post", "like", false, false, cellPlant("post.like", pipeline.Add(1))},
	{"user", "liked", false, false, cellPlant("user.liked", pipeline.Add(-2))},
	{"unread", "like", false, false, cellPlant("unread.like", pipeline.Set(1_000_000))},
	{"following", "77", false, false, operationPlant(pipeline.Operation{Op: pipeline.OpFollow, Other: 77})},
	{"follower", "78", false, false, operationPlant(pipeline.Operation{Op: pipeline.OpFollowed, Other: 78})},
	{"listed post", "79", false, false, operationPlant(pipeline.Operation{Op: pipeline.OpPost, Other: 79})},
	{"mark", "feed", false, false, operationPlant(pipeline.Operation{Op: pipeline.OpRead, Looked: pipeline.LookedFeed})},
	{"member of post.like", "80", true, false, memberPlant("post.like", pipeline.Member{A: 80})},
	{"member of user.liked", "81,82", true, false, memberPlant("user.liked", pipeline.Member{A: 81, B: 82})},
	{"item of unread.like", "", false, true, itemPlant},
	{"notice", noticeChannels[0], false, false, operationPlant(pipeline.Operation{Op: pipeline.OpNotice, Channels: noticeChannels[:1]})},
}

func cellPlant(name string, d pipeline.Delta) func([]byte, *pipeline.Window, uint64, pipeline.Position) []byte {
	return func(dst []byte, w *pipeline.Window, id uint64, _ pipeline.Position) []byte {
		return pipeline.AppendChange(dst, slices.Index(w.Columns, name), id, d)
	}
}

func operationPlant(o pipeline.Operation) func([]byte, *pipeline.Window, uint64, pipeline.Position) []byte {
	return func(dst []byte, w *pipeline.Window, id uint64, at pipeline.Position) []byte {
		o.ID, o.Position, o.Mark = id, at, at
		return pipeline.AppendOperation(dst, w.From, &o)
	}
}

// itemPlant puts in an item, whose name is its position.
func itemPlant(dst []byte, w *pipeline.Window, id uint64, at pipeline.Position) []byte {
	o := pipeline.Operation{Op: pipeline.OpItem, ID: id, Column: slices.Index(w.Columns, "unread.like"), Member: pipeline.Member{A: 83, B: 84}, Position: at}
	return pipeline.AppendOperation(dst, w.From, &o)
}

func memberPlant(name string, m pipeline.Member) func([]byte, *pipeline.Window, uint64, pipeline.Position) []byte {
	return func(dst []byte, w *pipeline.Window, id uint64, at pipeline.Position) []byte {
		o := pipeline.Operation{Op: pipeline.OpAdd, ID: id, Column: slices.Index(w.Columns, name), Member: m, By: 1, Position: at}
		return pipeline.AppendOperation(dst, w.From, &o)
	}
}
