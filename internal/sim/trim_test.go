package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/sinks/backup"
)

// rebuild brings the record on: another generation is built beside the one that serves,
// given up, or serves, and the one before is kept for a while. What they count is the
// same here; how they come to it is simulated in pipeline/generation.
func (w *world) rebuild() error {
	var next generation.Set
	var err error
	set := w.vault.set
	switch first := w.server.State(jetlog.EventsStream).First; {
	case set.Kept != 0:
		next, err = set.Drop()
	case set.Building == 0 && first > 1:
		return nil // "A rebuild needs all of the log"
	case w.backupFault().heedless && set.Building != 0, set.Building == 0 && w.rand.IntN(4) > when(w.backupFault().heedless, 4):
		return nil // it takes its time
	case set.Building == 0:
		next, err = set.Begin(json.RawMessage(`"next"`), false)
	case w.rand.IntN(3) == 0:
		next, err = set.Abort("by chance")
	default:
		if next, err = set.Compare(); err == nil {
			next, err = next.Found(0, "")
		}
		if err == nil {
			next, err = next.Switch(0)
		}
	}
	if err == nil {
		w.vault.set = next
		w.note("generation %d serves, %d is being built, %d is kept", next.Serving, next.Building, next.Kept)
	}
	return err
}

// trim has a process trim EVENTS by what it knows of the others: not above the newest
// backup of what serves, nor what any node that is there has applied, and not while a
// generation is being built.
func (w *world) trim() error {
	p, state := w.processes[w.rand.IntN(len(w.processes))], w.server.State(jetlog.EventsStream)
	place, all, err := w.backups()
	if err != nil {
		return fmt.Errorf("a backup that was made cannot be read: %w", err)
	}
	if !p.up() || p.view == nil || len(all) == 0 || state.Messages == 0 {
		return nil
	}
	set := w.vault.set
	if w.backupFault().heedless {
		set.Building = 0
	}
	t := backup.Trim{Below: state.First + w.rand.Uint64N(state.Last+2-state.First), Why: "the rest is too young"}
	if !w.backupFault().baseless {
		if err := t.To(all[0], place.String(), set, state.Created); err != nil {
			w.note("%d may not trim", p.number)
			return nil
		}
	}
	p.view.Needed("", t.Bound)
	if w.vault.noted != nil {
		t.Archived(w.vault.noted, state.Created)
	}
	w.note("%d trims EVENTS, which begins with %d, to %d: %s", p.number, state.First, t.Below, t.Why[:min(len(t.Why), 22)])
	if t.Below <= state.First {
		return nil
	}
	before := map[*process]bool{}
	for _, q := range w.processes {
		before[q] = w.stranded(q)
	}
	for _, m := range w.server.Held(jetlog.EventsStream) {
		if m.Sequence < t.Below {
			w.vault.trimmed = append(w.vault.trimmed, m)
			trimmed.Add(1)
		}
	}
	w.server.Purge(jetlog.EventsStream, t.Below)
	if err := w.unarchived(t.Below); err != nil {
		return err
	}
	served := w.vault.set
	switch base := all[0]; {
	case served.Building != 0:
		return fmt.Errorf("EVENTS is trimmed below %d, and generation %d is being built", t.Below, served.Building)
	case base.Generation() != served.Serving || t.Below > base.From.Next():
		return fmt.Errorf("EVENTS is trimmed below %d, above its base: the newest backup, of generation %d, has what was counted before %d, and generation %d serves",
			t.Below, base.Generation(), base.From.Next(), served.Serving)
	}
	for _, q := range w.processes {
		if m, there := p.view.Member(q.name()); there && m.Status != cluster.Away && m.Session == strconv.Itoa(q.lives) && !before[q] && w.stranded(q) {
			return fmt.Errorf("EVENTS is trimmed below %d, and process %d, which is there, stands at %v", t.Below, q.number, q.node.Positions())
		}
	}
	return nil
}

// unarchived is an error where something was archived, and what is trimmed was not.
func (w *world) unarchived(below uint64) error {
	d, err := w.archive()
	if err != nil {
		return fmt.Errorf("the archive: %w", err)
	}
	if _, last, _ := d.Extent(); w.vault.noted != nil && below > last+1 {
		return fmt.Errorf("EVENTS is trimmed below %d, and the archive ends with message %d", below, last)
	}
	return nil
}

// stranded says that what a process has to apply next is neither in DELTAS nor in
// EVENTS any more.
func (w *world) stranded(p *process) bool {
	if !p.up() || w.backupsOff() {
		return false
	}
	stands := p.node.Positions()
	if len(stands) == 0 || stands[0].Next() >= w.begins() {
		return false
	}
	held := w.server.Held(jetlog.DeltasStream)
	if len(held) == 0 {
		return true
	}
	h, err := pipeline.DecodeHeader(held[0].Data)
	return err != nil || h.From > stands[0]
}

func (w *world) backupsOff() bool { return w.setup.backups == 0 }

// giveUp has an operator take the disk from who is stranded: he restores it.
func (w *world) giveUp() error {
	for _, p := range w.processes {
		if w.stranded(p) {
			w.note("%d is stranded", p.number)
			w.crashed(p)
			p.lose()
			return nil
		}
	}
	return nil
}

func (w *world) anyStranded() bool { return slices.ContainsFunc(w.processes, w.stranded) }
