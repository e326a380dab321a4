package pipeline

import "fmt"

// Hole says that EVENTS lacks messages between others that it has. It denies deletions,
// so a disk has lost them. A Source returns it as an error where they would come, and what
// is read after them is not all that was stored: nothing that is counted may be judged, or
// counted again, by it.
type Hole struct {
	First, Last uint64 // sequences of the messages that are missing
}

func (h Hole) String() string {
	if h.First == h.Last {
		return fmt.Sprintf("message %d", h.First)
	}
	return fmt.Sprintf("messages %d to %d", h.First, h.Last)
}

// Error implements error.
func (h *Hole) Error() string {
	return "EVENTS is damaged: it lacks " + h.String() + ", which no one can have deleted (docs/failures.md, Damaged files)"
}
