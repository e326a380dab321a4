//go:build !linux

package node

import "time"

func sinceBoot() time.Duration { return sinceStart() }
