package config

import (
	"strings"
	"testing"
)

// The keys of `audit`.
func TestAudit(t *testing.T) {
	c, err := Parse("c", []byte("audit: {rate: 0, sample: 1/1048576, memory: 1GiB}"))
	if err != nil || c.Audit != (Audit{Sample: "1/1048576", Memory: GiB}) || c.Audit.Bits() != 20 {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = Parse("c", []byte("audit:\n  rate: -1\n  sample: 1/3\n  memory: 1KiB\n"))
	for _, fault := range []string{"c:2: audit.rate", "c:3: audit.sample", `"1/3" is not a share: 1/N, N a power of two up to 1048576, like 1/64`, "c:4: audit.memory"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("it lacks %q: %v", fault, err)
		}
	}
}
