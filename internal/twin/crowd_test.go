package twin

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
)

// A crowd answers as the model does, which goes through all events each time.
func TestCrowd(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	worlds := uint64(60)
	if testing.Short() {
		worlds = 20
	}
	for number := range worlds {
		r := rand.New(rand.NewPCG(seed, number))
		users := []uint64{1, 2, 3, 4, 5}
		b := NewBoard(Bounds{2, 6, time.Hour, 2 * time.Hour, 5, 4, false})
		c, m := NewCrowd(b, users...), &model{ages: b.ages}
		millis := int64(1_700_000_000_000)
		for sequence := range uint64(300) {
			millis += []int64{0, 1000, 60_000, 600_000, -5000}[r.IntN(5)]
			b.Pass(millis)
			e := crowdEvent(r, users)
			if r.IntN(3) == 0 && e.kind != "read" {
				e = e.Undone()
			}
			at := pipeline.At(sequence+1, 0)
			c.Log(e, at)
			m.log = append(m.log, logged{e, at, b.second()})
			if r.IntN(10) > 0 {
				continue
			}
			b.Work()
			m.now, m.lives = b.second(), b.lives
			counts := m.count()
			got, _, _ := c.Answers()
			for i, user := range users {
				want := m.answer(counts, user)
				for j := range want.Row {
					want.Row[j] = max(want.Row[j], 0)
				}
				if !reflect.DeepEqual(got[i], want) {
					t.Fatalf("run %d, after %d events, user %d:\n got %+v\nwant %+v", number, sequence+1, user, got[i], want)
				}
			}
		}
	}
}

func crowdEvent(r *rand.Rand, users []uint64) event {
	user := users[r.IntN(len(users))]
	switch r.IntN(4) {
	case 0:
		return Posted(user, user*100+r.Uint64N(14))
	case 1:
		other := users[r.IntN(len(users))]
		if other == user {
			other = user%5 + 1
		}
		return Follow(user, other)
	case 2:
		return Notice(channelNames[r.IntN(len(channelNames))], 1+r.Uint64N(6))
	}
	what := []string{"feed", "all", "follower", "channel:system", "channel:games", "channel:promo"}
	return ReadOf(user, what[r.IntN(len(what))])
}
