package twin

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	seedFlag      = flag.Uint64("seed", 0, "seed of the generated sequences; 0 draws one")
	sequencesFlag = flag.Int("sequences", 0, "how many sequences; 0 is as many as the build is meant for")
	onlyFlag      = flag.Int("only", -1, "this sequence alone")
)

const perWorld = 50 // sequences in one world

// sequencesOfRun is how many sequences a run takes, unless a flag says so.
func sequencesOfRun() int {
	if testing.Short() {
		return 200
	}
	return 3000
}

// draw makes everything that must not change an answer, and the ages.
func draw(r *rand.Rand) setup {
	s := setup{
		shards:       []int{1, 2, 3, 5, 8}[r.IntN(5)],
		owners:       1 + r.IntN(2),
		dirtyRowsMax: []int{20, 200, 5000}[r.IntN(3)],
		memory:       []int{0, 1, 100_000}[r.IntN(3)],
		every:        []time.Duration{time.Millisecond, 20 * time.Millisecond, time.Hour}[r.IntN(3)],
		ages:         agesOf(3+r.IntN(3), 3600, 7200),
	}
	switch r.IntN(4) {
	case 0:
		s.ages = agesOf(4, 7200, 3600)
	case 1: // log time is told to the minute
		s.ages.retention, s.ages.inactiveAfter = 30*86_400, 12*86_400
	}
	s.ages.postsKept = s.ages.postsPerAuthor + r.IntN(10)
	s.ages.channels = []int{4, 5, 4096}[r.IntN(3)] // three are configured
	s.ages.notices = []int{1, 2, 4, 100_000}[r.IntN(4)]
	s.ages.once = r.IntN(2) == 0
	s.ages.items = []int{0, 0, 1, 2, 3, 5, 1000}[r.IntN(7)]
	if r.IntN(3) == 0 {
		s.defaults = map[string]int64{"user.liked": 9, "unread.like": 4, "post.comment": 2, "page.view": 5}
	}
	return s
}

// Generated event sequences (all types, deletes, reads with seen and as_of,
// channels, unfollows, adjusts, refused ones) against the naive model, in
// windows, shards and owners of any number, with restarts and crashes between;
// and all of it once more from an empty directory.
//
// A failure names the seed and the sequence and shows the shortest list of
// messages found that fails, too.
func TestTwin(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	sequences := sequencesOfRun()
	if *sequencesFlag > 0 {
		sequences = *sequencesFlag
	}
	t.Logf("%d sequences, seed %d: go test ./internal/twin -run 'TestTwin$' -seed=%d", sequences, seed, seed)
	for first := 0; first < sequences; first += perWorld {
		last := min(first+perWorld, sequences)
		if *onlyFlag >= 0 {
			if *onlyFlag < first || *onlyFlag >= last {
				continue
			}
			first, last = *onlyFlag, *onlyFlag+1
		}
		if number, err := many(t.TempDir(), seed, first, last); err != nil {
			t.Fatalf("sequence %d: %v\n%s", number, err, shortest(t, seed, number))
		}
		if *onlyFlag >= 0 {
			return
		}
	}
}

// chances is the source of everything by chance in one sequence.
func chances(seed uint64, number int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(number))) }

func setupOf(seed uint64, number int) setup {
	return draw(rand.New(rand.NewPCG(^seed, uint64(number/perWorld))))
}

// past is a sequence that is over.
type past struct {
	sequence
	model *model
}

// many tells sequences one after the other in one world, and then once more in
// another one, from an empty directory, cut otherwise.
func many(root string, seed uint64, first, last int) (number int, err error) {
	w, err := newWorld(root, setupOf(seed, first))
	if err != nil {
		return first, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all []past
	for number := first; number < last; number++ {
		r := chances(seed, number)
		s := generate(r, number, w.ages)
		m := &model{ages: w.ages, defaults: w.defaults}
		if err := w.tell(r, s, m); err != nil {
			return number, err
		}
		all = append(all, past{s, m})
		if r.IntN(20) == 0 { // an old one still answers
			old := all[r.IntN(len(all))]
			if err := w.same(old.model, old.people, 3); err != nil {
				return number, fmt.Errorf("of an earlier sequence: %w", err)
			}
		}
	}
	r := chances(seed, first)
	other, err := w.again(draw(r), r.IntN(len(windowEvents)))
	if err != nil {
		return last - 1, err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	for i := range all {
		for _, world := range []*world{w, other} {
			if err := world.same(all[i].model, all[i].people, 4); err != nil {
				return first + i, fmt.Errorf("when all is told: %w", err)
			}
		}
	}
	return 0, nil
}

// tell publishes a sequence, asks now and then, and restarts and crashes now and then.
func (w *world) tell(r *rand.Rand, s sequence, m *model) error {
	return errors.Join(w.tellSome(r, s.people, s.messages, m), w.finish(s, m))
}

// tellSome does so with messages about people.
func (w *world) tellSome(r *rand.Rand, about people, messages []message, m *model) error {
	return w.runs(r, messages, m, func() error {
		switch r.IntN(60) {
		case 0:
			return w.restart(false)
		case 1:
			return w.crash()
		case 2:
			if r.IntN(5) == 0 {
				return w.restart(true)
			}
		}
		return nil
	}, func() error { return w.same(m, about, 1+r.IntN(6)) })
}

// runs publishes messages in runs. After each something happens, and after some and the
// last it is asked.
func (w *world) runs(r *rand.Rand, messages []message, m *model, happen, ask func() error) error {
	for rest := messages; len(rest) > 0; {
		n := min(1+r.IntN(25), len(rest))
		err := w.publish(rest[:n], r.IntN(len(windowEvents)), m)
		if rest = rest[n:]; err == nil {
			err = happen()
		}
		if err == nil && (len(rest) == 0 || r.IntN(4) == 0) {
			err = ask()
		}
		if err != nil {
			return fmt.Errorf("with %d messages left: %w", len(rest), err)
		}
	}
	return nil
}

// finish withdraws a sequence's notices.
func (w *world) finish(s sequence, m *model) error {
	end := s.finish()
	if len(end) == 0 {
		return nil
	}
	err := w.publish(end, 3, m)
	w.notices = nil // none of them lives
	return err
}

// retell tells messages in a world of their own, asks after each, and starts anew
// after each if it is to.
func retell(root string, s setup, about people, messages []message, again func(*world) error) error {
	w, err := newWorld(root, s)
	if err != nil {
		return err
	}
	defer w.close()
	m := &model{ages: s.ages, defaults: s.defaults}
	for i := range messages {
		if err := errors.Join(w.publish(messages[i:i+1], 3, m), again(w), w.same(m, about, 2)); err != nil {
			return fmt.Errorf("after message %d: %w", i+1, err)
		}
	}
	return nil
}

// shortest looks for a short list of messages that fails, too.
func shortest(t *testing.T, seed uint64, number int) string {
	t.Helper()
	again := fmt.Sprintf("go test ./internal/twin -run 'TestTwin$' -seed=%d -sequences=%d", seed, (number/perWorld+1)*perWorld)
	set := setupOf(seed, number)
	s := generate(chances(seed, number), number, set.ages)
	for what, start := range map[string]func(*world) error{
		"asked":               func(*world) error { return nil },
		"restarted and asked": func(w *world) error { return w.restart(false) },
		"crashed and asked":   func(w *world) error { return w.crash() },
	} {
		fails := func(messages []message) error { return retell(t.TempDir(), set, s.people, messages, start) }
		if fails(s.messages) != nil {
			messages := shorten(s.messages, func(messages []message) bool { return fails(messages) != nil })
			return fmt.Sprintf("it alone: %s -only=%d\nshortened, %s after each message, setup %+v:\n%v\n%s", again, number, what, set, fails(messages), list(messages))
		}
	}
	return again + "\nits messages alone, asked after each, do not fail"
}

// shorten leaves out what is not needed for a failure, large pieces first.
func shorten(messages []message, fails func([]message) bool) []message {
	deadline := time.Now().Add(30 * time.Second)
	for size := len(messages) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(messages) && time.Now().Before(deadline); {
			less := append(append([]message{}, messages[:at]...), messages[at+size:]...)
			if fails(less) {
				messages = less
			} else {
				at += size
			}
		}
	}
	return messages
}

func list(messages []message) string {
	var b strings.Builder
	for i, m := range messages {
		fmt.Fprintf(&b, "%4d  %s\n", i+1, m)
	}
	return b.String()
}
