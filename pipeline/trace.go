package pipeline

// Tracer reports what events do, one by one. It is for one goroutine at a time.
type Tracer interface {
	// Trace visits the events of a message for which want is true, in order.
	// Those that are dead letters count nowhere and are passed over. want and
	// visit do not keep what they are given.
	Trace(m *Message, want func(line []byte) bool, visit func(*Traced))
}

// Traced is one event that was understood, and what it does.
type Traced struct {
	Position Position
	Type     string // as the body says, or the subject
	Line     []byte // the body; of a pack, the line

	// Ids are the changes of rows and of what users have, Commons those of
	// channels: sections of a window that covers this event alone, and that one
	// shard has all ids of.
	Ids, Commons []byte
}

// Changes reads a section of the event's.
func (t *Traced) Changes(section []byte) SectionReader { return ReadSection(section, t.Position-1) }
