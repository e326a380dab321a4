package operators

// words finds which of a few known words some bytes spell, without hashing
// them whole: by length and two letters, then one compare. It does not change
// after newWords and may be shared.
//
//	place = (length·31 + first·7 + last) mod 128 → the words that fall there
type words struct {
	places [wordPlaces][]word
}

type word struct {
	text  string
	index int
}

const wordPlaces = 128

// newWords numbers words by their place in a list.
func newWords(list []string) *words {
	w := new(words)
	for i, text := range list {
		if text == "" {
			continue
		}
		at := wordPlace([]byte(text))
		w.places[at] = append(w.places[at], word{text, i})
	}
	return w
}

func wordPlace(b []byte) int {
	return (len(b)*31 + int(b[0])*7 + int(b[len(b)-1])) % wordPlaces
}

// find is the word's number.
func (w *words) find(b []byte) (index int, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, candidate := range w.places[wordPlace(b)] {
		if string(b) == candidate.text {
			return candidate.index, true
		}
	}
	return 0, false
}
