package pipeline

import "math"

// Limit is the largest magnitude a cell can hold. A cell at ±Limit is
// saturated: it stays there rather than wrap.
const Limit = math.MaxInt64

// Delta is a change of one cell: a function on the integers of [-Limit, Limit]
//
//	        High ────────
//	            ╱            x ≤ From          → Low
//	           ╱  slope 1    x in between      → Low + (x - From)
//	Low ──────╱              beyond            → High
//	        From
//
// Every change a counter knows has this shape: adding n (saturating at both
// ends), setting v (Low = High = v), and taking n but not below zero (a read
// that says how many it saw). The shape is closed under composition, and
// composition is associative whatever the numbers, saturation included: that
// is the delta law, by which windows, shards and replays merge in any
// grouping and still agree (I1, I5).
//
// Fields are kept canonical so that equal functions are equal values:
// From = 0 when Low = High; otherwise Low = f(-Limit) and High = f(Limit).
type Delta struct{ From, Low, High int64 }

// Add is x → x+n.
func Add(n int64) Delta {
	if n >= 0 {
		return Delta{-Limit, -Limit + n, Limit}.canonical()
	}
	if n < -Limit {
		n = -Limit
	}
	return Delta{-Limit - n, -Limit, Limit + n}
}

// Set is x → v.
func Set(v int64) Delta {
	v = max(v, -Limit)
	return Delta{0, v, v}
}

// Take is x → max(x-n, 0); n is not negative.
func Take(n int64) Delta {
	return Delta{n, 0, Limit - n}.canonical()
}

// Identity is the change that changes nothing.
var Identity = Add(0)

func (d Delta) canonical() Delta {
	if d.Low == d.High {
		d.From = 0
	}
	return d
}

// canon says whether d is a change, written as every change is: equal functions
// are equal values.
func (d Delta) canon() bool {
	if d.Low == d.High {
		return d.From == 0 && d.Low >= -Limit
	}
	return d.From >= -Limit && d.Low >= -Limit && d.Low < d.High && uint64(d.High)-uint64(d.Low) <= Limit-uint64(d.From)
}

// Apply is the value of a cell that held x.
func (d Delta) Apply(x int64) int64 {
	if x <= d.From {
		return d.Low
	}
	// Differences of values in [-Limit, Limit] fit a uint64.
	rise := uint64(x) - uint64(d.From)
	if rise >= uint64(d.High)-uint64(d.Low) {
		return d.High
	}
	return int64(uint64(d.Low) + rise)
}

// Then is d followed by e.
func (d Delta) Then(e Delta) Delta {
	low, high := e.Apply(d.Low), e.Apply(d.High)
	from := d.From
	if d.Low < e.From && low != high {
		// e is still flat where d starts to rise.
		from = int64(uint64(from) + uint64(e.From) - uint64(d.Low))
	}
	return Delta{from, low, high}.canonical()
}

// Amount is n where d is Add(n); ok is false for any other change.
func (d Delta) Amount() (n int64, ok bool) {
	switch {
	case d.From == -Limit && d.High == Limit && d.Low != d.High:
		return d.Low + Limit, d.Low <= 0
	case d.Low == -Limit && d.Low != d.High:
		return -Limit - d.From, d.From <= 0 && d.High == -d.From
	}
	return 0, false
}

// Value is v where d is Set(v).
func (d Delta) Value() (v int64, ok bool) { return d.Low, d.Low == d.High }
