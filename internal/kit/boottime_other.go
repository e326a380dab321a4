//go:build !linux

package kit

import "time"

// SinceBoot is a clock that goes on while the machine is suspended.
func SinceBoot() time.Duration { return sinceStart() }
