package generation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

var a, b = json.RawMessage(`{"a":1}`), json.RawMessage(`{"b":"<&>"}`)

// stages are sets that follow each other, by name.
func stages(t testing.TB) map[string]generation.Set {
	t.Helper()
	none, err := generation.Start(a)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]generation.Set{"none": none}
	step := func(name string, s generation.Set, err error) generation.Set {
		t.Helper()
		if err == nil {
			err = s.Fault()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = s
		return s
	}
	s, err := all["none"].Begin(b, false)
	s = step("building", s, err)
	aborted, err := s.Abort("enough")
	step("aborted", aborted, err)
	s, err = s.Compare()
	s = step("comparing", s, err)
	differs, err := s.Found(3, "ids 1, 2, 3")
	differs = step("differs", differs, err)
	accepted, err := differs.Accepted()
	step("accepted", accepted, err)
	s, err = s.Found(0, "")
	s = step("alike", s, err)
	s, err = s.Switch(77)
	s = step("switched", s, err)
	back, err := s.Back(99)
	step("back", back, err)
	s, err = s.Drop()
	step("dropped", s, err)
	s, err = s.Again()
	s = step("again", s, err)
	if s.All[s.Building].CountsBy() != s.All[s.Serving].CountsBy() {
		t.Errorf("it counts by another configuration: %+v", s)
	}
	if due := s.Next(generation.Seen{CaughtUp: true}); due != generation.StepReplace {
		t.Errorf("once it has caught up, %s is due", due)
	}
	s, err = s.Replace()
	step("replaced", s, err)
	return all
}

// Every transition from every stage: the next state, or why not.
func TestTransitions(t *testing.T) {
	all := stages(t)
	changes := map[string]func(generation.Set) (generation.Set, error){
		"begin":    func(s generation.Set) (generation.Set, error) { return s.Begin(b, true) },
		"compare":  generation.Set.Compare,
		"found":    func(s generation.Set) (generation.Set, error) { return s.Found(1, "why") },
		"accepted": generation.Set.Accepted,
		"switch":   func(s generation.Set) (generation.Set, error) { return s.Switch(5) },
		"back":     func(s generation.Set) (generation.Set, error) { return s.Back(6) },
		"abort":    func(s generation.Set) (generation.Set, error) { return s.Abort("why") },
		"drop":     generation.Set.Drop,
		"again":    generation.Set.Again,
		"replace":  generation.Set.Replace,
	}
	kept := errors.New("kept still")
	refused := map[string]map[string]error{
		"none":      {"compare": generation.ErrNone, "found": generation.ErrNone, "accepted": generation.ErrNone, "switch": generation.ErrNone, "back": generation.ErrKept, "abort": generation.ErrNone, "drop": generation.ErrKept},
		"building":  {"begin": generation.ErrUnderWay, "found": generation.ErrNone, "switch": generation.ErrNone, "back": generation.ErrUnderWay, "drop": generation.ErrKept},
		"comparing": {"begin": generation.ErrUnderWay, "compare": generation.ErrNone, "switch": generation.ErrNotYet, "back": generation.ErrUnderWay, "drop": generation.ErrKept},
		"differs":   {"begin": generation.ErrUnderWay, "compare": generation.ErrNone, "switch": generation.ErrDiffers, "back": generation.ErrUnderWay, "drop": generation.ErrKept},
		"alike":     {"begin": generation.ErrUnderWay, "compare": generation.ErrNone, "back": generation.ErrUnderWay, "drop": generation.ErrKept},
		"switched":  {"begin": kept, "compare": generation.ErrNone, "found": generation.ErrNone, "accepted": generation.ErrNone, "switch": generation.ErrNone, "abort": generation.ErrNone},
	}
	refused["again"] = maps.Clone(refused["building"])
	refused["again"]["compare"] = generation.ErrNone
	refused["accepted"], refused["back"] = refused["alike"], refused["switched"]
	refused["aborted"], refused["dropped"], refused["replaced"] = refused["none"], refused["none"], maps.Clone(refused["switched"])
	refused["replaced"]["back"] = generation.ErrKept
	for stage, of := range refused {
		of["again"], of["replace"] = of["begin"], generation.ErrNone
		if stage == "again" {
			of["replace"] = nil
		}
	}
	for stage, s := range all {
		was, _ := json.Marshal(s)
		for name, change := range changes {
			next, err := change(s)
			switch want := refused[stage][name]; {
			case want == kept && err != nil && strings.Contains(err.Error(), "kept still"):
			case want != nil && !errors.Is(err, want), want == nil && err != nil:
				t.Errorf("%s of %s: %v, want %v", name, stage, err, want)
			case err == nil && (next.Epoch != s.Epoch+1 || next.Fault() != nil):
				t.Errorf("%s of %s: epoch %d after %d, fault %v", name, stage, next.Epoch, s.Epoch, next.Fault())
			case err != nil && !next.Equal(s):
				t.Errorf("%s of %s was refused, and gave %+v", name, stage, next)
			}
		}
		if is, _ := json.Marshal(s); !bytes.Equal(is, was) {
			t.Errorf("%s was changed by what was made of it", stage)
		}
	}

	s := all["back"]
	if s.Serving != 1 || s.Kept != 2 || s.All[1].Letters != 77 {
		t.Errorf("back, while letters behind 77 are owed: %+v", s)
	}
	settled, err := all["switched"].Settled()
	if err == nil {
		s, err = settled.Back(99)
	}
	if err != nil || s.All[1].Letters != 99 {
		t.Errorf("back, and none are owed: %+v, %v", s, err)
	}
	// Numbers are not used twice, slots are, and what serves keeps its configuration.
	for _, name := range []string{"aborted", "dropped"} {
		s, err := all[name].Begin(a, false)
		if err != nil || s.Building != 3 || s.All[3].Slot != 1-s.All[s.Serving].Slot || s.Compared || s.Accept || s.Differs != 0 || s.Why != "" {
			t.Errorf("begun after %s: %+v, %v", name, s, err)
		}
	}
	long, err := all["building"].Abort(strings.Repeat("ä", generation.WhyBytesMax))
	if _, err2 := long.Encode(); err != nil || err2 != nil || !strings.HasSuffix(long.Why, "ä…") {
		t.Errorf("a long reason: %v, %v", err, err2)
	}
}

// Whatever somebody wrote that no node writes is said.
func TestFault(t *testing.T) {
	all := stages(t)
	for words, harm := range map[string]func() generation.Set{
		"names no epoch":           func() generation.Set { s := all["building"]; s.Epoch = 0; return s },
		"are both beside":          func() generation.Set { s := all["building"]; s.Kept = 3; return s },
		"named twice":              func() generation.Set { s := all["building"]; s.Building = 1; return s },
		"compared false, 0":        func() generation.Set { s := all["switched"]; s.Compared = false; return s },
		"generation 1 is kept":     func() generation.Set { s := all["switched"]; s.State = generation.Aborted; return s },
		"is newer than the newest": func() generation.Set { s := all["building"]; s.Newest = 1; return s },
		"is no free one":           func() generation.Set { return with(all["building"], 2, generation.Generation{Slot: 0, Counting: b}) },
		"of 0 bytes":               func() generation.Set { return with(all["building"], 1, generation.Generation{Slot: 0}) },
		"why has 1025 bytes":       func() generation.Set { s := all["building"]; s.Why = strings.Repeat("x", 1025); return s },
	} {
		s := harm()
		if err := s.Fault(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", words, err)
		}
		if _, err := s.Encode(); err == nil {
			t.Errorf("%q was encoded", words)
		}
	}
	for name, s := range all {
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := generation.Decode(text); err != nil || !back.Equal(s) {
			t.Errorf("%s came back as %+v, %v", name, back, err)
		}
	}
}

func with(s generation.Set, n generation.Number, g generation.Generation) generation.Set {
	all := map[generation.Number]generation.Generation{}
	for n, g := range s.All {
		all[n] = g
	}
	all[n] = g
	s.All = all
	return s
}

// Of two records the one of the higher epoch holds, however few generations it knows of; of two
// of one epoch the one in the bucket.
func TestNewest(t *testing.T) {
	all := stages(t)
	for _, c := range [][3]string{
		{"none", "comparing", "comparing"},
		{"none", "switched", "switched"},
		{"switched", "building", "switched"},
		{"none", "dropped", "dropped"},
		{"aborted", "comparing", "comparing"},
		{"comparing", "aborted", "aborted"},
		{"switched", "gone", "switched"},
	} {
		if got := generation.Newest(all[c[0]], all[c[1]]); !got.Equal(all[c[2]]) {
			t.Errorf("of %s and %s in the bucket %+v holds", c[0], c[1], got)
		}
	}
	restored, err := all["dropped"].Only()
	if err != nil || !generation.Newest(restored, all["building"]).Equal(all["building"]) {
		t.Errorf("a restored record holds: %+v, %v", restored, err)
	}
	if !generation.Newest(restored, all["none"]).Equal(restored) || !generation.Newest(all["none"], restored).Equal(restored) {
		t.Error("the first record of a node without counts holds against a restored one")
	}
	spaced := all["switched"].All[2]
	spaced.Counting = json.RawMessage(`{ "b": "\u003c\u0026>" }`) // as a file keeps it
	if spaced.CountsBy() != all["switched"].All[2].CountsBy() {
		t.Error("one configuration is taken for two")
	}
}

func TestAt(t *testing.T) {
	for n, want := range map[generation.Number]string{0: "a.g1", 1: "a.g1", 2: "a.g2", 4294967295: "a.g4294967295"} {
		if got := n.At("a"); got != want {
			t.Errorf("generation %d is asked at %s, not %s", n, got, want)
		}
	}
}

// Whatever the bucket holds, it is refused, or is a set without fault that comes back
// as it was.
func FuzzDecode(f *testing.F) {
	for _, s := range stages(f) {
		text, _ := json.Marshal(s)
		f.Add(text)
	}
	f.Add([]byte(`{"epoch":"1","serving":1,"generations":{"1":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := generation.Decode(text)
		if err != nil {
			if !errors.Is(err, generation.ErrMalformed) || s.Epoch != 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := generation.Decode(again)
		if err != nil || !back.Equal(s) {
			t.Fatalf("%s came back as %s: %v", text, again, err)
		}
	})
}

// docs/decisions/0028-generations.md: "A number is used once": what is found of one that
// nobody remembers is passed.
func TestPast(t *testing.T) {
	s, err := stages(t)["none"].Past(6).Begin(b, false)
	if err != nil || s.Building != 7 || s.Newest != 7 || s.Serving != generation.First || s.Epoch != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if s, err = s.Abort(""); err != nil {
		t.Fatal(err)
	}
	if s, err = s.Past(3).Begin(b, false); err != nil || s.Building != 8 {
		t.Errorf("a number comes again: %+v, %v", s, err)
	}
}

// A record of a later version is malformed to a member, which knows that nobody writes
// such a one, and names what to do to a node that starts.
func TestDecodeLaterVersion(t *testing.T) {
	s, err := generation.Start(json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	newest := pipeline.FormatRecord.Newest
	text, err := s.EncodeIn(newest + 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = generation.Decode(text)
	if want := fmt.Sprintf("version %d, and this program reads versions %d to %d", newest+1, pipeline.FormatRecord.Oldest, newest); !errors.Is(err, generation.ErrVersion) || !errors.Is(err, generation.ErrMalformed) || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q: %v", want, err)
	}
}
