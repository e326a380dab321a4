package kit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Troubles are the errors that hold at the moment, one for each part. The zero value is
// ready. Safe for concurrent use.
type Troubles struct {
	mu   sync.Mutex
	list map[string]error
}

// Set records the error of a part, in the place of an earlier one.
func (t *Troubles) Set(part string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list == nil {
		t.list = make(map[string]error)
	}
	t.list[part] = err
}

// Clear records that a part has no error.
func (t *Troubles) Clear(part string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, part)
}

// Err joins all errors, ordered by part; nil when there is none.
func (t *Troubles) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var faults []error
	for _, part := range slices.Sorted(maps.Keys(t.list)) {
		faults = append(faults, fmt.Errorf("%s: %w", part, t.list[part]))
	}
	return errors.Join(faults...)
}
