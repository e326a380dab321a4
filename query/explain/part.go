package explain

import "slices"

// part is what one run of messages has for a page: touches as they are read, the
// oldest first. A run may have millions of them, and gigabytes of bodies. What is
// held is bounded: bodies are kept only of those that may be on the page, the
// newest; and of too many touches the oldest are let go of, and read again when
// it is their turn.
type part struct {
	page    *page
	touches []*touch
	bodies  int    // the oldest that has its body; those before it have none
	bytes   int    // of the bodies from there on
	first   uint64 // before this message touches were let go of; 0: none were
}

// touchesMax is how many touches a part comes down to once it has twice as many: as
// many as a stretch has events.
const touchesMax = eventsDefault

// add takes in a touch that is newer than those before.
func (f *part) add(t *touch) {
	f.touches = append(f.touches, t)
	f.bytes += t.shown()
	for newest := len(f.touches) - 1; f.bodies <= newest; {
		newer := len(f.page.touches) + newest - f.bodies
		if newer < f.page.ask.Limit && (newer == 0 || f.page.bytes+f.bytes <= bodiesMax) { // see fitting
			break
		}
		f.dropBody()
	}
	if len(f.touches) > 2*touchesMax {
		f.cut(touchesMax)
	}
}

func (f *part) dropBody() {
	t := f.touches[f.bodies]
	f.bytes -= t.shown()
	t.Body = nil
	f.bodies++
}

// cut leaves the newest touches, so many and all of their messages.
func (f *part) cut(left int) {
	at := len(f.touches) - left
	for at > 0 && f.touches[at-1].Position.Sequence() == f.touches[at].Position.Sequence() {
		at--
	}
	if at == 0 {
		return
	}
	for f.bodies < at {
		f.dropBody()
	}
	f.bodies -= at
	f.touches = slices.Delete(f.touches, 0, at)
	f.first = f.touches[0].Position.Sequence()
}

// turn hands the touches over to the page, and begins the next part.
func (f *part) turn() {
	for _, t := range slices.Backward(f.touches) {
		f.page.touches = append(f.page.touches, t)
		f.page.bytes += t.shown()
	}
	*f = part{page: f.page, touches: f.touches[:0]}
}
