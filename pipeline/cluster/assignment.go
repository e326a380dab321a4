package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
)

// Bounds of an assignment.
const (
	ReplicasMax        = 5
	NodesMax           = 1000    // members that are looked at, and names in an assignment
	assignmentBytesMax = 1 << 20 // of its JSON
)

// Assignment says which nodes hold which shard. It is a value that nobody
// changes. The zero value is that of a cluster that has decided nothing yet.
type Assignment struct {
	Epoch    uint64 // grows with every change
	Replicas int    // how many holders each shard should have
	// ByShard has the holders of each shard by their names, the most preferred
	// first: Replicas of them, or fewer when there are not so many.
	ByShard [][]string
}

// Shards is the number of shards, 0 when nothing has been decided yet.
func (a *Assignment) Shards() int { return len(a.ByShard) }

// Holders are the nodes that hold s, the most preferred first. The slice stays
// the assignment's.
func (a *Assignment) Holders(s pipeline.Shard) []string {
	if int(s) >= len(a.ByShard) {
		return nil
	}
	return a.ByShard[s]
}

// Held are the shards that a node holds, ascending.
func (a *Assignment) Held(node string) []pipeline.Shard {
	set := a.HeldSet(node)
	return slices.Collect(set.All())
}

// HeldSet is Held as a set.
func (a *Assignment) HeldSet(node string) (set ShardSet) {
	for s, holders := range a.ByShard {
		if slices.Contains(holders, node) {
			set.Add(pipeline.Shard(s))
		}
	}
	return set
}

// Nodes are the names of all that hold something, ascending.
func (a *Assignment) Nodes() []string {
	names := make(map[string]bool)
	var list []string
	for _, holders := range a.ByShard {
		for _, name := range holders {
			if !names[name] {
				names[name] = true
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return list
}

// same says whether both give the same holders, whatever the epochs.
func (a *Assignment) same(b *Assignment) bool {
	return a.Replicas == b.Replicas && slices.EqualFunc(a.ByShard, b.ByShard, slices.Equal)
}

// assignmentJSON is an assignment as it is stored: names once, shards with
// their indexes.
type assignmentJSON struct {
	Epoch    uint64   `json:"epoch"`
	Shards   int      `json:"shards"`
	Replicas int      `json:"replicas"`
	Nodes    []string `json:"nodes"`   // ascending
	Holders  [][]int  `json:"holders"` // for each shard
}

// Encode gives the JSON of a.
func (a *Assignment) Encode() ([]byte, error) {
	j := assignmentJSON{Epoch: a.Epoch, Shards: len(a.ByShard), Replicas: a.Replicas, Nodes: a.Nodes(), Holders: make([][]int, len(a.ByShard))}
	index := make(map[string]int, len(j.Nodes))
	for i, name := range j.Nodes {
		index[name] = i
	}
	for s, holders := range a.ByShard {
		j.Holders[s] = make([]int, len(holders))
		for i, name := range holders {
			j.Holders[s][i] = index[name]
		}
	}
	err := j.check()
	var b []byte
	if err == nil {
		b, err = json.Marshal(j)
	}
	if err == nil && len(b) > assignmentBytesMax {
		err = fmt.Errorf("has %d bytes, %d at most", len(b), assignmentBytesMax)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: assignment: %w", err)
	}
	return b, nil
}

// DecodeAssignment reads what Encode gave, and refuses what it cannot have given.
func DecodeAssignment(b []byte) (Assignment, error) {
	var j assignmentJSON
	err := error(nil)
	if len(b) > assignmentBytesMax {
		err = fmt.Errorf("has %d bytes, %d at most", len(b), assignmentBytesMax)
	}
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err == nil {
		err = j.check()
	}
	if err != nil {
		return Assignment{}, fmt.Errorf("cluster: assignment: %w", err)
	}
	a := Assignment{Epoch: j.Epoch, Replicas: j.Replicas, ByShard: make([][]string, j.Shards)}
	for s, indexes := range j.Holders {
		a.ByShard[s] = make([]string, len(indexes))
		for i, n := range indexes {
			a.ByShard[s][i] = j.Nodes[n]
		}
	}
	return a, nil
}

func (j *assignmentJSON) check() error {
	switch {
	case j.Epoch == 0:
		return errors.New("epoch is 0")
	case j.Shards < 1 || j.Shards > pipeline.ShardsMax:
		return fmt.Errorf("shards is %d, must be from 1 to %d", j.Shards, pipeline.ShardsMax)
	case len(j.Holders) != j.Shards:
		return fmt.Errorf("has holders for %d of %d shards", len(j.Holders), j.Shards)
	case j.Replicas < 1 || j.Replicas > ReplicasMax:
		return fmt.Errorf("replicas is %d, must be from 1 to %d", j.Replicas, ReplicasMax)
	case len(j.Nodes) > NodesMax:
		return fmt.Errorf("names %d nodes, %d at most", len(j.Nodes), NodesMax)
	}
	for i, name := range j.Nodes {
		if err := CheckNode(name); err != nil {
			return err
		}
		if i > 0 && name <= j.Nodes[i-1] {
			return errors.New("the nodes are not in order, each once")
		}
	}
	for s, indexes := range j.Holders {
		if len(indexes) > j.Replicas {
			return fmt.Errorf("shard %d has %d holders, %d at most", s, len(indexes), j.Replicas)
		}
		for i, n := range indexes {
			if n < 0 || n >= len(j.Nodes) || slices.Contains(indexes[:i], n) {
				return fmt.Errorf("shard %d has holders %v, must be indexes of %d nodes, each once", s, indexes, len(j.Nodes))
			}
		}
	}
	return nil
}
