package operators

// Rule is one line of the configuration's rules: add to a column of the row
// that a field of the event names.
type Rule struct {
	Add    string // the column's full name, "post.like"
	Key    string // the event's field that holds the row's id
	If     string // a field that must be present and non-zero, or "self", or ""
	Unless string // a field that must not be, or "self", or ""

	// Once are the one or two fields whose values the row's set has once; none: the
	// rule adds for every event.
	Once []string
	Keep int64 // seconds of log time for which the set remembers them; 0: for ever
}

// Self, as If or Unless, is true when the key's user is the actor.
const Self = "self"

// Rules are the rules of each event type, by its name.
type Rules map[string][]Rule
