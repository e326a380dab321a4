package main

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

// docs/run.md: "what stands before the @ of a URL" is never printed, with a scheme or without.
func TestAddressesHaveNoSecrets(t *testing.T) {
	address := natstest.FreeAddress(t)
	urls := []string{"nats://hunter2@" + address, "nats://me:hunter2@" + address, "me:hunter2@" + address, "nats://me:hunter2%zz@" + address, "nats://me:hunter2#x@" + address, "nats://me:hunter2,x@" + address}
	for i := range 2 * len(urls) { // each way of writing, with every fourth command
		url := urls[i%len(urls)]
		p := newPlace(t)
		p.configure(t, "nats: {url: '"+url+"'}\n")
		for j, args := range [][]string{
			{"run", "--demo", "--config", p.config},
			{"check", "--config", p.config},
			{"config", "check", p.config},
			{"config", "show", "--config", p.config},
			{"get", "post", "1", "--nats", url},
			{"unread", "1", "--nats", url},
			{"incr", "1.post.like", "--nats", url},
			{"publish", "like", "actor=1", "post=2", "author=3", "--nats", url},
			{"import", p.config, "--nats", url},
			{"nodes", "--nats", url},
			{"verify", "--all", "--nats", url},
			{"deadletters", "--nats", url},
			{"backups", "--nats", url},
			{"events", "--nats", url},
			{"stats", "--nats", url},
			{"top", "--once", "--nats", url},
			{"degrade", "--nats", url},
		} {
			if j%len(urls) != (i+i/len(urls))%len(urls) {
				continue
			}
			r := tidemark(t, args...)
			if strings.Contains(r.out+r.err, "hunter2") || r.out+r.err == "" {
				t.Errorf("%q: %+v", args, r)
			}
		}
	}
}
