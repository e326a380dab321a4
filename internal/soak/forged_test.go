package soak

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// What somebody may write into the bucket who reaches the NATS server: values that are
// well made and false, and thousands of keys. Nothing counted is lost by it, and in the
// end every shard has its copies again.

const (
	ghost    = "ghost"
	junkKeys = 1500 // more than there may be members
)

// farEpochs are what nobody comes to by counting.
var farEpochs = []uint64{1 << 20, 1 << 50, 1<<60 - 1, 1 << 60, 1<<64 - 1}

// forgeKeys writes one of: an assignment of everything to a node that nobody knows, with
// a member that says it is ready for all; a member with a name of ours; records of
// generations that never were; bytes of chance.
func (s *soak) forgeKeys() *fault {
	if s.noServer() {
		return nil
	}
	epoch := farEpochs[s.random.IntN(len(farEpochs))]
	forged := [][]entry{
		{{cluster.AssignmentKey, s.forgedAssignment(epoch)}, {cluster.MemberPrefix + ghost, s.forgedMember(epoch)}},
		{{cluster.MemberPrefix + s.nodes[s.random.IntN(len(s.nodes))].name, s.forgedMember(epoch)}},
		{{generationsKey, s.forgedGenerations(epoch)}},
		{{cluster.AssignmentKey, s.chance()}, {generationsKey, s.chance()}, {cluster.DegradeKey, s.chance()}},
	}
	at := s.random.IntN(len(forged))
	stored := 0
	for _, e := range forged[at] {
		stored += s.put("$KV."+jetlog.Bucket+"."+e.key, e.value)
	}
	if stored == 0 {
		return nil
	}
	return &fault{what: fmt.Sprintf("%s, epoch %d", forged[at][0].key, epoch), until: s.counting(), soon: patience}
}

type entry struct {
	key   string
	value []byte
}

// generationsKey is jetlog's.
const generationsKey = "generations"

func (s *soak) forgedAssignment(epoch uint64) []byte {
	a := cluster.Assignment{Epoch: epoch, Replicas: 1, ByShard: slices.Repeat([][]string{{ghost}}, s.shards)}
	return encoded(a.Encode())
}

func (s *soak) forgedMember(epoch uint64) []byte {
	m := cluster.Member{Node: ghost, Roles: cluster.Hold | cluster.Route, Weight: 1, Shards: s.shards, Epoch: epoch, Applied: pipeline.EndOf(1 << 40)}
	for i := range s.shards {
		m.Ready.Add(pipeline.Shard(i))
	}
	return encoded(m.Encode())
}

func (s *soak) forgedGenerations(epoch uint64) []byte {
	set := generation.Set{
		Epoch: epoch, State: generation.Switched, Serving: 77, Newest: 77, Compared: true,
		All: map[generation.Number]generation.Generation{77: {Slot: uint8(s.random.IntN(2)), Counting: json.RawMessage(`{"rules":{}}`)}},
	}
	return encoded(set.Encode())
}

// encoded is what a forger writes where the encoder refuses: bytes all the same.
func encoded(b []byte, err error) []byte {
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

func (s *soak) chance() []byte {
	b := make([]byte, 1+s.random.IntN(4096))
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	return b
}

// junkKeys writes keys by the thousand: members, drains and names of nobody.
func (s *soak) junkKeys() *fault {
	if s.noServer() {
		return nil
	}
	member := s.forgedMember(1)
	stored := 0
	for i := range junkKeys {
		prefix := []string{cluster.MemberPrefix, cluster.MemberPrefix, cluster.DrainPrefix, "junk."}[s.random.IntN(4)]
		if s.nc.Publish(fmt.Sprintf("$KV.%s.%s%d-%d", jetlog.Bucket, prefix, s.random.IntN(1000), i), member) == nil {
			stored++
		}
	}
	return &fault{what: fmt.Sprintf("%d", stored), until: s.counting(), soon: patience}
}
