package jetlog

import (
	"strings"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
)

// keyPrefix begins the subjects of keys in the stream of the bucket.
const keyPrefix = "$KV." + Bucket + "."

// slotKey is the key that a slot has for what is called key; the first slot's is key.
func slotKey(s Slot, key string) string { return slotPrefix(s) + key }

func slotPrefix(s Slot) string { return [Slots]string{"", "2."}[s] }

// withoutSlot undoes slotKey.
func withoutSlot(s Slot, key string) string { return strings.TrimPrefix(key, slotPrefix(s)) }

// nameSubject + node is where a process of the slot answers with its session.
func nameSubject(s Slot) string {
	return InternalPrefix + [Slots]string{"member.", "member2."}[s]
}

// memberKey is where a node's own key is.
func (m *Members) memberKey(node string) string {
	return slotKey(m.streams.Slot(), cluster.MemberPrefix+node)
}
