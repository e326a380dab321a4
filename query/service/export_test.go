package service

import (
	"time"
)

// SetTurnPatience is for tests that must not depend on how fast the machine is.
func (s *Service) SetTurnPatience(d time.Duration) { s.turns.patience = d }
