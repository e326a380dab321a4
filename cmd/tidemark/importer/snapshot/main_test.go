package snapshot

import (
	"testing"

	"go.uber.org/goleak"
)

// A pool of Redis that is closed looks whether it is, once a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
