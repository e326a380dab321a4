package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/cmd/tidemark/job"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// openRecord begins to watch the record of generations. jetlog.ErrNoBucket: nobody
// has run on this server yet.
func (n *Node) openRecord(ctx context.Context) (*jetlog.Generations, error) {
	streams, err := jetlog.Attach(ctx, n.nc, 0, 0, n.log)
	if err != nil {
		return nil, err
	}
	return jetlog.OpenGenerations(ctx, streams, n.log)
}

// openGenerations finds out which generation serves: by the record, and by what this
// directory knows of it. The file must count like one of those that there are.
func (n *Node) openGenerations() error {
	r := &n.rebuilds
	ctx, cancel := n.gen().startContext()
	defer cancel()
	err := n.gen().untilLed(ctx, lookWithin, passingRecord, func(ctx context.Context) (err error) {
		if r.record, err = n.openRecord(ctx); err == nil {
			r.writer.Store(r.record)
		}
		return err
	})
	if err != nil && !errors.Is(err, jetlog.ErrNoBucket) {
		return err
	}
	set := n.dir.generations()
	r.restored = n.dir.marker.Restored != nil
	if r.record != nil {
		if set, err = n.judgeAtStart(ctx, set); err != nil {
			return err
		}
	}
	if set.Epoch == 0 {
		if was := n.dir.counted(generations.First).Shards; was != n.config.Shards && was != 0 {
			return fmt.Errorf("data_dir %s was made with %d shards and the configuration says %d: set shards: %d; to count by %d, run 'tidemark rebuild --config FILE', or, with all nodes stopped, 'tidemark repair --replay'",
				n.dir.path, was, n.config.Shards, was, n.config.Shards)
		}
		return nil
	}
	if err := n.fitsGenerations(set); err != nil {
		return err
	}
	if !set.Equal(n.dir.generations()) {
		if err := n.take(set); err != nil {
			return err
		}
	}
	r.known.Store(&set)
	g, err := n.newGenerationOf(set, set.Serving)
	if err != nil {
		return err
	}
	n.serving.Store(g)
	return nil
}

// passingRecord says of an error that the record may be there in a moment. That there
// is no bucket is so at the first start.
func passingRecord(err error) bool {
	return jetlog.Passing(err) && !errors.Is(err, jetlog.ErrNoBucket)
}

// openServing opens the generation that serves.
func (n *Node) openServing() error {
	g := n.gen()
	if err := n.evict(g); err != nil {
		return err
	}
	err := g.openAll()
	if errors.Is(err, jetlog.ErrGeneration) && n.rebuilds.set().Epoch == 0 {
		err = fmt.Errorf("%w; neither the bucket nor this data directory knows of it: start a node that does, or restore a backup; if all that was counted is lost, "+
			"'nats stream rm %s': then everything is counted again from EVENTS", err, g.slot.Deltas())
	}
	return err
}

// judgeAtStart is the record to begin with. A directory without counts goes by what
// is there, or by what others say.
func (n *Node) judgeAtStart(ctx context.Context, own generations.Set) (generations.Set, error) {
	there, fault := n.rebuilds.record.Seen()
	stored, err := n.dir.stored()
	if err != nil {
		return own, err
	}
	fresh := own.Epoch == 0 && len(stored) == 0
	if fresh && (fault != nil || there.Epoch > 0) { // what the others say, which may not obey what is there
		told, ok, others := n.askGenerations(ctx)
		if ok {
			return told, nil
		}
		fresh = !others
	}
	if fault != nil {
		return own, nil
	}
	next, why := n.judge(ctx, own, there, fresh) // attendRebuilds says why
	if why != nil && there.Epoch > own.Epoch && n.dir.marker.Restored != nil {
		return n.restoredOver(ctx, own, there)
	}
	return next, nil
}

// restoredOver is the record where a backup was restored of a generation that the
// record knows no more, and no other node is there that knows better: what was
// restored serves.
func (n *Node) restoredOver(ctx context.Context, own, there generations.Set) (generations.Set, error) {
	counting, err := n.config.Counting()
	if err != nil {
		return own, err
	}
	next, err := own.Over(there, counting)
	if err != nil {
		return own, err
	}
	for slot := range jetlog.Slot(jetlog.Slots) {
		if _, err := n.clearSlot(ctx, slot, there.Newest); err != nil {
			return own, fmt.Errorf("a backup of generation %d was restored here, and generation %d serves by the record: %w", next.Serving, there.Serving, err)
		}
	}
	n.log.Warn("tidemark: the record of the generations knows nothing of what was restored here, and no other node is there: what was restored serves", "generation", next.Serving, "was", there.Serving)
	return next, nil
}

// judge says which record this node acts on, of what it knows and what is there, and
// why that is not what is there. A node without counts has nothing to lose.
func (n *Node) judge(ctx context.Context, own, there generations.Set, fresh bool) (next generations.Set, why error) {
	switch {
	case own.Equal(there), there.Epoch == 0 && own.Epoch == 0:
		return own, nil
	case there.Epoch == 0:
		return own, errors.New("the record of the generations is gone")
	case fresh, own.Follows(there):
		return there, nil
	case there.Epoch <= own.Epoch:
		return own, fmt.Errorf("the record has epoch %d, and this node knows %d", there.Epoch, own.Epoch)
	}
	// This node was away while a generation came and went, or it is forged.
	r := &n.rebuilds
	if time.Since(r.asked) < askAgain && r.done != nil {
		return own, r.unsaid
	}
	defer func() { r.asked, r.unsaid = time.Now(), why }()
	if told, ok, _ := n.askGenerations(ctx); ok && told.Serving == there.Serving && told.Epoch >= there.Epoch {
		return told, nil
	}
	return own, fmt.Errorf("the record (epoch %d) says that generation %d serves, which does not follow from what this node knows (epoch %d), and no other node says the same; if it was forged, delete the key generations of the bucket %s",
		there.Epoch, there.Serving, own.Epoch, jetlog.Bucket)
}

// askAgain is how often others are asked about a record that this node may not follow.
const askAgain = 5 * time.Second

// generationsVerb is what nodes ask each other: which generations there are, and
// whether one more may be.
const generationsVerb = "generations"

// askGenerations asks others which generations there are, and gives the newest answer;
// told: somebody knows of any. there: somebody answers.
func (n *Node) askGenerations(ctx context.Context) (newest generations.Set, told, there bool) {
	var nodes []cluster.State
	for slot := range jetlog.Slot(jetlog.Slots) {
		members, err := jetlog.AttachMembers(ctx, n.nc, slot, jetlog.MembersOptions{Beat: memberBeat, Expiry: memberExpiry, Logger: n.log})
		if err != nil {
			continue
		}
		nodes = append(nodes, members.View().Members...)
		members.Close()
	}
	for _, p := range n.known(ctx, nodes) {
		there = true
		if p.Generations.Epoch > newest.Epoch && p.Generations.Fault() == nil {
			newest, told = p.Generations, true
		}
	}
	return newest, told, there
}

// askPrepared asks a node which generations it knows of and, with counting, what speaks
// against one more that counts by that.
func (n *Node) askPrepared(ctx context.Context, node string, counting json.RawMessage) (p Prepared, err error) {
	const every = rebuildsEvery / 50 // it takes a moment
	raw, err := job.AskWhenFree(ctx, n.queries, node, generationsVerb, PrepareAsk{counting}, every, 0)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	return p, err
}

// known is what others know of the generations, of those that answer. A process that
// only answers is not asked: it has nothing to lose, and obeys what is there.
func (n *Node) known(ctx context.Context, nodes []cluster.State) (answers []Prepared) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	asked := map[string]bool{n.name: true}
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, m := range nodes {
		if m.Status == cluster.Away || asked[m.Node] || !m.Roles.Has(cluster.Hold) && !m.Roles.Has(cluster.Route) {
			continue
		}
		asked[m.Node] = true
		work.Go(func() {
			answer, err := n.askPrepared(ctx, m.Node, nil)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, answer)
		})
	}
	work.Wait()
	return answers
}

// outrun is an error where a node that is there knows a newer record than this one does:
// the bucket was lost, and has an older copy. What follows from that must not be
// written, that node has acted on the newer one.
func (n *Node) outrun(ctx context.Context, from generations.Set) error {
	nodes := n.gen().view().Members
	if b := n.rebuilds.beside.Load(); b != nil {
		nodes = append(slices.Clone(nodes), b.view().Members...)
	}
	for _, p := range n.known(ctx, nodes) {
		if p.Generations.Epoch > from.Epoch && p.Generations.Fault() == nil {
			return fmt.Errorf("node %s knows the generations of epoch %d, and this one those of %d: ask again in a moment", p.Node, p.Generations.Epoch, from.Epoch)
		}
	}
	return nil
}

// newGenerationOf is a generation as the record has it, not opened yet.
func (n *Node) newGenerationOf(set generations.Set, number generations.Number) (*generation, error) {
	is, c := set.All[number], n.config
	if len(is.Counting) > 0 {
		by, err := n.config.CountingBy(is.Counting)
		if err != nil {
			return nil, fmt.Errorf("what generation %d counts by does not fit the configuration of this node: %w", number, err)
		}
		c = by
	}
	g := n.newGeneration(number, jetlog.Slot(is.Slot), c)
	if number != generations.First { // whose number is nobody else's
		g.countsBy = is.CountsBy()
	}
	return g, nil
}

// is says whether this is the generation that a record has with that number.
func (n *generation) is(number generations.Number, set generations.Set) bool {
	return n.number == number && (n.countsBy == "" || n.countsBy == set.All[number].CountsBy())
}

// beginAnew deletes what is stored here of another generation with this number: its
// record was lost, and who wrote the next one knew nothing of it.
func (n *generation) beginAnew() error {
	was := n.dir.counted(n.number)
	if n.countsBy == "" || was.Counting == n.countsBy {
		return nil
	}
	if was.Counting != "" {
		n.log.Warn("tidemark: what is stored of a generation is of another one with its number; it is counted anew", "generation", n.number)
	}
	if err := n.dir.drop(n.number); err != nil {
		return err
	}
	return n.dir.note(n.number, noted{Shards: n.config.Shards, Counting: n.countsBy})
}

// fitsGenerations refuses a file that counts otherwise than all generations that
// there are: it would be of no effect.
func (n *Node) fitsGenerations(set generations.Set) error {
	file, err := n.config.Counting()
	if err != nil {
		return err
	}
	for _, is := range set.All {
		by, err := n.config.CountingBy(is.Counting)
		if err != nil {
			continue // it is said where that generation is opened
		}
		if same, err := by.Counting(); err == nil && bytes.Equal(same, file) {
			return nil
		}
	}
	return fmt.Errorf("the configuration counts otherwise than generation %d, which serves, and than any beside it: what is counted changes by 'tidemark rebuild --config FILE', on one node, while the nodes run with their files of before; "+
		"then give this node the file that the others have", set.Serving)
}

// changeRecord writes the record that follows from the one that this node knows. It
// returns when this node acts on it, or will at once. Another change that came before it
// may be heard of late, where a node is amid a switch: it begins again for settleWithin.
func (n *Node) changeRecord(ctx context.Context, change func(generations.Set) (generations.Set, error)) (next generations.Set, err error) {
	r := n.rebuilds.writer.Load()
	if r == nil {
		return next, jetlog.ErrNoBucket
	}
	for end := time.Now().Add(settleWithin); ; {
		from := n.rebuilds.set()
		if from.Epoch == 0 {
			from = generations.Set{}
		}
		if next, err = change(from); err != nil {
			return from, err
		}
		again, err := n.writeRecord(ctx, r, from, next)
		if !again || time.Now().After(end) {
			return next, err
		}
		select {
		case <-time.After(rebuildsEvery / 5):
		case <-ctx.Done():
			return next, err
		}
	}
}

// writeRecord puts next in the place of from; again: what was faster is heard of soon.
func (n *Node) writeRecord(ctx context.Context, r *jetlog.Generations, from, next generations.Set) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if err := n.outrun(ctx, from); err != nil {
		return true, err
	}
	err = r.Write(ctx, from, next)
	return errors.Is(err, jetlog.ErrDecided), err
}
