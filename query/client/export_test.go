package client

import (
	"math"
	"time"
)

// SetAckTimeout shortens the wait for an acknowledgement.
func (c *Client) SetAckTimeout(d time.Duration) { c.ackTimeout = d }

// Speak has the client speak one form: binary, where nodes know it, or JSON alone.
func (c *Client) Speak(binary bool) {
	state := int64(math.MaxInt64)
	if binary {
		state = offered
	}
	c.binary.state.Store(state)
}

// SpeaksBinary says which one it would ask in now.
func (c *Client) SpeaksBinary() bool { return c.binary.state.Load() == offered }
