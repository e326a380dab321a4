package hot

import "testing"

// A loose table that was fitted takes no more memory than one that grew in small steps,
// and before that no more than twice as much.
func TestTableFits(t *testing.T) {
	skipRaced(t)
	for _, rows := range []uint64{1, 100, 10_000, 200_000} {
		tight, loose := NewTable([]int{16, 16, 8}), NewTable([]int{16, 16, 8})
		loose.Loosen(true)
		for id := uint64(1); id <= rows; id++ {
			tight.Put(id, []int64{1, 2, 3})
			loose.Put(id, []int64{1, 2, 3})
			if a, b := tight.Bytes(), loose.Bytes(); b > 2*a+a/4+512 {
				t.Fatalf("%d rows: %d bytes, loose %d", id, a, b)
			}
		}
		for next, done := uint64(0), false; !done; {
			next, done = loose.Fit(next, 8)
		}
		if a, b := tight.Bytes(), loose.Bytes(); b > a+a/10 {
			t.Errorf("%d rows: %d bytes, fitted %d", rows, a, b)
		}
	}
}
