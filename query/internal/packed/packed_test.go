package packed_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/query/internal/packed"
)

// drawIDs draws lists of all kinds: dense and sparse, sorted and not, with repeats.
func drawIDs(t *rapid.T) []uint64 {
	top := uint64(1) << rapid.IntRange(0, 63).Draw(t, "bits")
	list := rapid.SliceOfN(rapid.Uint64Range(1, top), 0, 200).Draw(t, "ids")
	if rapid.Bool().Draw(t, "sorted") {
		slices.Sort(list)
	}
	if rapid.IntRange(0, 9).Draw(t, "largest") == 0 {
		list = append(list, math.MaxUint64)
	}
	return list
}

func drawWait(t *rapid.T) packed.Wait {
	w := packed.Wait{Timeout: -1, Whole: rapid.Bool().Draw(t, "whole"), HasSeq: rapid.Bool().Draw(t, "has seq")}
	if rapid.Bool().Draw(t, "position") {
		w.Position = rapid.Uint64().Draw(t, "min_position")
	}
	if w.HasSeq {
		w.Sequence = rapid.Uint64().Draw(t, "min_seq")
	}
	if rapid.Bool().Draw(t, "timeout") {
		w.Timeout = time.Duration(rapid.IntRange(0, 86_400_000).Draw(t, "timeout_ms")) * time.Millisecond
	}
	return w
}

var texts = rapid.SliceOfN(rapid.String(), 0, 5)

func bytesOf(names []string) (all [][]byte) {
	for _, name := range names {
		all = append(all, []byte(name))
	}
	return all
}

// What is asked is what arrives.
func TestAsksRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, ids, names := drawWait(t), drawIDs(t), texts.Draw(t, "names")
		counter := rapid.String().Draw(t, "counter")
		body := packed.AppendGet(nil, &w, counter, names, ids)
		get := packed.GetAsk{Columns: [][]byte{[]byte("left over")}}
		got, err := get.Read(body, nil, 1000)
		if err != nil || !slices.Equal(got, ids) || get.Wait != w || string(get.Counter) != counter || !slices.EqualFunc(get.Columns, bytesOf(names), slices.Equal) {
			t.Fatalf("%+v %v %v", get, got, err)
		}
		if len(ids) > 0 {
			if _, err := get.Read(body, nil, len(ids)-1); !errors.Is(err, packed.ErrTooMany) {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "all") {
			names = nil
		}
		unread := packed.UnreadAsk{Channels: [][]byte{[]byte("left over")}}
		got, err = unread.Read(packed.AppendUnread(nil, &w, ids, names), got[:0], 1000)
		if err != nil || !slices.Equal(got, ids) || unread.Wait != w || unread.All != (names == nil) || !slices.EqualFunc(unread.Channels, bytesOf(names), slices.Equal) {
			t.Fatalf("%+v %v %v", unread, got, err)
		}
	})
}

// docs/contract.md: "0 is not an id", and the place is told.
func TestZeroIsNoID(t *testing.T) {
	for _, ids := range [][]uint64{{0}, {0, 5, 9}, {5, 0, 9}, {1 << 60, 1 << 61, 0}} {
		w := packed.Wait{Timeout: -1}
		var ask packed.GetAsk
		_, err := ask.Read(packed.AppendGet(nil, &w, "post", nil, ids), nil, 10)
		if zero, is := errors.AsType[*packed.NoID](err); !is || zero.Index != slices.Index(ids, 0) || zero.What != "ids" {
			t.Errorf("%v: %v", ids, err)
		}
	}
}

// What is answered is what arrives.
func TestAnswersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50).Draw(t, "ids")
		tail := packed.Tail{AsOf: rapid.Uint64().Draw(t, "as_of")}
		stale := rapid.SampledFrom([]uint64{0, 1, 2001, math.MaxUint64}).Draw(t, "stale")
		if n > 0 {
			tail.Missing = rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 5).Draw(t, "missing")
		}
		asked := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "columns")
		columns := [][]uint64{}
		for range 12 {
			top := ^uint64(0) >> rapid.IntRange(0, 64).Draw(t, "shift")
			columns = append(columns, rapid.SliceOfN(rapid.Uint64Range(0, top), n, n).Draw(t, "values"))
		}
		body := packed.AppendGetHead(nil, &tail, n, asked)
		for j := range asked {
			body = packed.AppendCells(body, columns[j])
		}
		body = packed.EndReply(body, 0, stale)
		var get packed.GetReply
		err := get.Read(body, n, asked[:1])
		if err != nil || get.AsOf != tail.AsOf || get.Stale != stale || !slices.Equal(get.Missing, tail.Missing) || !slices.Equal(get.Columns, asked) {
			t.Fatalf("%+v %v", get, err)
		}
		for i := range n {
			for j := range asked {
				if get.Values[i*len(asked)+j] != int64(columns[j][i]) {
					t.Fatalf("row %d column %d", i, j)
				}
			}
		}

		names := packed.Names{Notices: texts.Draw(t, "notices"), Dots: texts.Draw(t, "dots")}
		body = packed.AppendUnreadHead(nil, &tail, n, &names)
		for j := range names.Columns() {
			body = packed.AppendCells(body, columns[j])
		}
		body = packed.EndReply(body, 0, stale)
		var unread packed.UnreadReply
		if err := unread.Read(body, n); err != nil || unread.AsOf != tail.AsOf || unread.Stale != stale || !slices.Equal(unread.Notices, names.Notices) || !slices.Equal(unread.Dots, names.Dots) {
			t.Fatalf("%+v %v", unread, err)
		}
		for i := range n {
			for j := range names.Columns() {
				if uint64(unread.Values[i*names.Columns()+j]) != columns[j][i] {
					t.Fatalf("user %d column %d", i, j)
				}
			}
		}
	})
}

// What is wrong is said, and nothing is believed.
func TestMalformed(t *testing.T) {
	w := packed.Wait{Timeout: -1}
	get := packed.AppendGet(nil, &w, "post", []string{"like"}, []uint64{3, 1})
	unread := packed.AppendUnread(nil, &w, []uint64{3, 1}, nil)
	reply := packed.AppendCells(packed.AppendGetHead(nil, &packed.Tail{AsOf: 7}, 2, []string{"like"}), []uint64{5, 6})
	change := func(b []byte, at int, to byte) []byte {
		b = slices.Clone(b)
		b[at] = to
		return b
	}
	for _, c := range []struct{ says, want string }{
		{ask(get[:len(get)-1]), "it ends 1 bytes too early"},
		{ask(append(slices.Clone(get), 0)), "1 bytes are left over"},
		{ask(change(get, 3, 2)), "it is of version 2, and this node understands version 1"},
		{ask(change(get, 4, 16)), "flags 0x10"},
		{ask(change(get, 4, 128)), "flags 0x80"},
		{ask(change(get, 0, 'X')), "it does not begin with TMQ"},
		{ask(change(get, len(get)-3, 9)), "9 is no form of a list"},
		{ask(change(get, len(get)-3, 16)), "16 is no form of a list"},
		{ask(change(get, 5, 99)), "bytes too early"},
		{ask(get[:4]), "it ends too early"},
		{users(change(unread, 4, 32)), "flags 0x20"},
		{users(unread[:6]), "it ends too early"},
		{answer(reply, 3), "2 rows, 3 were asked"},
		{answer(reply[:len(reply)-1], 2), "it ends 1 bytes too early"},
		{answer(append(slices.Clone(reply), 0), 2), "1 bytes are left over"},
		{answer(change(reply, 3, 2), 2), "it is of version 2, and 1 was asked for"},
		{answer(change(reply, 4, 4), 2), "flags 0x4"},
		{answer(change(reply, len(reply)-3, 9), 2), "9 bytes are no width"},
		{answer([]byte(`{"rows":[],"as_of":"7"}`), 2), "it does not begin with TMR"},
		{answer(packed.AppendGetHead(nil, &packed.Tail{Missing: []int{2}}, 2, nil), 2), "there is no 2 among 2"},
		{answer(nil, 2), "it ends 3 bytes too early"},
	} {
		if !strings.Contains(c.says, c.want) {
			t.Errorf("it says %q, not %q", c.says, c.want)
		}
	}
}

func ask(body []byte) string {
	var a packed.GetAsk
	_, err := a.Read(body, nil, 10)
	return says(err)
}

func users(body []byte) string {
	var a packed.UnreadAsk
	_, err := a.Read(body, nil, 10)
	return says(err)
}

func answer(body []byte, n int) string {
	var r packed.GetReply
	return says(r.Read(body, n, nil))
}

func says(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// A column of zeros takes one byte: a short reply may not make a client's memory
// large.
func TestCellsAreBounded(t *testing.T) {
	names := make([]string, packed.CellsMax/10_000+1)
	body := packed.AppendGetHead(nil, &packed.Tail{}, 10_000, names)
	body = append(body, make([]byte, len(names))...)
	var get packed.GetReply
	if err := get.Read(body, 10_000, nil); err == nil || !strings.Contains(err.Error(), "cells are more than") {
		t.Error(err)
	}
	body = packed.AppendUnreadHead(nil, &packed.Tail{}, 10_000, &packed.Names{Notices: names})
	var unread packed.UnreadReply
	if err := unread.Read(append(body, make([]byte, len(names)+1)...), 10_000); err == nil || !strings.Contains(err.Error(), "cells are more than") {
		t.Error(err)
	}
}

func FuzzAsk(f *testing.F) {
	w := packed.Wait{Timeout: time.Second, Position: 5, Whole: true}
	seq := packed.Wait{Timeout: -1, HasSeq: true, Sequence: 9}
	f.Add(false, packed.AppendGet(nil, &w, "post", []string{"like", ""}, []uint64{1, 2, 300, 1 << 40}))
	f.Add(false, packed.AppendGet(nil, &seq, "", nil, []uint64{9, 1, math.MaxUint64}))
	f.Add(true, packed.AppendUnread(nil, &w, []uint64{7}, []string{"system"}))
	f.Add(true, packed.AppendUnread(nil, &seq, nil, nil))
	f.Fuzz(func(t *testing.T, isUnread bool, body []byte) {
		var get packed.GetAsk
		var unread packed.UnreadAsk
		read := func(body []byte) ([]uint64, error) {
			if isUnread {
				return unread.Read(body, nil, 10_000)
			}
			return get.Read(body, nil, 10_000)
		}
		ids, err := read(body)
		if err != nil {
			return
		}
		if len(ids) > len(body) || slices.Contains(ids, 0) || len(get.Columns)+len(unread.Channels) > len(body) {
			t.Fatalf("%d ids in %d bytes", len(ids), len(body))
		}
		// What was accepted, written again, is the same request.
		again := packed.AppendGet(nil, &get.Wait, string(get.Counter), strs(get.Columns), ids)
		if isUnread {
			channels := strs(unread.Channels)
			if unread.All {
				channels = nil
			}
			again = packed.AppendUnread(nil, &unread.Wait, ids, channels)
		}
		wasGet, wasUnread := get, unread
		get, unread = packed.GetAsk{}, packed.UnreadAsk{}
		ids2, err := read(again)
		if err != nil || !slices.Equal(ids, ids2) || get.Wait != wasGet.Wait || unread.Wait != wasUnread.Wait || unread.All != wasUnread.All ||
			!slices.EqualFunc(get.Columns, wasGet.Columns, slices.Equal) || !slices.EqualFunc(unread.Channels, wasUnread.Channels, slices.Equal) {
			t.Fatalf("%x, again %x: %v %v", body, again, ids2, err)
		}
	})
}

func strs(texts [][]byte) []string {
	all := []string{}
	for _, text := range texts {
		all = append(all, string(text))
	}
	return all
}

func FuzzReply(f *testing.F) {
	tail := packed.Tail{AsOf: 5, Missing: []int{1}}
	f.Add(false, packed.AppendCells(packed.AppendGetHead(nil, &tail, 3, []string{"like"}), []uint64{1, 2, 300}))
	body := packed.AppendUnreadHead(nil, &tail, 3, &packed.Names{Counts: []string{"a"}, Notices: []string{"b"}, Dots: []string{"c"}})
	for range 4 {
		body = packed.AppendCells(body, []uint64{1, 0, math.MaxInt64})
	}
	f.Add(true, body)
	f.Add(true, packed.EndReply(slices.Clone(body), 0, 2500))
	f.Fuzz(func(t *testing.T, isUnread bool, body []byte) {
		var get packed.GetReply
		var unread packed.UnreadReply
		if isUnread {
			if unread.Read(body, 3) != nil {
				return
			}
			if len(unread.Values) != 3*unread.Columns() || unread.Columns() > len(body) {
				t.Fatalf("%d values of %d columns in %d bytes", len(unread.Values), unread.Columns(), len(body))
			}
		} else if get.Read(body, 3, []string{"like"}) != nil {
			return
		}
		if len(get.Values) != 3*len(get.Columns) || len(get.Columns) > len(body) || len(get.Missing)+len(unread.Missing) > len(body) {
			t.Fatalf("%d values of %d columns in %d bytes", len(get.Values), len(get.Columns), len(body))
		}
		for _, i := range append(get.Missing, unread.Missing...) {
			if i < 0 || i >= 3 {
				t.Fatal(i)
			}
		}
		if slices.ContainsFunc(get.Values, func(v int64) bool { return v < 0 }) {
			t.Fatal(get.Values)
		}
	})
}
