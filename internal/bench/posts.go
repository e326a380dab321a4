package main

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/client"
)

// columns of a post's row, in the order of counts.
var columns = []string{"repost", "comment", "like"}

// counts are a post's, none of them 0.
type counts [3]int64

// postID is the id of the i-th post: like ids made of a clock and a number
// drawn at random, they ascend with gaps. No two are the same.
func postID(i uint64) uint64 { return 1<<50 + i<<12 | pipeline.Mix(i)&0xfff }

// countsOf are the i-th post's: mostly small, with a long tail. One like count
// in 500 does not fit into the 8 bits that its column has at first.
func countsOf(i uint64) counts {
	tail := func(salt uint64, weight float64) int64 {
		u := (float64(pipeline.Mix(i*3+salt)>>11) + 1) / (1 << 53) // (0, 1]
		return int64(math.Pow(u, -weight))
	}
	return counts{tail(0, 0.7), tail(1, 0.7), tail(2, 0.9)}
}

// rowLines appends the events that set the i-th post's columns, a line each.
func rowLines(add func(line []byte) error, buffer []byte, i uint64) ([]byte, error) {
	id := postID(i)
	for j, value := range countsOf(i) {
		buffer = adjustLine(buffer[:0], id, columns[j], value)
		if err := add(buffer); err != nil {
			return buffer, err
		}
	}
	return buffer, nil
}

func adjustLine(line []byte, id uint64, column string, value int64) []byte {
	line = append(line, `{"type":"adjust","counter":"post","id":`...)
	line = strconv.AppendUint(line, id, 10)
	line = append(append(append(line, `,"column":"`...), column...), `","set":`...)
	line = strconv.AppendInt(line, value, 10)
	return append(line, '}')
}

// feedLines publishes lines in large packs and returns when all of them are
// answered.
func feedLines(ctx context.Context, c *client.Client, write func(add func(line []byte) error) error) error {
	p, err := c.NewPacker(client.PackOptions{LinesMax: pipeline.PackMax, Delay: -1, InFlightMax: 32, Patience: time.Minute})
	if err != nil {
		return err
	}
	if err := write(p.AddLine); err != nil {
		_ = p.Close(ctx) // the first error is the one to tell
		return err
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	return applied(ctx, c, p.Position())
}

// loadRows gives the posts [from, to) all three columns.
func loadRows(ctx context.Context, c *client.Client, from, to int) error {
	return feedLines(ctx, c, func(add func([]byte) error) (err error) {
		var buffer []byte
		for i := from; i < to && err == nil; i++ {
			buffer, err = rowLines(add, buffer, uint64(i))
		}
		return err
	})
}

// loadLikes makes rows of the posts [from, to) with one event each.
func loadLikes(ctx context.Context, c *client.Client, from, to int) error {
	return feedLines(ctx, c, func(add func([]byte) error) (err error) {
		var buffer []byte
		for i := from; i < to && err == nil; i++ {
			buffer = adjustLine(buffer[:0], postID(uint64(i)), "like", countsOf(uint64(i))[2])
			err = add(buffer)
		}
		return err
	})
}
