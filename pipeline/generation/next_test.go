package generation_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// What is due at every stage, whatever the leader sees.
func TestNext(t *testing.T) {
	type due func(generation.Seen) generation.Step
	when := func(is func(generation.Seen) bool, then, otherwise due) due {
		return func(seen generation.Seen) generation.Step {
			if is(seen) {
				return then(seen)
			}
			return otherwise(seen)
		}
	}
	always := func(s generation.Step) due { return func(generation.Seen) generation.Step { return s } }
	caughtUp := func(seen generation.Seen) bool { return seen.CaughtUp }
	built := func(then due) due { // a rebuild goes on while EVENTS is whole, and once all have caught up
		return when(func(seen generation.Seen) bool { return seen.Lacks }, always(generation.StepAbort), when(caughtUp, then, always(generation.StepWait)))
	}
	kept := when(func(seen generation.Seen) bool { return seen.KeptLong }, always(generation.StepDrop), always(generation.StepWait))
	want := map[string]due{
		"none": always(generation.StepTidy), "aborted": always(generation.StepTidy), "dropped": always(generation.StepTidy),
		"building":  built(always(generation.StepCompare)),
		"comparing": built(always(generation.StepCheck)),
		"differs":   built(always(generation.StepWait)), // an operator decides
		"accepted":  built(always(generation.StepSwitch)),
		"alike":     built(when(func(seen generation.Seen) bool { return seen.Compared }, always(generation.StepSwitch), always(generation.StepCheck))),
		"switched":  kept, "back": kept,
	}
	all := stages(t)
	alike, err := all["alike"].Accepted() // whatever is found
	if err != nil {
		t.Fatal(err)
	}
	all["alike, accepted"], want["alike, accepted"] = alike, built(always(generation.StepSwitch))
	if len(all) != len(want) {
		t.Fatalf("%d stages, and %d have a step", len(all), len(want))
	}
	for bits := range 1 << 4 {
		seen := generation.Seen{Lacks: bits&1 != 0, CaughtUp: bits&2 != 0, Compared: bits&4 != 0, KeptLong: bits&8 != 0}
		for stage, s := range all {
			if is, want := s.Next(seen), want[stage](seen); is != want {
				t.Errorf("%s, %+v: %s is due, want %s", stage, seen, is, want)
			}
		}
	}
}

// The step that is due can be taken: no leader tries what the record refuses.
func TestNextCanBeTaken(t *testing.T) {
	for stage, s := range stages(t) {
		for bits := range 1 << 4 {
			seen := generation.Seen{Lacks: bits&1 != 0, CaughtUp: bits&2 != 0, Compared: bits&4 != 0, KeptLong: bits&8 != 0}
			var err error
			step := s.Next(seen)
			switch step {
			case generation.StepDrop:
				_, err = s.Drop()
			case generation.StepAbort:
				_, err = s.Abort("why")
			case generation.StepCompare:
				_, err = s.Compare()
			case generation.StepCheck:
				_, err = s.Found(0, "")
			case generation.StepSwitch:
				_, err = s.Switch(1)
			case generation.StepWait, generation.StepTidy:
			default:
				t.Errorf("%s is no step", step)
			}
			if err != nil {
				t.Errorf("%s of %s: %v", step, stage, err)
			}
		}
	}
}
