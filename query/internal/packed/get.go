package packed

import "encoding/binary"

// GetAsk is a tidemark.get as it is read. It is used again and again; its names
// share the memory of the request.
type GetAsk struct {
	Wait
	Counter []byte
	Columns [][]byte
}

// AppendGet appends the request.
func AppendGet(b []byte, w *Wait, counter string, columns []string, ids []uint64) []byte {
	b = appendAsk(b, w, 0)
	b = AppendText(b, counter)
	b = appendNames(b, columns)
	return AppendIDs(b, ids)
}

// Read reads a request of most ids at most, and appends them to ids. The error
// wraps a *NoID where one is 0, ErrTooMany where there are more, and a
// *TooManyNames where that many columns are named.
func (a *GetAsk) Read(body []byte, ids []uint64, most int) ([]uint64, error) {
	c := Cursor{B: body}
	a.Wait, _ = c.ask(givenPosition | givenSequence | givenTimeout | givenWhole)
	a.Counter = c.Sized()
	a.Columns = c.names(a.Columns[:0], "columns", ColumnsMax)
	c.tooMany(most)
	ids = c.IDs(ids, "ids", most)
	return ids, malformed("a get", c.End())
}

// AppendGetHead appends an answer as far as its cells: the caller appends as many
// columns of n cells as there are names, by AppendCells.
func AppendGetHead(b []byte, t *Tail, n int, names []string) []byte {
	b = appendReply(b, t)
	b = binary.AppendUvarint(b, uint64(n))
	return appendNames(b, names)
}

// GetReply is the answer to a tidemark.get as it is read.
type GetReply struct {
	Tail
	Columns []string
	// Values holds column j of the i-th id at [i*len(Columns)+j].
	Values []int64
}

// Read reads the answer for n ids. Columns that are named like those at the same
// places of asked share their memory.
func (r *GetReply) Read(body []byte, n int, asked []string) error {
	c := Cursor{B: body}
	var flags byte
	r.Tail, flags = c.reply(n)
	if is := c.Uvarint(); c.Err == nil && is != uint64(n) {
		c.Fail("%d rows, %d were asked", is, n)
	}
	r.Columns = c.strings(nil, "columns", asked)
	if c.cells(n, len(r.Columns)); c.Err == nil {
		columns := len(r.Columns)
		r.Values = make([]int64, n*columns)
		for j := range columns {
			c.Cells(r.Values[min(j, len(r.Values)):], n, columns) // below zero, of a signed column
		}
	}
	return malformed("an answer", c.end(&r.Tail, flags))
}

// strings reads a list of texts; known are names that they may be.
func (c *Cursor) strings(to []string, what string, known []string) []string {
	n := c.Count(what, len(c.B))
	if n > 0 {
		to = make([]string, 0, n)
	}
	for i := range n {
		switch text := c.Sized(); {
		case c.Err != nil:
			return to
		case i < len(known) && string(text) == known[i]:
			to = append(to, known[i])
		default:
			to = append(to, string(text))
		}
	}
	return to
}
