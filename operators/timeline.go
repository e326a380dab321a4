package operators

import "github.com/tidemark-io/tidemark/pipeline"

func checkPost(l *Lane) *refusal {
	if err := l.need(fieldActor, fieldPost); err != nil {
		return err
	}
	if err := l.want(fieldRepostOf); err != nil {
		return err
	}
	if l.ids[fieldRepostOf] == 0 {
		return l.want(fieldAuthor)
	}
	return l.need(fieldAuthor)
}

// authorBytes is the most that an author of a window takes.
const authorBytes = 10

// listPost lists a post in its author's outbox, or takes it out.
func listPost(l *Lane) {
	actor := l.ids[fieldActor]
	l.operation = pipeline.Operation{Op: pipeline.OpPost, ID: actor, Other: l.ids[fieldPost], Position: l.position}
	if l.deletion {
		l.operation.Op = pipeline.OpUnpost
	}
	l.authors = append(l.authors, actor) // every holder is to know that the outbox changed
	l.merger.bytes += authorBytes
	l.operate(actor)
}
