package kit

import "time"

// Paced keeps the log of something that is tried again and again short: it has a line when
// the text changes, and one every half a minute. The zero value is ready. Not safe for
// concurrent use.
type Paced struct {
	text string
	at   time.Time
}

const pacedEvery = 30 * time.Second

// Due reports whether to log text now.
func (p *Paced) Due(text string) bool {
	if text == p.text && time.Since(p.at) < pacedEvery {
		return false
	}
	p.text, p.at = text, time.Now()
	return true
}
