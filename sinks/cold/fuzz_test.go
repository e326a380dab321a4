package cold

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/tidemark-io/tidemark/pipeline"
)

// everything reads all there is of a shard, each kind in each way there is to
// read it, and says what it was given, by kind.
func everything(v *View, shard pipeline.Shard, user uint64, see func(kind byte, id uint64, values ...uint64)) (errs []error) {
	check := func(err error) { errs = append(errs, err) }
	for part := (Part{Most: 2}); !part.Done; {
		err := v.Rows(shard, &part, func(_ int, id uint64, _ []int64) error { see(kindRow, id); return nil })
		if check(err); err != nil {
			break
		}
	}
	for kind, owners := range map[byte]func(pipeline.Shard, *Part, func(uint64)) error{kindMarks: v.Users, kindPost: v.Authors} {
		for part := (Part{Most: 2}); !part.Done; {
			err := owners(shard, &part, func(id uint64) { see(kind, id) })
			if check(err); err != nil {
				break
			}
		}
	}
	for part := (Part{Most: 2}); !part.Done; {
		err := v.Edges(shard, &part, func(user, _ uint64) { see(kindFollower, user) })
		if check(err); err != nil {
			break
		}
	}
	for r := (Range{Most: 2}); ; r.From = r.To {
		err := v.UserRange(shard, &r,
			func(user, _ uint64, since pipeline.Position) { see(kindFollowing, user, uint64(since)) },
			func(user uint64, marks [4]uint64) { see(kindMarks, user, marks[:]...) },
			func(user uint64, _ string, position pipeline.Position) { see(kindCursor, user, uint64(position)) })
		if check(err); err != nil || r.To == math.MaxUint64 {
			break
		}
	}
	for r := (Range{Most: 2}); ; r.From = r.To {
		err := v.PostRange(shard, &r, func(author uint64, _ pipeline.Position, _ uint64) { see(kindPost, author) })
		if check(err); err != nil || r.To == math.MaxUint64 {
			break
		}
	}
	check(v.Following(shard, user, func(_ uint64, since pipeline.Position) { see(kindFollowing, user, uint64(since)) }))
	check(v.Followers(shard, user, 0, func(uint64) bool { return true }))
	check(v.Cursors(shard, user, func(_ string, position pipeline.Position) { see(kindCursor, user, uint64(position)) }))
	last := pipeline.Position(0)
	check(v.Posts(shard, user, 0, func(position pipeline.Position, _ uint64) {
		if position < last {
			panic(fmt.Sprintf("post at %d after %d", position, last))
		}
		last = position
	}))
	marks, err := v.Marks(shard, user)
	see(kindMarks, user, marks[:]...)
	check(err)
	_, err = v.Follows(shard, user, 1)
	check(err)
	check(v.Written(shard, func(uint64) bool { return true }))
	for kind, numbers := range map[byte]int{kindNotice: 1, kindSecond: 1} {
		check(v.entries(shardKey(shard, kind), nil, numbers, 1, func(e *entry) bool {
			if kind == kindNotice {
				see(kind, e.number(0), e.value[0])
			}
			return true
		}))
	}
	return errs
}

// Whatever stands among a shard's keys: it is read, or is ErrCorrupt, and what
// is read is what memory can hold: of nobody with id 0, at no position beyond
// every log.
func FuzzEntries(f *testing.F) {
	const shard, user = pipeline.Shard(1), uint64(7)
	store := open(f, f.TempDir(), "post: like repost", "user: follower")
	f.Cleanup(func() { closeStore(f, store) })
	c := store.Begin()
	for id := uint64(1); id <= 20; id++ {
		position := pipeline.Position(id << 20)
		for _, err := range []error{
			c.Row(shard, int(id%2), id, []int64{int64(id), -1}[:2-id%2]),
			c.PutFollowing(shard, user, id, position), c.PutFollower(shard, id, user), c.PutPost(shard, user, position, id),
			c.PutMarks(shard, id, 1, 2, 3, 4), c.PutCursor(shard, user, fmt.Sprint("c", id), position),
			c.PutNotice(shard, "system", id, position), c.PutSecond(shard, int64(id-1), position),
		} {
			if err != nil {
				f.Fatal(err)
			}
		}
	}
	if err := errors.Join(c.State(shard, State{1, 2, 3}), c.Commit()); err != nil {
		f.Fatal(err)
	}
	c.Settle()
	for kind := byte(kindState); kind <= kindSecond+1; kind++ {
		f.Add(kind, []byte(strings.Repeat("\x00", 7)+"\x09"), []byte{1, 2})
		f.Add(kind, []byte(strings.Repeat("\x00", 16)), []byte{1, 2, 3, 4})
		f.Add(kind, entryKey(0, 0, user, 1<<63)[kindEnd:], slices.Repeat([]byte{0xff}, 9))
	}
	f.Add(byte(kindRow), rowKey(0, 1, 5)[kindEnd:], appendCells(nil, []uint64{0}, []int64{math.MinInt64}))
	f.Fuzz(func(t *testing.T, kind byte, key, value []byte) {
		txn := store.engine.(*badgerEngine).db.NewTransactionAt(Newest, true)
		defer txn.Discard() // nothing is written
		v := &View{store: store, reader: badgerReader{txn}}
		full := append(shardKey(shard, kind), key...)
		if err := txn.Set(full, value); err != nil {
			t.Skip(err) // Badger does not take such keys
		}
		if _, err := txn.Get(full); errors.Is(err, badger.ErrKeyNotFound) {
			t.Fatal("the entry is not there to be read")
		}
		refused := 0
		for _, err := range everything(v, shard, user, func(kind byte, id uint64, values ...uint64) {
			if id == 0 {
				t.Fatalf("kind %d: read of id 0", kind)
			}
			for _, v := range values {
				if v > uint64(pipeline.PositionMax) {
					t.Fatalf("kind %d: position %d of id %d", kind, v, id)
				}
			}
		}) {
			if err != nil {
				refused++
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
			}
		}
		if refused > 0 && (kind < kindRow || kind > kindSecond) {
			t.Fatalf("an entry of kind %d spoils others", kind)
		}
	})
}

// Whatever a store says of itself: it is refused, or every number of a counter
// or column means one name, as it did before.
func FuzzMeta(f *testing.F) {
	schema := spec(f, "post: repost comment like", "user: follower")
	for _, seed := range []string{
		`{}`, `{"format":1,"shards":4,"node":"n","dictionary":[{"name":"post","columns":["like"]}],"streams":{"events":"2026-01-02T03:04:05Z"}}`,
		`{"dictionary":[{"name":"old","columns":["a","b"]},{"name":"user","columns":["gone","follower"]}]}`,
		`{"dictionary":[{"name":"post"},{"name":"post"}]}`, `{"dictionary":[{"name":"post","columns":["like","like"]}]}`,
		`{"dictionary":[{"name":"","columns":[""]},{"name":"a.b","columns":["c"]},{"name":"a","columns":["b.c"]}]}`, `{"dictionary":null}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var was, meta Meta
		if json.Unmarshal(text, &was) != nil || json.Unmarshal(text, &meta) != nil {
			return
		}
		s := &Store{meta: meta}
		if _, err := s.adopt(schema); err != nil {
			return
		}
		d := s.meta.Dictionary
		if len(s.byNumber) != len(d) || len(d) > countersMax || len(s.counters) != len(s.schema.Counters) {
			t.Fatalf("%d counters of %d in the dictionary %v", len(s.counters), len(d), d)
		}
		for number, counter := range s.byNumber {
			if s.counters[counter].number != uint8(number) || s.schema.Counters[counter].Name != d[number].Name {
				t.Fatalf("counter %d is %q, counter %d of the schema", number, d[number].Name, counter)
			}
			codec, of := &s.counters[counter], s.schema.Counters[counter]
			for column, place := range codec.places {
				if codec.numbers[place] != uint64(column) || s.schema.Columns[int(of.First)+place].Name != d[number].Columns[column] {
					t.Fatalf("column %d of %q is cell %d", column, of.Name, place)
				}
			}
			if number < len(was.Dictionary) {
				before := was.Dictionary[number]
				if before.Name != d[number].Name || len(before.Columns) > 0 && !slices.Equal(before.Columns, d[number].Columns[:len(before.Columns)]) {
					t.Fatalf("counter %d was %v and is %v", number, before, d[number])
				}
			}
		}
		if changed, err := s.adopt(schema); changed || err != nil {
			t.Fatalf("adopted again: %v, %v", changed, err)
		}
	})
}
