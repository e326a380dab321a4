package hot

import "testing"

func load(t *Table, ids []uint64, bulk bool) {
	if bulk {
		t.Bulk()
	}
	for _, id := range ids {
		t.Put(id, []int64{1, 2, 3})
	}
	if bulk {
		for from, done := uint64(0), false; !done; {
			from, done = t.Fit(from, 8)
		}
	}
}

// Rows that were loaded at once take no more memory than those that came one by one.
func TestTableBulk(t *testing.T) {
	skipRaced(t)
	ids := make([]uint64, 200_000)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for _, rows := range []int{1, 100, 10_000, len(ids)} {
		one, all := NewTable([]int{16, 16, 8}), NewTable([]int{16, 16, 8})
		load(one, ids[:rows], false)
		load(all, ids[:rows], true)
		if a, b := one.Bytes(), all.Bytes(); b > a+a/10 {
			t.Errorf("%d rows: %d bytes, loaded at once %d", rows, a, b)
		}
	}
}
