package snapshot

import (
	"strings"
	"testing"
)

// What is wrong with a URL is said without its password.
func TestURLFaultHidesPassword(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2@redis:port/0", "redis://me:hunter2/x@redis:6379/0", "redis://me:hunter2%zz@redis/0", "redis://me:hunter2@redis:6379/zero",
		"http://me:hunter2@redis", "redis://me:hunter2@redis/0?unknown=1", "redis://me:1/hunter2@redis:6379",
	} {
		err := Parse(url, []string{"post:{id}:likes=post.like"}, schema)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
