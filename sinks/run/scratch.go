package run

import "fmt"

// Scratch is what reading needs: the block read last, and where in it. It
// serves one caller at a time, of one run after the other; the zero value is
// ready.
type Scratch struct {
	// Ahead is how many bytes to read at once, where blocks are read one
	// after another; 0: just the block.
	Ahead int

	// Looked counts the lookups that a filter let through.
	Looked int

	run    *Run
	block  int // of run, that walk is in
	loaded bool
	walk   walk

	buffer []byte // bytes of run
	from   int64  // where in run they begin
}

// Forget lets go of the run read last; its memory stays for the next one.
func (s *Scratch) Forget() {
	s.run, s.loaded, s.buffer = nil, false, s.buffer[:0]
}

// load has walk be in a block: where it was, if it is there already.
func (s *Scratch) load(run *Run, block int) error {
	if s.loaded && s.run == run && s.block == block {
		return nil
	}
	b, err := s.read(run, block)
	if err == nil {
		b, err = openBlock(b)
	}
	if err == nil {
		err = s.enter(b, &run.index.heads[block])
	}
	s.run, s.block, s.loaded = run, block, err == nil
	if err != nil {
		return s.Damage(err)
	}
	return nil
}

// read is the bytes of a block.
func (s *Scratch) read(run *Run, block int) ([]byte, error) {
	from, to := run.index.end(block-1), run.index.end(block)
	if s.run != run || from < s.from || to > s.from+int64(len(s.buffer)) {
		n := int(min(max(to-from, int64(s.Ahead)), run.info.IndexAt-from))
		if cap(s.buffer) < n {
			s.buffer = make([]byte, max(n, blockBytes))
		}
		s.buffer, s.from = s.buffer[:n], from
		if err := readAt(run.from, s.buffer, run.at+from); err != nil {
			s.buffer = s.buffer[:0]
			return nil, err
		}
	}
	return s.buffer[from-s.from : to-s.from], nil
}

// enter begins a block, which must begin as the index says.
func (s *Scratch) enter(payload []byte, head *Key) error {
	s.walk.start(payload)
	ok, err := s.walk.next()
	if err != nil {
		return err
	}
	if !ok || s.walk.key.Compare(head) != 0 {
		return fmt.Errorf("%w: it begins with %v, not %v", ErrCorrupt, &s.walk.key, head)
	}
	s.walk.start(payload)
	return nil
}

// Damage says that err is about the block read last: what is wrong with a
// value, say.
func (s *Scratch) Damage(err error) error { return &Damage{s.block, err} }

// fail is Damage of the block itself, which is read again if it is wanted
// again.
func (s *Scratch) fail(err error) error {
	s.loaded = false
	return s.Damage(err)
}
