package service

import (
	"time"
)

// SetTurnPatience is for tests that must not depend on how fast the machine is.
func (s *Service) SetTurnPatience(d time.Duration) { s.turns.patience = d }

// Futures is how many requests are known to wait for what the log does not hold.
func (s *Service) Futures() int64 { return s.futures.in.Load() + s.longFutures.in.Load() }
