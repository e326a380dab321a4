package hot

import (
	"math/bits"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Filter says of what was added to it that it may be there, and of nearly all else that
// it is not. Nothing is taken out.
//
//	print      depth bits │ …
//	directory  └─► *page, *page, *page, …
//	page       print │ 0 │ print │ print │ 0 │ …
//
// A print is a hash of 32 bits: two of n members have the same once in 2^32 / n. It
// stands in the page of its highest bits, at the place that a hash of it says, or in the
// next free one. A page that is full grows by a third or a half, and at pageMax it is
// split in two by the next bit; so no call moves more than a page, a print is moved three
// times in its life, and a page is two thirds full in the mean.
//
// One goroutine writes, and keeps readers out by its owner's lock.
type Filter struct {
	dir    []*page // by the highest depth bits of a print
	depth  uint8
	pages  int
	prints int
	bytes  int
}

// page is the prints that agree in their first depth bits.
type page struct {
	places []Print // 0: free
	prints int
	depth  uint8
}

// Print stands for a member of a set. It is not 0.
type Print uint32

const (
	pageMin, pageMax = 8, 8192 // places
	// pageBytes is what a page takes beside its places.
	pageBytes = 56
	// pageSlack bounds the directory, as depthSlack does an index's.
	pageSlack = 2
)

// PrintOf is a member's print.
func PrintOf(id uint64, of pipeline.Member) Print {
	return max(1, Print(pipeline.Mix(pipeline.Mix(pipeline.Mix(id)+of.A)+of.B)>>32))
}

// NewFilter makes an empty one.
func NewFilter() *Filter {
	f := new(Filter)
	f.dir = []*page{f.newPage(0, pageMin)}
	return f
}

// Len is how many prints there are.
func (f *Filter) Len() int { return f.prints }

// Bytes is all memory taken.
func (f *Filter) Bytes() int { return f.bytes + 8*cap(f.dir) }

// Touch is index.touch of a print's place, before Has and Add.
func (f *Filter) Touch(print Print) uint64 {
	p := f.page(print)
	return uint64(p.places[print.Home(len(p.places))])
}

// Has says whether a print was added.
func (f *Filter) Has(print Print) bool {
	p := f.page(print)
	return p.places[p.find(print)] != 0
}

// Add adds a print, if it is not there.
func (f *Filter) Add(print Print) {
	p := f.page(print)
	at := p.find(print)
	if p.places[at] != 0 {
		return
	}
	p.places[at] = print
	p.prints++
	f.prints++
	switch {
	case !p.full():
	case len(p.places) < pageMax || !f.deepen(p):
		f.grow(p)
	default:
		f.split(p, print)
	}
}

func (f *Filter) page(print Print) *page { return f.dir[uint64(print)<<f.depth>>32] }

// Home is where a print falls, of so many places. (The factor is Knuth's, "The Art of
// Computer Programming", 6.4: prints that are alike fall far from each other.)
func (p Print) Home(places int) int { return int(uint64(p*0x9e3779b1) * uint64(places) >> 32) }

// full says that a page is filled as far as it may be.
func (p *page) full() bool { return 5*p.prints > 4*len(p.places) }

// find is the place of a print, or the free one where it belongs.
func (p *page) find(print Print) int {
	at := print.Home(len(p.places))
	for p.places[at] != print && p.places[at] != 0 {
		if at++; at == len(p.places) {
			at = 0
		}
	}
	return at
}

func (f *Filter) newPage(depth uint8, places int) *page {
	f.bytes += 4*places + pageBytes
	f.pages++
	return &page{places: make([]Print, places), depth: depth}
}

// grow makes a page larger: 8, 12, 16, 24, 32 … places.
func (f *Filter) grow(p *page) {
	old, size := p.places, len(p.places)
	if size&(size-1) == 0 {
		size += size / 2
	} else {
		size += size / 3
	}
	f.bytes += 4 * (size - len(old))
	p.places = make([]Print, size)
	for _, print := range old {
		if print != 0 {
			p.places[p.find(print)] = print
		}
	}
}

// deepen makes sure that the directory distinguishes a page's halves, and says whether
// it may.
func (f *Filter) deepen(p *page) bool {
	if p.depth < f.depth {
		return true
	}
	if int(f.depth) >= bits.Len(uint(f.pages))+pageSlack {
		return false
	}
	dir := make([]*page, 2*len(f.dir))
	for i := range dir {
		dir[i] = f.dir[i/2]
	}
	f.dir = dir
	f.depth++
	return true
}

// split puts two pages into the place of the one of a print.
func (f *Filter) split(p *page, print Print) {
	f.bytes -= 4*len(p.places) + pageBytes
	f.pages--
	depth := p.depth + 1
	halves := [2]*page{f.newPage(depth, pageMax/4*3), f.newPage(depth, pageMax/4*3)}
	for _, print := range p.places {
		if print != 0 {
			half := halves[print>>(32-depth)&1]
			half.places[half.find(print)] = print
			half.prints++
			if half.full() {
				f.grow(half)
			}
		}
	}
	size := 1 << (f.depth - p.depth)
	from := int(uint64(print)<<f.depth>>32) &^ (size - 1)
	for i := range size {
		f.dir[from+i] = halves[i*2/size]
	}
}
