package bucket_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
)

// fill writes keys into the bucket until it takes no more.
func (b *bench) fill(format string) {
	b.Helper()
	for size := 256 << 10; size >= 16; size /= 2 {
		for i := 0; ; i++ {
			m := &nats.Msg{Subject: "$KV.TIDEMARK." + fmt.Sprintf(format, fmt.Sprintf("%d-%d", size, i)), Data: make([]byte, size)}
			if _, err := b.js.PublishMsg(b.ctx, m); err != nil {
				break // it is full, for this size
			}
		}
	}
}

// Keys under names that are not the nodes' do not keep them from saying that they are
// there, nor others from joining: they are deleted once the bucket is full.
func TestJunkInTheBucket(t *testing.T) {
	for _, junk := range []string{"%s", "2.member.no.%s"} {
		b := newBench(t).expiring(memberExpiry)
		a := b.joined("a")
		b.fill(junk)
		c := b.joined("c")
		c.sees("a up", "c up")
		a.sees("a up", "c up")
		e2e.Until(t, "a is heard of, beside "+junk, func() bool { since, _ := a.Unheard(); return since == 0 })
	}
}

// Where the bucket is full of keys that may be the nodes', a node that is not heard
// of says so, and one that cannot join says why.
func TestFullBucketIsSaid(t *testing.T) {
	b := newBench(t)
	a, c := b.process(nil), b.process(nil)
	me := member("a")
	b.must(a.Join(b.ctx, me))
	b.fill("node.%s")
	if err := c.Join(b.ctx, member("c")); !errors.Is(err, bucket.ErrFull) {
		t.Errorf("c joins: %v", err)
	}
	me.Version = "1.2.3-what-the-node-says-of-itself-grows"
	a.beats(me)
	e2e.Until(t, "a says that it is not heard of", func() bool {
		since, why := a.Unheard()
		return errors.Is(why, bucket.ErrFull) && since > 2*beat
	})
}

// Every key that docs/formats.md names is one that is kept.
func TestOwnNames(t *testing.T) {
	text, err := os.ReadFile("../../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	own := bucket.OwnNames()
	found := regexp.MustCompile("(?m)^\\| `([a-z0-9]+)[.`]").FindAllStringSubmatch(bucketPart(t, string(text)), -1)
	if len(found) < 8 {
		t.Fatalf("%d keys are documented", len(found))
	}
	for _, name := range found {
		if !slices.Contains(own, name[1]) {
			t.Errorf("the key %s is documented, and would be deleted", name[1])
		}
	}
}

// bucketPart is the part of docs/formats.md about the bucket.
func bucketPart(t *testing.T, text string) string {
	t.Helper()
	_, part, found := strings.Cut(text, "\n## Bucket TIDEMARK\n")
	if !found {
		t.Fatal("docs/formats.md has no part about the bucket")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	return part
}
