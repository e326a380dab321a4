package bucket

import (
	"context"
	"time"
)

// TidyAfter is Tidy with another age.
func (m *Members) TidyAfter(ctx context.Context, age time.Duration) error { return m.tidy(ctx, age) }
