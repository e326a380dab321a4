package client

import "time"

// SetAckTimeout shortens the wait for an acknowledgement.
func (c *Client) SetAckTimeout(d time.Duration) { c.ackTimeout = d }
