package twin

import (
	"math/rand/v2"
	"testing"
)

// What is wrong about lists of unread items, sequences find: each mistake that the model is
// made to make, within a few of them.
func TestWrongItemsAreFound(t *testing.T) {
	const most = 400
	for mistake := wrong(1); mistake < wrongs; mistake++ {
		found := false
		for number := 0; number < most && !found; number++ {
			r := chances(uint64(mistake), number)
			s := setupOf(uint64(mistake), number*perWorld)
			s.ages.items = 3
			found = findsWrong(t, r, s, number, mistake)
		}
		if !found {
			t.Errorf("mistake %d is found by none of %d sequences", mistake, most)
		}
	}
}

func findsWrong(t *testing.T, r *rand.Rand, s setup, number int, mistake wrong) bool {
	w, err := newWorld(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	return w.tell(r, generate(r, number, s.ages), &model{ages: s.ages, defaults: s.defaults, wrong: mistake}) != nil
}
