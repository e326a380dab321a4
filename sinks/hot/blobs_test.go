package hot

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

// payload is a string of n bytes that tell it from others.
func payload(seed uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed>>(i&7*8)) ^ byte(i*131)
	}
	return b
}

// payloads are of all lengths, most of them short.
func payloads() *rapid.Generator[[]byte] {
	length := rapid.OneOf(
		rapid.IntRange(0, 20), rapid.IntRange(0, 20), rapid.IntRange(0, 300),
		rapid.IntRange(0, 5000), rapid.IntRange(20_000, 70_000),
	)
	return rapid.Custom(func(t *rapid.T) []byte {
		return payload(rapid.Uint64().Draw(t, "seed"), length.Draw(t, "length"))
	})
}

// blobsTwin is Blobs as plain maps.
type blobsTwin struct {
	*Blobs
	rows map[uint64]*blobRow
}

type blobRow struct {
	words   []uint64
	payload []byte
}

func (b *blobsTwin) ids() []uint64 {
	var ids []uint64
	for id := range b.rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (b *blobsTwin) known(t *rapid.T) uint64 {
	if len(b.rows) == 0 { // rapid fails a run whose actions are all skipped, which is what a fuzzer finds first
		b.put(1, nil)
	}
	return rapid.SampledFrom(b.ids()).Draw(t, "known")
}

func (b *blobsTwin) put(id uint64, payload []byte) {
	if b.rows[id] == nil {
		b.rows[id] = &blobRow{words: make([]uint64, b.fixed)}
	}
	b.rows[id].payload = slices.Clone(payload)
	b.Put(id, payload)
}

// taken removes the ids that the table no longer has, none of which may be
// kept, and returns their number and what they took.
func (b *blobsTwin) taken(t *rapid.T, keep func(uint64) bool) (count, size int) {
	for id, row := range b.rows {
		if b.Has(id) {
			continue
		}
		if keep(id) {
			t.Fatalf("%d was to be kept", id)
		}
		count++
		size += b.index.stride
		if n := len(row.payload); n > 0 {
			size += classBytes(classOf(n))
		}
		delete(b.rows, id)
	}
	return count, size
}

func (b *blobsTwin) evict(t *rapid.T) {
	size := rapid.OneOf(rapid.IntRange(-1, 300), rapid.IntRange(0, 500_000)).Draw(t, "bytes")
	keep := func(id uint64) bool { return id%3 == 0 }
	evicted := b.Evict(size, keep)
	count, freed := b.taken(t, keep)
	if evicted != count {
		t.Fatalf("%d ids are gone, Evict says %d", count, evicted)
	}
	if freed >= size {
		return
	}
	for id := range b.rows { // The hand went round twice, so it passed each.
		if !keep(id) {
			t.Fatalf("only %d of %d bytes evicted, but %d stayed", freed, size, id)
		}
	}
}

func (b *blobsTwin) dropBelow(t *rapid.T) {
	word := rapid.IntRange(0, b.fixed-1).Draw(t, "word")
	limit := rapid.Uint64Range(0, 12).Draw(t, "limit")
	keep := func(id uint64) bool { return b.rows[id].words[word] > limit }
	want := 0
	for id := range b.rows {
		if !keep(id) {
			want++
		}
	}
	dropped := b.DropBelow(word, limit)
	if count, _ := b.taken(t, keep); count != want || dropped != want {
		t.Fatalf("%d ids are gone, DropBelow says %d, want %d", count, dropped, want)
	}
}

func (b *blobsTwin) check(t *rapid.T) {
	if b.Count() != len(b.rows) {
		t.Fatalf("%d ids, want %d", b.Count(), len(b.rows))
	}
	var ids []uint64
	b.Each(func(id uint64) { ids = append(ids, id) })
	if slices.Sort(ids); !slices.Equal(ids, b.ids()) {
		t.Fatalf("Each: %v, want %v", ids, b.ids())
	}
	if b.Free() < 0 || b.Free() > b.Bytes()-b.index.bytes() {
		t.Fatalf("%d bytes free of %d", b.Free(), b.Bytes())
	}
	var blobs []blob
	b.index.each(func(row []byte) { blobs = append(blobs, b.blob(row)) })
	checkSlab(t, &b.slab, blobs)
}

func (b *blobsTwin) checkRow(t *rapid.T, id uint64) {
	row, want := b.rows[id], b.rows[id] != nil
	if b.Has(id) != want {
		t.Fatalf("Has(%d) is %v", id, !want)
	}
	got, ok := b.Get(id)
	if ok != want || want && !bytes.Equal(got, row.payload) {
		t.Fatalf("Get(%d): %d bytes %.20x, %v; want %v", id, len(got), got, ok, row)
	}
	for i := range b.fixed {
		if word, ok := b.Word(id, i); ok != want || want && word != row.words[i] {
			t.Fatalf("Word(%d, %d): %d, %v; want %v", id, i, word, ok, row)
		}
	}
}

// Blobs against maps (STYLE 21).
func TestBlobsTwin(t *testing.T) { rapid.Check(t, checkBlobs) }

func FuzzBlobs(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkBlobs)) }

func checkBlobs(t *rapid.T) {
	fixed := rapid.IntRange(1, 3).Draw(t, "fixed")
	b := &blobsTwin{Blobs: NewBlobs(fixed), rows: map[uint64]*blobRow{}}
	t.Repeat(map[string]func(*rapid.T){
		"put":      func(t *rapid.T) { b.put(ids().Draw(t, "id"), payloads().Draw(t, "payload")) },
		"putKnown": func(t *rapid.T) { b.put(b.known(t), payloads().Draw(t, "payload")) },
		"putMany": func(t *rapid.T) {
			seed, n := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 20_000).Draw(t, "length")
			for _, id := range rapid.SliceOfN(ids(), 1, 100).Draw(t, "ids") {
				b.put(id, payload(seed+id, n))
			}
		},
		"putView": func(t *rapid.T) { // "payload may be a view of itself"
			id := b.known(t)
			view, _ := b.Get(id)
			from := rapid.IntRange(0, len(view)).Draw(t, "from")
			b.put(id, view[from:rapid.IntRange(from, len(view)).Draw(t, "to")])
		},
		"setWord": func(t *rapid.T) {
			id, i := b.known(t), rapid.IntRange(0, fixed-1).Draw(t, "i")
			word := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64()).Draw(t, "word")
			b.SetWord(id, i, word)
			b.rows[id].words[i] = word
		},
		"drop": func(t *rapid.T) {
			id := ids().Draw(t, "id")
			b.Drop(id)
			delete(b.rows, id)
		},
		"dropKnown": func(t *rapid.T) {
			id := b.known(t)
			b.Drop(id)
			delete(b.rows, id)
		},
		"evict":     b.evict,
		"dropBelow": b.dropBelow,
		"raze": func(t *rapid.T) { // though it is not due
			if b.slab.condemn() {
				b.vacate()
			}
		},
		"get": func(t *rapid.T) { b.checkRow(t, ids().Draw(t, "id")) },
		"":    b.check,
	})
	for id := range b.rows {
		b.checkRow(t, id)
	}
}

// "Evict: not used since the hand passed."
func TestBlobsEvictsUnused(t *testing.T) {
	b := NewBlobs(1)
	b.Evict(0, nil) // from now on use is recorded
	for id := uint64(1); id <= 1000; id++ {
		b.Put(id, payload(id, 12))
	}
	for id := uint64(1); id <= 1000; id += 2 {
		if id%4 == 1 {
			b.Get(id)
		} else {
			b.Word(id, 0)
		}
		b.Has(id + 1) // does not count
	}
	if got := b.Evict(500*(24+12), func(uint64) bool { return false }); got != 500 {
		t.Fatalf("%d evicted", got)
	}
	wrong := 0
	b.Each(func(id uint64) { wrong += int(1 - id%2) })
	if wrong > 5 { // A few rows pass under the hand twice.
		t.Errorf("%d stayed, though they were not used", wrong)
	}
	if got := b.Evict(math.MaxInt, func(uint64) bool { return true }); got != 0 {
		t.Errorf("%d evicted that were to be kept", got)
	}
	if got := b.Evict(math.MaxInt, func(uint64) bool { return false }); got != 500 || b.Count() != 0 {
		t.Errorf("%d of 500 evicted, %d left", got, b.Count())
	}
}

// "Bytes go down after evicting 90 %", and when lists change size for long,
// they stay within what slab says: 5/4 · 4/3 · strings and a chunk.
func TestBlobsGiveBack(t *testing.T) {
	b := NewBlobs(1)
	random := rand.New(rand.NewPCG(1, 2))
	const ids = 50_000
	for id := uint64(1); id <= ids; id++ {
		b.Put(id, payload(id, 20+random.IntN(100)))
	}
	full := b.Bytes()
	if got := b.Evict(math.MaxInt, func(id uint64) bool { return id%10 == 0 }); got != ids*9/10 {
		t.Fatalf("%d evicted", got)
	}
	if b.Bytes() > full/5 {
		t.Errorf("%d bytes of %d after nine tenths are gone", b.Bytes(), full)
	}
	for round := range 30 { // Sizes wander: blocks of one size are never used again.
		strings := 0
		for id := uint64(10); id <= ids; id += 10 {
			n := 50*round + random.IntN(50)
			strings += n
			b.Put(id, payload(id, n))
		}
		if limit := strings*5/3 + chunkBytes + chunkBytes/4; b.slab.size() > limit {
			t.Fatalf("round %d: %d bytes for strings of %d, at most %d", round, b.slab.size(), strings, limit)
		}
	}
	for id := uint64(10); id <= ids; id += 10 {
		if got, _ := b.Get(id); !bytes.Equal(got, payload(id, len(got))) {
			t.Fatalf("string of %d is %x", id, got)
		}
	}
}

// Who follows five million people is held like anybody else: put, changed,
// moved beside others, evicted, and their memory given back.
func TestBlobsLong(t *testing.T) {
	b := NewBlobs(1)
	for id := uint64(2); id <= 5000; id++ {
		b.Put(id, payload(id, 100))
	}
	before := b.Bytes()
	for _, n := range []int{lengthLong - 1, lengthLong, 20 << 20, 17 << 20, lengthLong} {
		b.Put(1, payload(7, n))
		if got, ok := b.Get(1); !ok || !bytes.Equal(got, payload(7, n)) {
			t.Fatalf("a string of %d bytes became one of %d", n, len(got))
		}
		if took := b.Bytes() - before; took < n || took > n+n/4+4096 {
			t.Fatalf("a string of %d bytes takes %d", n, took)
		}
	}
	for id := uint64(2); id <= 5000; id += 2 { // so that what stays is moved
		b.Drop(id)
	}
	if got, _ := b.Get(1); !bytes.Equal(got, payload(7, lengthLong)) {
		t.Fatalf("the string became one of %d bytes", len(got))
	}
	if evicted := b.Evict(lengthLong, func(id uint64) bool { return id != 1 }); evicted != 1 || b.Bytes() > before {
		t.Fatalf("%d evicted, %d bytes of %d", evicted, b.Bytes(), before)
	}
}

// Gather is Word 0 of every id, 0 when it is not there.
func TestGatherTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fixed := rapid.IntRange(1, 20).Draw(t, "fixed")
		tables := make([]*Blobs, rapid.SampledFrom([]int{1, 2, 3, 5, 8, 64}).Draw(t, "tables"))
		for i := range tables {
			tables[i] = NewBlobs(fixed)
		}
		table := func(id uint64) *Blobs { return tables[pipeline.ShardOf(id, len(tables))] }
		put := func(id uint64) {
			table(id).Put(id, nil)
			table(id).SetWord(id, 0, id^0xff)
		}
		for id := range uint64(rapid.IntRange(0, 5000).Draw(t, "rows")) {
			put(2*id + 1)
		}
		for _, id := range rapid.SliceOfN(ids(), 0, 200).Draw(t, "ids") {
			put(id)
		}
		var list []Pair
		for _, id := range rapid.SliceOfN(ids(), 0, 300).Draw(t, "asked") {
			list = append(list, Pair{A: id})
		}
		for id := range uint64(rapid.IntRange(0, 300).Draw(t, "more")) {
			list = append(list, Pair{A: 1 + id*7})
		}
		out := make([]uint64, len(list))
		Gather(tables, list, out)
		for i, p := range list {
			if want, _ := table(p.A).Word(p.A, 0); out[i] != want {
				t.Fatalf("%d: %d, want %d", p.A, out[i], want)
			}
		}
	})
}

// Gather of all that large tables hold, and of as much that they do not.
func TestGatherLarge(t *testing.T) {
	tables := []*Blobs{NewBlobs(1), NewBlobs(1)}
	var list []Pair
	for id := uint64(1); id <= 200_000; id++ {
		list = append(list, Pair{A: id})
		if id%2 == 0 {
			table := tables[pipeline.ShardOf(id, 2)]
			table.Put(id, nil)
			table.SetWord(id, 0, id)
		}
	}
	out := make([]uint64, len(list))
	Gather(tables, list, out)
	for i, got := range out {
		if want := uint64(i+1) * (uint64(i) % 2); got != want {
			t.Fatalf("%d: %d, want %d", i+1, got, want)
		}
	}
}

// Readers side by side, kept out by a lock while one writes. (For -race.)
func TestBlobsReaders(t *testing.T) {
	var (
		lock sync.RWMutex
		stop atomic.Bool
		work sync.WaitGroup
		b    = NewBlobs(1)
	)
	const ids = 2000
	for range 3 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 1))
			list, out := make([]Pair, 50), make([]uint64, 50)
			for !stop.Load() {
				for i := range list {
					list[i].A = 1 + random.Uint64N(ids)
				}
				lock.RLock()
				Gather([]*Blobs{b}, list, out)
				for i, p := range list {
					word, ok := b.Word(p.A, 0)
					got, _ := b.Get(p.A)
					if word != out[i] || ok && (word != p.A || !bytes.Equal(got, payload(p.A, len(got)))) {
						t.Errorf("%d: word %d, gathered %d, %x", p.A, word, out[i], got)
					}
				}
				lock.RUnlock()
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 3000 {
		id := 1 + random.Uint64N(ids)
		lock.Lock()
		b.Put(id, payload(id, random.IntN(400)))
		b.SetWord(id, 0, id)
		if step%100 == 99 {
			b.Evict(random.IntN(20_000), func(id uint64) bool { return id%5 == 0 })
		}
		lock.Unlock()
	}
	stop.Store(true)
	work.Wait()
}
