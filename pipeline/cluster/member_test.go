package cluster

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/pipeline"
)

func someMember() *Member {
	m := &Member{
		Node: "a", Session: "s1", Roles: Hold | Answer, Zone: "rack-1", Weight: 2, Version: "1.2.0", Formats: Formats{"wire": {2, 3}, "windows": {1, 1}},
		Shards: 64, Fingerprint: 0xbeef, Counters: "post(like)", FreshnessMS: 2000, Epoch: 12, Applied: 1<<60 + 1, LagMS: 3, Routes: true,
		Loading: map[pipeline.Shard]float64{40: 0.25},
	}
	for s := range pipeline.Shard(32) {
		m.Ready.Add(s)
	}
	m.Failed.Add(63)
	return m
}

func TestMemberJSON(t *testing.T) {
	m := someMember()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"node":"a","session":"s1","roles":["hold","answer"],"zone":"rack-1","weight":2,"version":"1.2.0","formats":{"windows":[1,1],"wire":[2,3]},` +
		`"shards":64,"fingerprint":"000000000000beef","counters":"post(like)","freshness_ms":2000,"epoch":12,"applied":"1152921504606846977","lag_ms":3,"routes":true,` +
		`"ready":"0-31","loading":{"40":0.25},"failed":"63"}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
	got, err := DecodeMember("a", b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, %v", got, err)
	}
	later := strings.Replace(string(b), `"hold"`, `"hold","sing"`, 1)
	later = strings.Replace(later, `{"node"`, `{"color":"red","node"`, 1)
	if got, err = DecodeMember("a", []byte(later)); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("of a later version: %+v, %v", got, err)
	}
}

// "Values that cannot be decoded are refused"
func TestDecodeMemberRefuses(t *testing.T) {
	b, err := someMember().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"node":"a"`:             `"node":"b"`,
		`"s1"`:                   `"s\u001b[2J"`,
		`"weight":2`:             `"weight":1001`,
		`"wire":[2,3]`:           `"wire":[3,2]`,
		`"shards":64`:            `"shards":4097`,
		`"1152921504606846977"`:  `"18446744073709551615"`,
		`"0-31"`:                 `"0-64"`,
		`{"40":0.25}`:            `{"40":1.5}`,
		`"version":"1.2.0","for`: `"version":"` + strings.Repeat("x", memberBytesMax) + `","for`,
	} {
		text := strings.Replace(string(b), from, to, 1)
		if text == string(b) {
			t.Fatalf("%s is not in %s", from, b)
		}
		if m, err := DecodeMember("a", []byte(text)); err == nil || !strings.Contains(err.Error(), `member "a"`) {
			t.Errorf("%s becomes %.60s: %+v, %v", from, to, m, err)
		}
	}
	bad := someMember()
	bad.Node, bad.Weight = "a b", -1
	if _, err := bad.Encode(); err == nil || !strings.Contains(err.Error(), "weight is -1") || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("encodes: %v", err)
	}
}

func FuzzDecodeMember(f *testing.F) {
	b, _ := someMember().Encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMember("a", b)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeMember("a", again); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
			t.Fatalf("%+v comes back as %+v, %v", m, got, err)
		}
	})
}

func FuzzDecodeAssignment(f *testing.F) {
	f.Add([]byte(`{"epoch":3,"shards":2,"replicas":2,"nodes":["a","b"],"holders":[[0,1],[1]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAssignment(b)
		if err != nil {
			return
		}
		again, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeAssignment(again); err != nil || !got.same(&a) || got.Epoch != a.Epoch {
			t.Fatalf("%+v comes back as %+v, %v", a, got, err)
		}
	})
}

func TestAssignmentJSON(t *testing.T) {
	members := []State{holder("a", "", 1), holder("b", "", 1), holder("c", "", 1)}
	a := Decide(Assignment{Epoch: 6}, members, Options{Shards: 4, Replicas: 2})
	b, err := a.Encode()
	if want := `{"epoch":7,"shards":4,"replicas":2,"nodes":["a","b","c"],"holders":[[1,0],[1,0],[0,2],[1,2]]}`; string(b) != want || err != nil {
		t.Errorf("got %s, %v", b, err)
	}
	got, err := DecodeAssignment(b)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("got %+v, %v", got, err)
	}
	if held := got.Held("a"); !slices.Equal(held, []pipeline.Shard{0, 1, 2}) {
		t.Errorf("a holds %v", held)
	}
	if holders := got.Holders(1); !slices.Equal(holders, []string{"b", "a"}) || got.Holders(4) != nil {
		t.Errorf("shard 1 has %v", holders)
	}
	for _, bad := range []string{
		``, `[]`,
		`{"epoch":0,"shards":1,"replicas":1,"nodes":["a"],"holders":[[0]]}`,
		`{"epoch":1,"shards":4097,"replicas":1,"nodes":[],"holders":[]}`,
		`{"epoch":1,"shards":2,"replicas":1,"nodes":["a"],"holders":[[0]]}`,
		`{"epoch":1,"shards":1,"replicas":6,"nodes":["a"],"holders":[[0]]}`,
		`{"epoch":1,"shards":1,"replicas":1,"nodes":["b","a"],"holders":[[0]]}`,
		`{"epoch":1,"shards":1,"replicas":1,"nodes":["a","b"],"holders":[[0,1]]}`,
		`{"epoch":1,"shards":1,"replicas":1,"nodes":["a"],"holders":[[1]]}`,
	} {
		if a, err := DecodeAssignment([]byte(bad)); err == nil {
			t.Errorf("%s is decoded: %+v", bad, a)
		}
	}
}

// The largest assignment fits into what a server takes by default.
func TestLargestAssignment(t *testing.T) {
	a := Assignment{Epoch: math.MaxUint64, Replicas: ReplicasMax, ByShard: make([][]string, pipeline.ShardsMax)}
	for s := range a.ByShard {
		for r := range ReplicasMax {
			a.ByShard[s] = append(a.ByShard[s], fmt.Sprintf("%064d", (s*ReplicasMax+r)%NodesMax))
		}
	}
	b, err := a.Encode()
	if err != nil || len(b) > 200<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// ShardSet's dumb twin is a list of flags.
func TestShardSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set ShardSet
		var naive [pipeline.ShardsMax]bool
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			from := rapid.IntRange(0, pipeline.ShardsMax-1).Draw(t, "from")
			to := min(pipeline.ShardsMax, from+rapid.IntRange(1, 200).Draw(t, "n"))
			add := rapid.Bool().Draw(t, "add")
			for s := from; s < to; s++ {
				if naive[s] = add; add {
					set.Add(pipeline.Shard(s))
				} else {
					set.Remove(pipeline.Shard(s))
				}
			}
		}
		var want []pipeline.Shard
		for s, in := range naive {
			if in {
				want = append(want, pipeline.Shard(s))
			}
			if set.Has(pipeline.Shard(s)) != in {
				t.Fatalf("shard %d: %t", s, !in)
			}
		}
		if got := slices.Collect(set.All()); !slices.Equal(got, want) || set.Len() != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		var again ShardSet
		if err := again.UnmarshalText([]byte(set.String())); err != nil || again != set {
			t.Fatalf("%s comes back as %v, %v", set, again, err)
		}
	})
	for _, bad := range []string{"x", "4096", "1,1", "2,1", "1-", "-1", "3-2", "2-2", "0-1,2", "01", "1,", ",", " 1", "+1"} {
		var set ShardSet
		if err := set.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is a set: %v", bad, set)
		}
	}
}

func TestSummary(t *testing.T) {
	schema := func(columns int) *pipeline.Schema {
		specs := []pipeline.ColumnSpec{{Counter: 0, Name: "like"}, {Counter: 0, Name: "exists", Hidden: true}}
		for i := range columns {
			specs = append(specs, pipeline.ColumnSpec{Counter: 1, Name: fmt.Sprintf("c%d", i)})
		}
		s, err := pipeline.NewSchema([]string{"post", "user"}, specs)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := Summary(schema(2)); got != "post(like) user(c0 c1)" {
		t.Errorf("got %q", got)
	}
	if got := Summary(schema(1000)); len(got) > CountersMax || !strings.HasSuffix(got, "…") {
		t.Errorf("got %q", got)
	}
}
