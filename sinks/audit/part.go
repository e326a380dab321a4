package audit

// part is what it says of the ids of one shard. They are compared shard by shard,
// and windows come so.
type part struct {
	rows  []table // by counter
	users map[uint64]*user
	sets  map[setOf]*set // made with its first entry
}

// table is the rows of one counter. Many rows are few objects: what the garbage
// collector goes over, answers wait for.
type table struct {
	columns int
	at      map[uint64]uint32 // by id: which row is its
	cells   []int64           // of one row after the other
}

// row is an id's row; nil: it has none. It is valid until another one is made.
func (t *table) row(id uint64) []int64 {
	at, there := t.at[id]
	if !there {
		return nil
	}
	return t.cells[int(at)*t.columns:][:t.columns]
}

// make makes a row of zeros.
func (t *table) make(id uint64) []int64 {
	t.at[id] = uint32(len(t.at))
	t.cells = append(t.cells, make([]int64, t.columns)...)
	return t.row(id)
}

// bytes is what a row takes.
func (t *table) bytes() int { return rowBytes + cellBytes*t.columns }

// narrow keeps the rows of a sample alone.
func (t *table) narrow(to Sample) {
	narrow := table{columns: t.columns, at: map[uint64]uint32{}}
	for id := range t.at {
		if to.Has(id) {
			copy(narrow.make(id), t.row(id))
		}
	}
	*t = narrow
}

// bytes is what it takes.
func (p *part) bytes() (n int) {
	for i := range p.rows {
		n += len(p.rows[i].at) * p.rows[i].bytes()
	}
	for _, u := range p.users {
		n += userBytes + edgeBytes*(len(u.follows)+len(u.followers)) + postBytes*len(u.posts)
		for name := range u.cursors {
			n += cursorBytes + len(name)
		}
	}
	for _, s := range p.sets {
		n += s.bytes()
	}
	return n
}
