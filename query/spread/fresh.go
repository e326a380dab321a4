package spread

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query"
)

// given is how far the answers of this process have reached about a shard, those that
// came from other nodes. One process's answers never go back by themselves: what an
// answer reaches is the least of all shards in it, so that with another question the
// same node may reach less far, and yet say nothing older.
type given struct {
	at atomic.Uint64 // pipeline.Position; 0: no other node has answered

	mu      sync.Mutex
	by      *link // that gave it
	session string
}

// holds says whether an answer that reaches asOf, of a process that another link and
// session stand for, is older than one that was given.
func (g *given) holds(asOf pipeline.Position, by *link, session string) (older bool) {
	if uint64(asOf) >= g.at.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.by != by || g.session != session
}

// give notes an answer of another node.
func (g *given) give(asOf pipeline.Position, by *link, session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if uint64(asOf) < g.at.Load() {
		return
	}
	g.at.Store(uint64(asOf))
	g.by, g.session = by, session
}

// mine is how far the answers have reached that came from this process's own shards.
type mine struct {
	upTo   atomic.Uint64
	shards []atomic.Bool // about which there were any
	all    atomic.Bool   // about all
}

func (m *mine) give(asOf pipeline.Position, shards ...pipeline.Shard) {
	for _, s := range shards {
		if !m.shards[s].Load() {
			m.shards[s].Store(true)
		}
	}
	raise(&m.upTo, uint64(asOf))
}

func (m *mine) giveAll(asOf pipeline.Position) {
	if !m.all.Load() {
		m.all.Store(true)
	}
	raise(&m.upTo, uint64(asOf))
}

// holds says whether an answer of another node is older than one that was given.
func (m *mine) holds(asOf pipeline.Position, s pipeline.Shard) bool {
	return uint64(asOf) < m.upTo.Load() && (m.all.Load() || m.shards[s].Load())
}

// gave notes an answer of other nodes.
func (r *Reader) gave(asOf pipeline.Position, shards []pipeline.Shard, by *link, session string) {
	for _, s := range shards {
		r.given[s].give(asOf, by, session)
	}
	raise(&r.givenMost, uint64(asOf))
}

// wholeEnough says whether an answer of this process, which holds all shards, may be
// given: it is not older than one before, and no other node can have a fresher one.
func (r *Reader) wholeEnough(asOf pipeline.Position, v *View) bool {
	if uint64(asOf) < r.givenMost.Load() || r.staleHere(asOf, v) {
		return false
	}
	r.mine.giveAll(asOf)
	return true
}

// partEnough is wholeEnough for a process that holds the shards of some ids.
func (r *Reader) partEnough(asOf pipeline.Position, v *View, ids []uint64) bool {
	if r.staleHere(asOf, v) {
		return false
	}
	for _, id := range ids {
		s := v.shardOf(id)
		if uint64(asOf) < r.given[s].at.Load() {
			return false
		}
		if !r.mine.shards[s].Load() {
			r.mine.shards[s].Store(true)
		}
	}
	raise(&r.mine.upTo, uint64(asOf))
	return true
}

// staleHere says whether an answer is older than an answer may be, and other nodes can
// have one that is not.
func (r *Reader) staleHere(asOf pipeline.Position, v *View) bool {
	if r.fresh == nil || r.fresh.Reaches(asOf) || !v.others() {
		return false
	}
	least, can := r.fresh.Least()
	return can && asOf < least
}

// due is what an answer of one process to some items of a call is held to.
type due struct {
	call    *call
	link    *link // nil: this process
	session string
	shards  []pipeline.Shard
	tried   []string
	final   bool // what there is of it is taken: nobody else can answer
	stale   bool // it is older than an answer may be: waiting for a moment does not help
	refused bool // it was late
}

// late says whether an answer is not to be taken, and asked of others: because it is
// older than one that was given before, or than an answer may be that is not degraded
// while another node may have a fresher one. What is taken all the same is noted in cost.
func (d *due) late(asOf pipeline.Position, cost *query.Cost) bool {
	d.stale = asOf < d.call.least
	if !d.final && d.stale && d.hopeful() {
		if d.link != nil {
			d.link.shun()
		}
		d.refused = true
		return true
	}
	if d.older(asOf) {
		if !d.final {
			d.refused = true
			return true
		}
		cost.Old = true
		return false
	}
	if r := d.call.reader; d.link != nil {
		r.gave(asOf, d.shards, d.link, d.session)
	} else {
		r.mine.give(asOf, d.shards...)
	}
	return false
}

// givenWait is how long this process waits until its own shards are as far as what
// other nodes have answered about them: it has just taken them up.
const givenWait = 100 * time.Millisecond

func (c *call) awaitGiven(own query.Holder, shards []pipeline.Shard) {
	var most uint64
	for _, s := range shards {
		most = max(most, c.reader.given[s].at.Load())
	}
	if p := pipeline.Position(most); p > own.Applied() {
		ctx, cancel := context.WithTimeout(c.ctx, givenWait)
		defer cancel()
		_ = own.WaitApplied(ctx, p) // late sees how far it has come
	}
}

// older says whether an answer of this process about any of the shards reached further.
func (d *due) older(asOf pipeline.Position) bool {
	r := d.call.reader
	return slices.ContainsFunc(d.shards, func(s pipeline.Shard) bool {
		return r.given[s].holds(asOf, d.link, d.session) || d.link != nil && r.mine.holds(asOf, s)
	})
}

// hopeful says whether another node may have an answer that is not stale: one that has
// said that it is as far, or has not been heard lately.
func (d *due) hopeful() bool {
	r, least := d.call.reader, d.call.least
	v, own, now := r.dir.View(), r.dir.Own(), time.Now()
	for _, s := range d.shards {
		if d.link != nil && own != nil && !slices.Contains(d.tried, ownNode) && own.Holds(s) && own.Applied() >= least {
			return true
		}
		for _, l := range d.call.untried(v.Holders[s], v, d.tried) {
			if l != d.link && (pipeline.Position(l.applied.Load()) >= least || !l.heardSince(now.Add(-avoidFor))) {
				return true
			}
		}
	}
	return false
}

// hash is FNV-1a.
func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// preferred is the way to the copy of a shard that this process asks as long as it is
// well: by rendezvous hashing of process, shard and node (Thaler and Ravishankar, "Using
// name-based mappings to increase hit rates", 1998). So its answers come from one copy,
// and where a node is gone only what was asked of it is asked of others.
func (r *Reader) preferred(shard pipeline.Shard, links []*link) *link {
	return slices.MaxFunc(links, func(a, b *link) int {
		return cmp.Compare(r.score(shard, a), r.score(shard, b))
	})
}

// score is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, 2014).
func (r *Reader) score(shard pipeline.Shard, l *link) uint64 {
	x := r.seed ^ l.hash + uint64(shard)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// heardSince says whether the node has said anything since.
func (l *link) heardSince(t time.Time) bool { return l.heard.Load() > t.UnixNano() }
