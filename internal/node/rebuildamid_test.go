package node

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/e2e"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// owing is a record that differs only in what its generation owes.
func owing(now generations.Set, letters uint64) generations.Set {
	serving := now.All[now.Serving]
	serving.Letters = letters
	now.All = maps.Clone(now.All)
	now.All[now.Serving] = serving
	now.Epoch++
	return now
}

// amid is a context that does something at the first moments somebody bounds it.
type amid struct {
	context.Context
	moments int
	do      func()
}

func (a *amid) Deadline() (time.Time, bool) {
	if a.moments > 0 {
		a.moments--
		a.do()
	}
	return a.Context.Deadline()
}

// A rebuild begins although the record changes at the same time for other reasons, as it
// does just after a switch.
func TestRebuildBeginsAmidChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	counting, err := fans(n.config).Counting()
	if err != nil {
		t.Fatal(err)
	}
	changes := 0
	ctx := &amid{t.Context(), 3, func() {
		next, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) {
			return owing(now, 1), nil
		})
		if err != nil {
			t.Error(err)
		}
		f.Until("it is known", func() bool { return n.rebuilds.set().Epoch >= next.Epoch })
		changes++
	}}
	if begun, err := n.beginRebuild(ctx, &RebuildAsk{Counting: counting}); err != nil || begun.Building != 3 {
		t.Fatalf("%+v, %v, after %d changes", begun, err, changes)
	}
	if changes != 3 {
		t.Errorf("the record was changed %d times", changes)
	}
	f.serves(3, n)
}

// A change of the record is made although this node hears only late of the one before it,
// as it does amid a switch.
func TestRecordIsHeardOfLate(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	n.rebuilds.end() // who hears of it
	was := n.rebuilds.set()
	faster := owing(was, 7)
	if err := n.rebuilds.writer.Load().Write(t.Context(), was, faster); err != nil {
		t.Fatal(err)
	}
	const late = 3 * rebuildsEvery
	heard := time.AfterFunc(late, func() { n.rebuilds.known.Store(&faster) })
	defer heard.Stop()
	next, err := n.changeRecord(t.Context(), func(now generations.Set) (generations.Set, error) { return owing(now, 8), nil })
	if err != nil || next.Epoch != faster.Epoch+1 || !f.record().Equal(next) {
		t.Errorf("%v; it is %+v, want %+v", err, f.record(), next)
	}
}

// "--back" just after a switch: before all nodes have said how far what is kept is.
func TestBackAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.rebuilt("a")
	kept := n.rebuilds.beside.Load()
	f.Until("it is up to date", func() bool { return caughtUp(kept) })
	const triesMax = 4 // on a busy machine it may not be said within settleWithin
	var err error
	for range triesMax {
		kept.Inside().Open.Store(false) // so this node says that it has nothing
		f.Until("it is not there", func() bool { return !caughtUp(kept) })
		kept.Inside().Open.Store(true)
		if err = f.rebuild(RebuildBackVerb, struct{}{}, nil); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	f.serves(1, n)
}

// Many nodes that ask one at the same time what it knows of the generations are answered: a
// rebuild is not refused because an operator looks how another one stands.
func TestManyAskAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	n := f.Start("a")
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	var work sync.WaitGroup
	for range 100 {
		work.Go(func() {
			if p, err := n.askPrepared(ctx, "a", nil); err != nil || p.Node != "a" {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	work.Wait()
}
