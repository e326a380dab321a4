package door

import "testing"

// The name that it listens on is a name of its own.
func TestHostOfTheAddress(t *testing.T) {
	for host, own := range map[string]bool{"counts.internal": true, "Counts.Internal.:8480": true, "internal": false, "": true} {
		if got := NewHosts("counts.internal:8480", nil).have(host); got != own {
			t.Errorf("%q is its own: %v", host, got)
		}
	}
	if NewHosts(":8480", nil).have("anything") || NewHosts("0.0.0.0:8480", nil).have("anything") {
		t.Error("listening everywhere makes every name its own")
	}
}
