package main

import (
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// distinct draws events of the same kinds and in the same parts as community,
// no two of which change the same row: nothing merges, and all that changes
// must be kept. Ids come in no order.
type distinct struct {
	next, mask uint64
	drawn      [kinds]int
}

// newDistinct is for at most so many events.
func newDistinct(events int) *distinct {
	return &distinct{mask: 1<<bits.Len(uint(events)) - 1}
}

// scatter is a bijection of the numbers up to mask, a power of two less one:
// an odd factor has an inverse.
func scatter(i, mask uint64) uint64 { return i * 0x9e3779b97f4a7c15 & mask }

func (d *distinct) event(body []byte) (name string, _ []byte) {
	i := scatter(d.next, d.mask)
	e := event{
		what:  kindOf(int(pipeline.Mix(d.next) % 100)),
		actor: 1 + scatter(2*d.next, 2*d.mask+1), author: 1 + scatter(2*d.next+1, 2*d.mask+1),
		post: postID(i), published: firstNew + i,
	}
	d.next++
	d.drawn[e.what]++
	return e.append(body)
}

// touches are the counters of the rows that an event of each kind changes.
var touches = func() (all [kinds][]string) {
	for what, e := range [kinds]rivalEvent{
		likes:    {Type: "like", Actor: 1, Post: 3, Author: 2},
		comments: {Type: "comment", Actor: 1, Post: 3, Author: 2},
		posts:    {Type: "post", Actor: 1, Post: 4},
		reposts:  {Type: "post", Actor: 1, Post: 4, RepostOf: 3, Author: 2},
		mentions: {Type: "mention", Actor: 1, Target: 2},
	} {
		type row struct {
			counter string
			id      uint64
		}
		seen := map[row]bool{}
		e.changes(func(counter string, id uint64, _ string) {
			if at := (row{counter, id}); !seen[at] {
				seen[at] = true
				all[what] = append(all[what], counter)
			}
		})
	}
	return all
}()

// rows are how many the drawn events change, by counter.
func (d *distinct) rows() map[string]int {
	rows := make(map[string]int)
	for what, n := range d.drawn {
		for _, counter := range touches[what] {
			rows[counter] += n
		}
	}
	return rows
}

// posts are how many of the drawn events come into an author's outbox.
func (d *distinct) posts() int { return d.drawn[posts] + d.drawn[reposts] }

const (
	idBytes   = 8
	postBytes = 3 * 8 // author, position, post
)

// packedBytes is what rows and posts take that are laid one after the other
// and nothing else: of a row its id and its columns, each as wide as the
// schema begins with, in whole bytes.
func packedBytes(schema client.Schema, rows map[string]int, posts int) (bytes int) {
	for counter, n := range rows {
		wide := 0
		for _, column := range schema.Counters[counter].Columns {
			wide += column.Bits
		}
		bytes += n * (idBytes + (wide+7)/8)
	}
	return bytes + posts*postBytes
}
