package shard

import "github.com/tidemark-io/tidemark/pipeline"

// The rest is what every unit of a node can do; see Shard.

// State is how far it has come.
func (c *Commons) State() State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state
}

// Err is why it has stopped, or nil.
func (c *Commons) Err() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.failed
}

// Fail stops it for good.
func (c *Commons) Fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failLocked(err)
}

func (c *Commons) failLocked(err error) error {
	if c.failed == nil {
		c.failed = err
	}
	return c.failed
}

// Name says which unit this is, for logs.
func (c *Commons) Name() string { return "channels" }

// Dirty is the number of entries that changed since they were last handed over.
func (c *Commons) Dirty() int { return len(c.changed) + len(c.noted) + len(c.expired) }

// Moved says whether there is anything to hand over: the state differs from
// the last one, or marks have expired in windows that were applied before.
func (c *Commons) Moved() bool { return c.state != c.gathered || c.Dirty() > 0 }

// Durable is the last window of DELTAS whose changes are committed, Kept its end.
func (c *Commons) Durable() uint64         { return c.durable.Sequence }
func (c *Commons) Kept() pipeline.Position { return c.durable.Applied }

// HandOver takes what changed, and the state, for Write.
func (c *Commons) HandOver() {
	in := &c.inflight
	in.state, in.noted, in.expired, in.changed = c.state, c.noted, c.expired, c.changed
	c.noted, c.expired, c.changed = nil, nil, nil
	for _, k := range in.changed {
		position := pipeline.Position(0)
		if ch := c.channels[k.channel]; ch != nil {
			at, _ := c.lists.FindB(ch.number, 0, k.notice)
			position = pipeline.Position(at)
		}
		in.positions = append(in.positions, position)
	}
	c.gathered = c.state
	c.measure()
}

// Write passes on what was handed over.
func (c *Commons) Write(to Sink) {
	in := &c.inflight
	for _, m := range in.noted {
		to.Second(m.Second, m.Position)
	}
	for _, m := range in.expired {
		to.Second(m.Second, 0)
	}
	for i, k := range in.changed {
		to.Notice(k.channel, k.notice, in.positions[i])
	}
	to.State(in.state)
}

// Settle takes in what became of the last checkpoint; see Shard.Settle.
func (c *Commons) Settle(committed bool, publish func()) {
	in := &c.inflight
	if committed {
		publish()
		c.durable = in.state
	} else {
		c.noted = append(in.noted, c.noted...)
		c.expired = append(in.expired, c.expired...)
		c.changed = append(in.changed, c.changed...)
		c.gathered = State{}
	}
	in.noted, in.expired, in.changed, in.positions = nil, nil, nil, nil
	c.measure()
}

// Channels is the number of channels and of their live notices.
func (c *Commons) Channels() (channels, notices int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.channels), c.live
}

// Watch and Shed have nothing to do: all of it is in memory, always.
func (c *Commons) Watch() {}

// Fit has nothing to do, either.
func (c *Commons) Fit() {}

// Shed is as Watch.
func (c *Commons) Shed(float64) {}
