package natstest

import "testing"

// Long marks a test that takes long: make test leaves it out, and make test-all runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test-all runs it")
	}
}
