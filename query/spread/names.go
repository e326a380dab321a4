package spread

import (
	"fmt"
	"sync"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/query/wire"
)

// names finds the columns that askers name. They name the same ones again and
// again.
type names struct {
	schema *pipeline.Schema

	mu    sync.RWMutex
	known map[string]*resolved
}

// knownMax and knownBytes bound what is remembered: how many, and how long each is;
// other names are found each time.
const (
	knownMax   = 1024
	knownBytes = 4 << 10
)

// resolved is a counter and some of its columns.
type resolved struct {
	counter int
	columns []pipeline.Column
	visible []int // the columns' places among those of the counter that are shown
}

func (n *names) find(packed []byte) (*resolved, error) {
	n.mu.RLock()
	r := n.known[string(packed)]
	n.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	r, err := n.resolve(packed)
	if err != nil || len(packed) > knownBytes {
		return r, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) < knownMax {
		n.known[string(packed)] = r
	}
	return r, nil
}

func (n *names) resolve(packed []byte) (*resolved, error) {
	asked, err := wire.ParseNames(packed)
	if err != nil {
		return nil, err
	}
	if asked.Counter == "" { // the asker has no 1:1 counters
		return &resolved{counter: -1}, nil
	}
	r := new(resolved)
	var ok bool
	if r.counter, ok = n.schema.Counter(asked.Counter); !ok {
		return nil, fmt.Errorf("counter %.64q is unknown", asked.Counter)
	}
	visible := n.schema.Visible(r.counter)
	for _, name := range asked.Columns {
		column, ok := n.schema.Find(asked.Counter + "." + name)
		if !ok {
			return nil, fmt.Errorf("counter %.64q has no column %.64q", asked.Counter, name)
		}
		r.columns = append(r.columns, column)
		place := -1
		for i, c := range visible {
			if c == column {
				place = i
			}
		}
		r.visible = append(r.visible, place)
	}
	return r, nil
}

// packed are names as askers send them.
func packed(schema *pipeline.Schema, counter int, columns []pipeline.Column) []byte {
	n := wire.Names{Counter: schema.Counters[counter].Name, Columns: make([]string, 0, len(columns))}
	for _, c := range columns {
		n.Columns = append(n.Columns, schema.Columns[c].Name)
	}
	return wire.AppendNames(make([]byte, 0, 16*(1+len(columns))), n)
}
