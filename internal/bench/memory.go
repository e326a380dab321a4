package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// The keys of Redis are as short as a careful team makes them.
const hashSuffix = ".cnt"

var (
	stringSuffixes = []string{".cntrn", ".cntcm", ".cntan"} // by column
	hashFields     = []string{"rn", "cm", "an"}
)

const redisBatch = 1000 // posts in a command or pipeline

// loadStrings sets a key for each counter of the posts [from, to).
func loadStrings(ctx context.Context, s *redisServer, from, to int) error {
	for ; from < to; from += redisBatch {
		var pairs []any
		for i := from; i < min(from+redisBatch, to); i++ {
			id := strconv.FormatUint(postID(uint64(i)), 10)
			for j, value := range countsOf(uint64(i)) {
				pairs = append(pairs, id+stringSuffixes[j], value)
			}
		}
		if err := s.MSet(ctx, pairs...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// loadHashes sets a hash for each of the posts [from, to).
func loadHashes(ctx context.Context, s *redisServer, from, to int) error {
	for ; from < to; from += redisBatch {
		pipe := s.Pipeline()
		for i := from; i < min(from+redisBatch, to); i++ {
			var pairs []any
			for j, value := range countsOf(uint64(i)) {
				pairs = append(pairs, hashFields[j], value)
			}
			pipe.HSet(ctx, strconv.FormatUint(postID(uint64(i)), 10)+hashSuffix, pairs...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rowBytes is the memory of post rows and their number, as /metrics says.
func rowBytes(figures map[string]float64) (bytes, rows float64) {
	bytes, ok := figures[`tidemark_row_bytes{counter="post"}`]
	if !ok {
		bytes = figures["tidemark_rows_bytes"] // of all counters; here others have no rows
	}
	return bytes, figures[`tidemark_rows{counter="post"}`]
}

// memory is bytes a row at growing numbers of rows, beside Redis with the same
// counts: all that it allocates more than when it was empty.
func (g *growing) memory(ctx context.Context) error {
	const what, unit = "memory, a post row of 3 columns", "bytes"
	hashes := line{what: what, unit: unit, beside: "Redis, a hash for each post", target: atMost(14)}
	strung := line{what: what, unit: unit, beside: "Redis, a key for each counter", target: atMost(14)}
	var empty [2]float64
	servers := []*redisServer{g.strings, g.hashes}
	for i, s := range servers {
		if s == nil {
			hashes.lack, strung.lack = errRedis, errRedis
			continue
		}
		var err error
		if empty[i], err = s.memory(ctx); err != nil {
			return err
		}
	}
	var by []string
	for _, rows := range g.size.rows {
		if err := g.growTo(ctx, rows); err != nil {
			return err
		}
		figures, err := g.p.figures()
		if err != nil {
			return err
		}
		bytes, held := rowBytes(figures)
		if int(held) != rows {
			return fmt.Errorf("%v post rows are in memory, %d were loaded", held, rows)
		}
		hashes.ours = append(hashes.ours, bytes/held)
		text := fmt.Sprintf("%s: %s", number(float64(rows)), last(hashes.ours))
		if g.strings != nil {
			for i, to := range []*sample{&strung.theirs, &hashes.theirs} {
				used, err := servers[i].memory(ctx)
				if err != nil {
					return err
				}
				*to = append(*to, (used-empty[i])/float64(rows))
			}
			text += fmt.Sprintf(" (hash %s, keys %s)", last(hashes.theirs), last(strung.theirs))
		}
		by = append(by, text)
	}
	// The figure is the most at any number of rows.
	worst := 0
	for i, v := range hashes.ours {
		if v > hashes.ours[worst] {
			worst = i
		}
	}
	strung.ours = hashes.ours
	for _, l := range []*line{&hashes, &strung} {
		l.among, l.ours = l.ours, l.ours[worst:worst+1]
		if l.theirs != nil {
			l.theirs = l.theirs[worst : worst+1]
		}
		g.table.add(*l)
	}
	g.table.note("bytes a row by number of rows: %s. The process holds %s MiB (RssAnon) with the last.",
		strings.Join(by, ", "), number(g.p.resident("RssAnon")))
	return nil
}

// disk is what a row takes on disk, with nothing left to write and to merge.
func (g *growing) disk(ctx context.Context) error {
	bytes, err := g.p.rest(ctx)
	if err != nil {
		return err
	}
	g.table.add(line{what: "on disk, a post row of 3 columns", unit: "bytes", ours: sample{bytes / float64(g.rows)}, target: atMost(12)})
	figures, err := g.p.figures()
	if err != nil {
		return err
	}
	g.table.add(line{what: "the same, index and filter in memory", unit: "bytes", ours: sample{figures["tidemark_run_index_bytes"] / float64(g.rows)}})
	return nil
}

// resident is a figure of the process's memory, in MiB; 0 where the system
// does not tell.
func (p *program) resident(key string) float64 {
	return status(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), key) / 1024
}
