package bucket

import (
	"strings"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// keyPrefix begins the subjects of keys in the stream of the bucket.
const keyPrefix = "$KV." + jetlog.Bucket + "."

// slotKey is the key that a slot has for what is called key; the first slot's is key.
func slotKey(s jetlog.Slot, key string) string { return slotPrefix(s) + key }

func slotPrefix(s jetlog.Slot) string { return [jetlog.Slots]string{"", "2."}[s] }

// withoutSlot undoes slotKey.
func withoutSlot(s jetlog.Slot, key string) string { return strings.TrimPrefix(key, slotPrefix(s)) }

// nameSubject + node is where a process of the slot answers with its session.
func nameSubject(s jetlog.Slot) string {
	return jetlog.InternalPrefix + [jetlog.Slots]string{"member.", "member2."}[s]
}

// memberKey is where a node's own key is.
func (m *Members) memberKey(node string) string {
	return slotKey(m.streams.Slot(), cluster.MemberPrefix+node)
}
