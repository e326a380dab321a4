package operators

import "github.com/tidemark-io/tidemark/pipeline"

// notice puts one notice in the section that every node applies: it costs the
// same whether ten people will see it or all.
func notice(l *Lane) *refusal {
	name, ok := l.object.text(fieldChannel)
	if !ok || !validChannel(name) {
		return refuse(pipeline.ReasonField, "channel: %s is not a name of 1 to 64 of a-z 0-9 _ -", clip(l.object.fields[fieldChannel]))
	}
	if l.limits.Channels != nil && !l.deletion && !l.channels[name] { // what was opened before can be withdrawn
		return refuse(pipeline.ReasonUnknown, "channel %s is not configured, and channels_open is false", name)
	}
	if err := l.need(fieldNotice); err != nil {
		return err
	}
	l.operation = pipeline.Operation{
		Op: pipeline.OpNotice, ID: l.ids[fieldNotice], Position: l.position,
		Channels: append(l.operation.Channels[:0], name),
	}
	if l.deletion {
		l.operation.Op = pipeline.OpWithdraw
	}
	l.merger.operate(l.shards, l.window.From, &l.operation)
	return nil
}

func validChannel(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= pipeline.ChannelBytesMax
}
