package run

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"
)

// Whatever bit is flipped, wherever a run is cut: what is read is an error or
// what was written.
func TestDamage(t *testing.T) {
	var list []entry
	for i := range uint64(1500) {
		list = append(list, entry{key: Key{Kind: Follower, A: 1 + i/3, B: 1 + i%3}})
	}
	for i := range uint64(1500) {
		list = append(list, entry{key: Key{Kind: Post, A: 1 + i, B: 1 + i}, value: AppendNumbers(nil, i+1)})
	}
	list = append(list, entry{key: Key{Kind: Notice, A: 1, Name: "news"}, value: []byte{1}}, entry{key: Key{Kind: Second, A: 5}, gone: true})
	for i := range uint64(300) {
		list = append(list, entry{key: Key{Kind: Member, Counter: 1, A: 1 + i/3, B: i % 3}, gone: i%3 == 0})
	}
	for i := range uint64(300) {
		list = append(list, entry{key: Key{Kind: Kept, Counter: 2, A: 1 + i/9, B: 1 + i%9/3, C: i % 3}, value: AppendNumbers(nil, i)})
	}
	good, info := write(t, list)
	check := func(what string, at int, b []byte) {
		t.Helper()
		r, err := Open(bytes.NewReader(b), 0, info)
		n := 0
		if err == nil {
			it := r.Iterator(&Scratch{})
			for ; it.Next(); n++ {
				if got := take(it); !same(got, list[n]) {
					t.Fatalf("%s %d: entry %d is %v", what, at, n, &got.key)
				}
			}
			err = it.Err()
		}
		var damage *Damage
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &damage) {
			t.Fatalf("%s %d: %v after %d entries", what, at, err, n)
		}
	}
	for i := 0; i < 8*len(good); i += 97 {
		b := slices.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		check("bit", i, b)
	}
	for n := 0; n < len(good); n += 111 {
		check("cut at", n, good[:n])
	}
	// Two blocks in each other's place have right checksums.
	r, err := Open(bytes.NewReader(good), 0, info)
	if err != nil || info.Blocks < 2 {
		t.Fatal(err, info)
	}
	first, second := r.index.ends[0], r.index.ends[1]
	if first == second-first {
		b := slices.Concat(good[first:second], good[:first], good[second:])
		check("swapped", 0, b)
	}
	// A lookup of damaged bytes fails each time.
	b := slices.Clone(good)
	b[10] ^= 1
	if r, err = Open(bytes.NewReader(b), 0, info); err != nil {
		t.Fatal(err)
	}
	var s Scratch
	for range 3 {
		if _, _, _, err := r.Get(&list[1].key, &s); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a damaged block: %v", err)
		}
	}
}

// failing is a disk that does not read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadErrorIsNotDamage(t *testing.T) {
	_, info := write(t, []entry{{key: Key{Kind: Follower, A: 1, B: 1}}})
	want := errors.New("input/output error")
	if _, err := Open(failing{want}, 0, info); !errors.Is(err, want) || errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
}

// sealed is a payload with its checksum, so that fuzzing gets past it.
func sealed(payload []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(payload), crc32.Checksum(payload, castagnoli))
}

func FuzzBlock(f *testing.F) {
	b, info := write(f, []entry{
		{key: Key{Kind: Row, A: 7}, value: AppendWhole(nil, []int{0, 1}, []int64{3, 4})},
		{key: Key{Kind: Following, A: 7, B: 9}, value: []byte{5}},
		{key: Key{Kind: Cursor, A: 7, Name: "news"}, gone: true},
		{key: Key{Kind: Member, Counter: 1, A: 7}, gone: true},
		{key: Key{Kind: Member, Counter: 1, A: 7, B: 3}},
		{key: Key{Kind: Pair, Counter: 2, A: 7, B: 3, C: 4}},
		{key: Key{Kind: Pair, Counter: 2, A: 7, B: 3, C: 9}},
		{key: Key{Kind: Pair, Counter: 2, A: 8, B: 3, C: 4}, gone: true},
		{key: Key{Kind: Kept, Counter: 3, A: 7, B: 3}, value: []byte{9}},
	})
	f.Add(b[:info.IndexAt-crcBytes])
	f.Add([]byte{1, 0, 1, 0, 7, 2, 2})
	f.Fuzz(func(t *testing.T, payload []byte) {
		opened, err := openBlock(sealed(payload))
		if err != nil {
			return
		}
		var w walk
		w.start(opened)
		var list []entry
		for {
			ok, err := w.next()
			if err != nil {
				return
			}
			if !ok {
				break
			}
			e := entry{cloneKey(&w.key), slices.Clone(w.value), w.gone}
			if n := len(list); n > 0 && byKey(list[n-1], e) >= 0 {
				t.Fatalf("%v after %v", &e.key, &list[n-1].key)
			}
			if err := e.key.check(); err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		for _, e := range list {
			if ok, err := w.seek(&e.key); !ok || err != nil || w.key != e.key || !bytes.Equal(w.value, e.value) {
				t.Fatalf("%v is not found: %v, %v", &e.key, w.key, err)
			}
		}
		// What can be read can be written, and is the same.
		open(t, list)
	})
}

func FuzzIndex(f *testing.F) {
	for _, list := range [][]entry{nil, {{key: Key{Kind: Follower, A: 1, B: 2}}}, {{key: Key{Kind: Cursor, A: 1, Name: "x"}, value: []byte{1}}}, {{key: Key{Kind: Pair, Counter: 1, A: 1, B: 2, C: 3}}}} {
		b, info := write(f, list)
		f.Add(b[info.IndexAt:len(b)-crcBytes], info.Blocks, info.IndexAt)
	}
	f.Fuzz(func(t *testing.T, b []byte, blocks int, at int64) {
		x, err := readIndex(sealed(b), Info{Blocks: blocks, IndexAt: at, Checksum: crc32.Checksum(b, castagnoli)})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if x.memory() > 1000+64*len(b) {
			t.Fatalf("%d bytes from %d", x.memory(), len(b))
		}
		for n := range x.heads {
			k := x.heads[n]
			if x.find(&k) != n {
				t.Fatalf("%v is in block %d", &k, n)
			}
			x.may(n, &k)
			x.mayOwn(&k)
		}
	})
}
