package jetlog

import "strings"

// Events that were refused and are sent again: room letters publishes them, and
// readers of EVENTS see them under the subject of their type.
const (
	// ResentSubject begins the subjects of events that are sent again.
	ResentSubject = EventsSubject + "resent."
	// HeaderResent of such an event says which event was refused.
	HeaderResent = "Tidemark-Resent"
	// HeaderType of such an event is its type.
	HeaderType = "Tidemark-Type"
)

// resentAs is the subject of an event as it is to be read: that of its type.
func resentAs(subject string, header map[string][]string) string {
	if kind := header[HeaderType]; len(kind) == 1 && kind[0] != "" && strings.HasPrefix(subject, ResentSubject) {
		return EventsSubject + kind[0]
	}
	return subject
}
