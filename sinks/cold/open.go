package cold

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
)

// openStacks reads the shards' lists, opens their runs and removes the files
// that nothing lists. What is wrong with one shard refuses that shard alone.
func (s *Store) openStacks() error {
	for i := range s.meta.Shards + 1 {
		s.stacks = append(s.stacks, &Stack{store: s, number: pipeline.Shard(i), edit: newLock(), visible: newLayers()})
	}
	whole := true // every list was read: what none of them has is nobody's
	s.engine.Verify(func() bool { return true }, func(d Damage) {
		// Badger says of a key in a damaged block that it is not there.
		whole = false
		for _, k := range s.stacks {
			k.fail(d)
		}
	})
	lists := make([][]listed, len(s.stacks))
	err := s.engine.Scan([]byte{prefixShard}, func(key, value []byte) error {
		number, err := parseShardKey(key)
		if err != nil {
			return err
		}
		if int(number) >= len(s.stacks) {
			return fmt.Errorf("%w: there is a state of shard %d of %d", ErrCorrupt, number, s.meta.Shards)
		}
		k := s.stacks[number]
		if k.state, lists[number], err = decodeList(key, value); err != nil {
			k.fail(k.refuse(err))
			whole = false
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cold: read the shards' states: %w; if it is damaged, move it away and run 'tidemark repair --replay'", err)
	}
	names, err := s.engine.Files()
	if err != nil {
		return fmt.Errorf("cold: list the files of runs: %w", err)
	}
	known := s.listedFiles(lists)
	whole = s.checkTwice(lists) && whole
	s.openRuns(lists, known)
	for _, name := range names {
		number, ok := parseFileName(name)
		if !ok {
			s.log.Warn("cold: a file among those of runs is none; it is left alone", "file", name)
			continue
		}
		s.files.next.Store(max(s.files.next.Load(), number))
		switch {
		case known[number] != nil:
		case !whole:
			s.log.Warn("cold: a file of runs is listed nowhere; it is kept, because a list is damaged that may have it", "file", name)
		default:
			s.log.Info("cold: a file of runs that nothing lists is removed: what wrote it was cut off", "file", name)
			if err := s.engine.Remove(name); err != nil {
				s.log.Warn("cold: it cannot be removed; the next start tries again", "file", name, "error", err)
			}
		}
	}
	for _, file := range known {
		file.release() // the layers have it, or a shard that is refused
	}
	return nil
}

// refuse says of an error that it keeps a shard from being used, and what to do.
func (k *Stack) refuse(err error) error {
	if _, exported := k.store.engine.(*scratch); exported { // of no node's
		return fmt.Errorf("cold: shard %d: %w", k.number, err)
	}
	if !errors.Is(err, ErrCorrupt) { // no descriptor left, or no right to read
		return fmt.Errorf("cold: shard %d cannot be used: %w; mend that and start the node again", k.number, err)
	}
	return fmt.Errorf("cold: shard %d cannot be used: %w; stop the node, move generations/ away and run 'tidemark repair --replay'", k.number, err)
}

// listedFiles are the files that lists have, each held once.
func (s *Store) listedFiles(lists [][]listed) map[uint64]*runFile {
	known := map[uint64]*runFile{}
	for _, list := range lists {
		for _, r := range list {
			if known[r.file] == nil {
				known[r.file] = s.files.file(r.file)
			}
			s.files.next.Store(max(s.files.next.Load(), r.file))
		}
	}
	return known
}

// checkTwice refuses the shards that list the same bytes; ok says there are none.
func (s *Store) checkTwice(lists [][]listed) (ok bool) {
	type of struct {
		listed
		stack *Stack
	}
	var all []of
	for i, list := range lists {
		for _, r := range list {
			all = append(all, of{r, s.stacks[i]})
		}
	}
	slices.SortFunc(all, func(a, b of) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.at, b.at)) })
	ok = true
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.file != b.file || b.at >= a.at+a.info.Bytes {
			continue
		}
		err := fmt.Errorf("%w: the runs at bytes %d and %d of %s, listed by shards %d and %d, overlap or are one",
			ErrCorrupt, a.at, b.at, fileName(a.file), a.stack.number, b.stack.number)
		a.stack.fail(a.stack.refuse(err))
		b.stack.fail(b.stack.refuse(err))
		ok = false
	}
	return ok
}

// openRuns opens the runs of all shards: of each their index is read.
func (s *Store) openRuns(lists [][]listed, known map[uint64]*runFile) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				s.stacks[i].open(lists[i], known)
			}
		})
	}
	for i := range lists {
		next <- i
	}
	close(next)
	wait.Wait()
}

func (k *Stack) open(list []listed, known map[uint64]*runFile) {
	var all []*layer
	for _, r := range list {
		l, err := known[r.file].find(r)
		if err != nil {
			k.fail(k.refuse(err))
			break
		}
		all = append(all, l)
	}
	if _, err := k.State(); err != nil {
		for _, r := range list {
			known[r.file].refs.Add(1) // for ever: it may be of use to an operator who looks into it
			known[r.file].live.Add(r.info.Bytes)
		}
		releaseAll(all)
		return
	}
	k.visible = newLayers(all)
	releaseAll(all)
}

// find is layer, for a run that may not be there.
func (r *runFile) find(at listed) (*layer, error) {
	size, err := r.size()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s, the run at byte %d: %w", r.name(), at.at, err)
	case at.at+at.info.Bytes > size:
		return nil, fmt.Errorf("%w: %s has %d bytes, and the run at byte %d has %d", ErrCorrupt, r.name(), size, at.at, at.info.Bytes)
	}
	return r.layer(at)
}
