package web

import (
	"bytes"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
)

// givenMax bounds the answers that are remembered: twice as many at most, some 100 bytes
// each.
const givenMax = 1 << 15

// given remembers of the answers given lately what they said besides their position.
//
// An ETag is a position, and the log goes on: the next answer to the same question has
// another position although nothing in it has changed. The sum of the answer that had the
// asker's position shows that. The position alone does not: a rebuild or a repair changes
// an answer and not its position. One that is forgotten, or that another node gave, costs
// a whole answer and nothing else.
type given struct {
	seed maphash.Seed

	mu          sync.Mutex
	now, before map[question]uint64 // sum of the answer, or several; before is dropped when now is full
}

// several stands for the sum where an ETag had more than one answer: it shows nothing.
const several = 0

// question is what was asked and the ETag of the answer.
type question struct {
	asked uint64 // of the path and the query
	tag   string
}

func newGiven() *given { return &given{seed: maphash.MakeSeed(), now: map[question]uint64{}} }

// since returns the ETag that the asker has if the reply says nothing else than the answer
// that had it; else "", and remembers this one under tag.
func (g *given) since(r *http.Request, tag string, reply []byte) (same string) {
	asked := maphash.String(g.seed, r.URL.Path+"?"+r.URL.RawQuery)
	said := reply[:bytes.LastIndex(reply, []byte(`"as_of":"`))]
	sum := maphash.Bytes(g.seed, said) | 1 // not several
	g.mu.Lock()
	defer g.mu.Unlock()
	for has := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		has = strings.TrimPrefix(strings.TrimSpace(has), "W/")
		if was, known := g.findLocked(question{asked, has}); known && was == sum {
			g.keepLocked(question{asked, has}, sum)
			return has
		}
	}
	g.keepLocked(question{asked, tag}, sum)
	return ""
}

func (g *given) findLocked(q question) (sum uint64, known bool) {
	if sum, known = g.now[q]; !known {
		sum, known = g.before[q]
	}
	return sum, known
}

func (g *given) keepLocked(q question, sum uint64) {
	if was, known := g.findLocked(q); known && was != sum {
		sum = several
	}
	if len(g.now) >= givenMax {
		g.now, g.before = make(map[question]uint64, givenMax), g.now
	}
	g.now[q] = sum
}
