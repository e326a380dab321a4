package packed

import "encoding/binary"

// UnreadAsk is a tidemark.unread as it is read. It is used again and again; its
// names share the memory of the request.
type UnreadAsk struct {
	Wait
	Channels [][]byte // where All is false
	All      bool     // all channels that there are
}

// AppendUnread appends the request. Channels nil: all; empty: none.
func AppendUnread(b []byte, w *Wait, users []uint64, channels []string) []byte {
	if channels == nil {
		return AppendIDs(appendAsk(b, w, 0), users)
	}
	return AppendIDs(appendNames(appendAsk(b, w, givenChannels), channels), users)
}

// Read reads a request of most users at most, and appends them to ids; its errors are
// those of GetAsk.
func (a *UnreadAsk) Read(body []byte, ids []uint64, most int) ([]uint64, error) {
	c := Cursor{B: body}
	var given byte
	a.Wait, given = c.ask(givenAll)
	a.All, a.Channels = given&givenChannels == 0, a.Channels[:0]
	if !a.All {
		a.Channels = c.names(a.Channels, "channels", ChannelsMax)
	}
	c.tooMany(most)
	ids = c.IDs(ids, "users", most)
	return ids, malformed("an unread", c.End())
}

// Names are those of an unread's columns. The feed, which has none, comes first.
type Names struct {
	Counts, Notices, Dots []string
}

// Columns is how many there are.
func (n *Names) Columns() int { return 1 + len(n.Counts) + len(n.Notices) + len(n.Dots) }

// AppendUnreadHead appends an answer as far as its cells: the caller appends as many
// columns of n cells as there are: the feed, counts, notices, dots (1: lit).
func AppendUnreadHead(b []byte, t *Tail, n int, names *Names) []byte {
	b = appendReply(b, t)
	b = binary.AppendUvarint(b, uint64(n))
	return appendNames(appendNames(appendNames(b, names.Counts), names.Notices), names.Dots)
}

// UnreadReply is the answer to a tidemark.unread as it is read.
type UnreadReply struct {
	Tail
	Names
	// Values holds column j of the i-th user at [i*Columns()+j]; all but counts are
	// meant as uint64.
	Values []int64
}

// Read reads the answer for n users.
func (r *UnreadReply) Read(body []byte, n int) error {
	c := Cursor{B: body}
	var flags byte
	r.Tail, flags = c.reply(n)
	if is := c.Uvarint(); c.Err == nil && is != uint64(n) {
		c.Fail("%d users, %d were asked", is, n)
	}
	r.Counts, r.Notices, r.Dots = c.strings(nil, "counts", nil), c.strings(nil, "notices", nil), c.strings(nil, "dots", nil)
	columns := r.Columns()
	if c.cells(n, columns); c.Err == nil {
		r.Values = make([]int64, n*columns)
		for j := range columns {
			read := c.Cells
			if j > 0 && j <= len(r.Counts) {
				read = c.Counts
			}
			read(r.Values[min(j, len(r.Values)):], n, columns)
		}
	}
	return malformed("an answer", c.end(&r.Tail, flags))
}
