package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/config"
)

// docs/contract.md: "What drops counters, columns or rules begins only as it was shown",
// also when a stranger accepts empty rules, twice: what drops something begins only with
// a word about just that, and what is kept is given up only by its number.
func TestDroppingNeedsAWord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(20)
	f.Until("all likes", func() bool { return f.Likes(20, 1) })
	counting := func(c *config.Config) json.RawMessage {
		t.Helper()
		text, err := c.Counting()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	none := *n.config
	none.EventRules = nil
	blind := RebuildAsk{Counting: counting(&none), Accept: true}
	refused := func(what string, ask RebuildAsk, words ...string) {
		t.Helper()
		err := f.rebuild(RebuildVerb, ask, nil)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}

	refused("a request alone", blind, "it drops the rule of", "nobody has confirmed")
	var plan RebuildPlan
	if err := f.rebuild(RebuildPlanVerb, blind, &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Serving != 1 || len(plan.Drops) == 0 || len(plan.Changes) == 0 || plan.Deletes != 0 || plan.Messages != 20 || len(plan.Nodes) != 1 || plan.Nodes[0].Needs == 0 {
		t.Errorf("the plan is %+v", plan)
	}
	if s := f.status(); s.Building != 0 {
		t.Fatalf("a plan begins it: %+v", s)
	}
	other := blind
	other.Confirm = f.confirmed(RebuildAsk{Counting: counting(fans(n.config))}).Confirm
	refused("what was confirmed is another rebuild", other, "something else than what was shown")
	confirmed := blind
	confirmed.Confirm = plan.Confirm
	if err := f.rebuild(RebuildVerb, confirmed, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(2, n)
	refused("what was confirmed is done", confirmed, "no rebuild was begun", "generation 1")

	// Generation 1 alone still has what was dropped.
	again := RebuildAsk{Counting: blind.Counting, Accept: true}
	if err := f.rebuild(RebuildPlanVerb, again, &plan); err != nil || plan.Deletes != 1 || len(plan.Loses) == 0 {
		t.Errorf("the plan is %+v, %v", plan, err)
	}
	again.Confirm = plan.Confirm
	refused("again", again, "generation 1, which is kept and alone counts", "--back", "--drop-kept 1")
	again.DropKept = 7
	refused("another number", again, "generation 7 is not the one that is kept (1)")
	f.Until("the one before can be gone back to", func() bool { return f.rebuild(RebuildBackVerb, struct{}{}, nil) == nil })
	f.serves(1, n)
	f.Until("all likes are there again", func() bool { return f.Likes(20, 1) })
	// What is kept now counts nothing that is lost with it.
	if err := f.rebuild(RebuildVerb, RebuildAsk{Counting: counting(fans(n.config))}, nil); err != nil {
		t.Error(err)
	}
	f.serves(3, n)
}

// The operator may give up what is kept.
func TestDropKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	plain := *n.config
	f.begin(&plain, false)
	f.serves(3, n)
	counting, err := fans(&plain).Counting()
	if err != nil {
		t.Fatal(err)
	}
	ask := f.confirmed(RebuildAsk{Counting: counting})
	if ask.DropKept != 2 {
		t.Fatalf("generation 2 counts what 3 does not: %d", ask.DropKept)
	}
	if err := f.rebuild(RebuildVerb, ask, nil); err != nil {
		t.Fatal(err)
	}
	f.serves(4, n)
}
