package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/job"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// fans is a configuration with a column more, which counts likes again.
func fans(c *config.Config) *config.Config {
	by := *c
	by.Counters, by.EventRules = slices.Clone(c.Counters), slices.Clone(c.EventRules)
	for i, counter := range by.Counters {
		if counter.Name == "post" {
			by.Counters[i].Columns = append(slices.Clone(counter.Columns), config.Column{Name: "fans", Bits: 8, Max: 63})
		}
	}
	for i, event := range by.EventRules {
		if event.Type == "like" {
			by.EventRules[i].Rules = append(slices.Clone(event.Rules), config.Rule{Add: "post.fans", Key: "post"})
		}
	}
	return &by
}

// ask has the leader do something about a rebuild.
func (f *fleet) rebuild(verb string, request, result any) error {
	f.T.Helper()
	err := errors.New("nobody routes")
	for end := time.Now().Add(e2e.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for name := range f.Dirs {
			var raw json.RawMessage
			raw, err = job.Ask(f.T.Context(), f.NC, name, verb, request, nil)
			if e, ok := errors.AsType[*job.Error](err); ok && (e.Code == job.CodeGone || e.Code == job.CodeBusy) {
				continue
			}
			if err == nil && result != nil {
				err = json.Unmarshal(raw, result)
			}
			return err
		}
	}
	return err
}

func (f *fleet) begin(by *config.Config, accept bool) generations.Number {
	f.T.Helper()
	counting, err := by.Counting()
	if err != nil {
		f.T.Fatal(err)
	}
	var begun RebuildBegun
	if err := f.rebuild(RebuildVerb, f.confirmed(RebuildAsk{Counting: counting, Accept: accept}), &begun); err != nil {
		f.T.Fatalf("%v\n%s", err, f.Log.String())
	}
	return begun.Building
}

// confirmed is the request of an operator who has read what it does.
func (f *fleet) confirmed(ask RebuildAsk) RebuildAsk {
	var p RebuildPlan
	if err := f.rebuild(RebuildPlanVerb, ask, &p); err == nil {
		ask.Confirm = p.Confirm
		if len(p.Loses) > 0 {
			ask.DropKept = p.Deletes
		}
	}
	return ask
}

func (f *fleet) status() (s RebuildStatus) {
	f.T.Helper()
	if err := f.rebuild(RebuildStatusVerb, struct{}{}, &s); err != nil {
		f.T.Logf("status: %v", err)
	}
	return s
}

// serves waits until nodes answer by a generation.
func (f *fleet) serves(number generations.Number, nodes ...*Node) {
	f.T.Helper()
	f.Until(fmt.Sprintf("generation %d serves", number), func() bool {
		for _, n := range nodes {
			if n.Serving().Number != number {
				return false
			}
		}
		return true
	})
}

// "A rebuild gives a new column its history".
func TestRebuildAddsAColumn(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	f.Publish(100)
	f.Publish(50)
	f.Until("all likes", func() bool { return f.Likes(50, 2) })
	if got := f.begin(fans(n.config), false); got != 2 {
		t.Fatalf("generation %d is building", got)
	}
	f.serves(2, n)
	f.Until("the new column", f.Has("post", "fans", 7, 2))
	f.Until("the new column", f.Has("post", "fans", 77, 1))
	if !f.Likes(50, 2) {
		t.Error(f.Get("post", "like", 7))
	}
	f.Publish(10)
	f.Until("what comes", f.Has("post", "fans", 7, 3))
	s := f.status()
	if s.State != generations.Switched || s.Serving != 2 || s.Kept != 1 || s.Differs != 0 {
		t.Errorf("%+v", s)
	}
}

// asker asks for the likes of a post over and over, and notes what it must not see.
type asker struct {
	f      *fleet
	stop   chan struct{}
	done   chan struct{}
	asked  int
	faults []string
	// several nodes answer, and switch one after the other: until the last one has, an
	// answer may be of the generation before, which is behind, and says so.
	several bool
}

func (f *fleet) asks(id int) *asker { return f.asksOf(id, false) }

func (f *fleet) asksOf(id int, several bool) *asker {
	a := &asker{f: f, stop: make(chan struct{}), done: make(chan struct{}), several: several}
	go a.run(id)
	f.T.Cleanup(func() {
		select {
		case <-a.stop:
		default:
			close(a.stop)
		}
		<-a.done
	})
	return a
}

func (a *asker) run(id int) {
	defer close(a.done)
	last, lastPosition := 0, 0
	for {
		select {
		case <-a.stop:
			return
		default:
		}
		var reply struct {
			Rows []struct {
				Like int `json:"like"`
			} `json:"rows"`
			AsOf    string   `json:"as_of"`
			Missing []string `json:"missing"`
		}
		text := a.f.Get("post", "like", id)
		err := json.Unmarshal([]byte(text), &reply)
		position, _ := strconv.Atoi(reply.AsOf)
		a.asked++
		switch {
		case err != nil || len(reply.Rows) != 1 || len(reply.Missing) > 0:
			a.faults = append(a.faults, text)
		case reply.Rows[0].Like < last && (!a.several || position >= lastPosition):
			a.faults = append(a.faults, fmt.Sprintf("%d at %d after %d at %d", reply.Rows[0].Like, position, last, lastPosition))
		default:
			last, lastPosition = max(reply.Rows[0].Like, last), max(position, lastPosition)
		}
	}
}

// end ends the asking, and fails for what it saw.
func (a *asker) end() {
	a.f.T.Helper()
	close(a.stop)
	<-a.done
	if len(a.faults) > 0 {
		a.f.T.Errorf("of %d answers %d are none or go back: %.1000q", a.asked, len(a.faults), a.faults)
	}
	if a.asked < 10 {
		a.f.T.Errorf("only %d answers", a.asked)
	}
}

// busy publishes likes of the first posts until it is ended, and says how many each has got.
func (f *fleet) busy(posts int) (end func() int) {
	stop, rounds := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				rounds <- n
				return
			default:
				f.Publish(posts)
				n++
			}
		}
	}()
	return func() int {
		close(stop)
		return <-rounds
	}
}

// docs/contract.md: "When it has caught up, both are held to the log; if nothing differs,
// all nodes answer from the new generation, in one step": on all nodes, those that only
// answer as well, while everything goes on. README.md: "Another number of shards": of
// each generation its own.
func TestRebuildOnManyNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a, b := f.Start("a"), f.Start("b")
	f.Publish(100)
	f.Until("a part each", func() bool { return settled(a, b) })
	f.Edit = func(c *config.Config) { c.Roles = []string{config.RoleAnswer} }
	thin := f.Start("t")
	f.Edit = nil
	f.Until("all likes", func() bool { return f.Likes(100, 1) })
	f.Until("the thin one is ready", func() bool { return thin.Ready() == nil })
	asker, end := f.asksOf(5, true), f.busy(20)
	by := fans(a.config)
	by.Shards = 4
	f.begin(by, false)
	f.serves(2, a, b, thin)
	time.Sleep(300 * time.Millisecond)
	more := end()
	f.Until("the new column", f.Has("post", "fans", 7, 1+more))
	f.Until("the new column", f.Has("post", "fans", 77, 1))
	asker.end()
	for _, n := range []*Node{a, b, thin} {
		f.Until("ready", func() bool { return n.Ready() == nil })
	}
	if n := a.Serving().Inside().Held(); a.Serving().Config.Shards != 4 || n.Len() == 0 || n.Len() == 4 {
		t.Errorf("node a holds %v of %d shards", n, a.Serving().Config.Shards)
	}
	t.Logf("%d likes and %d answers meanwhile", more, asker.asked)
}
