package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline"
)

const (
	// eventsMax bounds the body of POST /v1/events.
	eventsMax = 8 << 20
	// packBytes bounds what is published at once, below NATS's usual max_payload.
	packBytes = 900 << 10
	// refusedMax bounds the lines that an answer names.
	refusedMax = 1000
	keyMax     = 128 // bytes of an Idempotency-Key
)

// taken is the answer to events.
type taken struct {
	Stored   int       `json:"stored"`
	Position string    `json:"position,omitempty"` // up to there they are in the log
	Refused  []refusal `json:"refused"`
	More     int       `json:"refused_more,omitempty"` // refused too, and not named
}

// refusal is a line that is no event that counts.
type refusal struct {
	Line   int    `json:"line"` // from 1, blank ones too
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// takeEvents stores the lines of the body, in order. A line that would be a dead letter,
// or that the role may not send, is refused here and not stored.
func (d *door) takeEvents(w http.ResponseWriter, r *http.Request, role Role) {
	answer, p := d.storeBody(w, r, role)
	if answer == nil {
		p.write(w)
		return
	}
	body, _ := json.Marshal(answer) // of strings and numbers
	if p != nil {
		p.More = body
		p.write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.Stored == 0 {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_, _ = w.Write(append(body, '\n'))
}

// storeBody returns what was stored, also where something went wrong after that.
func (d *door) storeBody(w http.ResponseWriter, r *http.Request, role Role) (*taken, *problem) {
	body, done, p := d.readBody(w, r, eventsMax)
	defer done()
	if p != nil {
		return nil, p
	}
	key, p := keyOf(r)
	if p != nil {
		return nil, p
	}
	s := storing{taken: &taken{Refused: []refusal{}}, door: d, request: r, role: role, key: key}
	return s.taken, s.store(body)
}

// keyOf is the asker's, or one that nobody has.
func keyOf(r *http.Request) (string, *problem) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > keyMax {
		return "", refuse(http.StatusBadRequest, "Idempotency-Key has %d bytes, %d are the most", len(key), keyMax)
	}
	return cmp.Or(key, nuid.Next()), nil
}

// store takes the lines of a body.
func (s *storing) store(body []byte) *problem {
	checker := s.door.checkers.Get().(Checker)
	defer s.door.checkers.Put(checker)
	number := 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.Trim(line, " \t\r\n"); len(line) == 0 { // what is blank to operators
			continue
		}
		if reason, detail := s.check(checker, line); reason != "" {
			s.refuse(refusal{number, string(reason), detail})
		} else if p := s.add(line); p != nil {
			return p
		}
	}
	return s.publish()
}

// reasonRole is of a line that may not come from who sends it. No dead letter has it.
const reasonRole pipeline.Reason = "role"

// check says why a line is not stored, "" if it is.
func (s *storing) check(c Checker, line []byte) (pipeline.Reason, string) {
	if len(line) > packBytes {
		return pipeline.ReasonPack, "the line has more than " + strconv.Itoa(packBytes) + " bytes"
	}
	kind, reason, detail := c.Check(line)
	if reason == "" && !s.role.MaySend(kind) {
		return reasonRole, "this token may not send " + kind
	}
	return reason, detail
}

// storing is one body on its way into the log, a pack after the other.
type storing struct {
	*taken
	door    *door
	request *http.Request
	role    Role
	key     string
	pack    []byte
	lines   int // in the pack
	packs   int // published
}

func (s *storing) refuse(line refusal) {
	if len(s.Refused) == refusedMax {
		s.More++
		return
	}
	s.Refused = append(s.Refused, line)
}

func (s *storing) add(line []byte) *problem {
	if s.full(line) {
		if p := s.publish(); p != nil {
			return p
		}
	}
	s.pack = append(append(s.pack, line...), '\n')
	s.lines++
	return nil
}

// full says that the line goes into the next pack.
func (s *storing) full(line []byte) bool {
	return s.lines == pipeline.PackMax || len(s.pack)+len(line) >= packBytes
}

// id is of the key, the pack's place in the body and its lines: the same body with the
// same key is stored once, within JetStream's window of duplicates.
func (s *storing) id() string {
	sum := sha256.Sum256(s.pack)
	return "http:" + s.key + ":" + strconv.Itoa(s.packs) + ":" + hex.EncodeToString(sum[:8])
}

// publish stores the pack.
func (s *storing) publish() *problem {
	if s.lines == 0 {
		return nil
	}
	end, err := s.door.o.Packs.PublishPack(s.request.Context(), s.pack, s.id())
	if err != nil {
		return unstored(err)
	}
	s.Stored += s.lines
	s.Position = end.String()
	s.pack, s.lines, s.packs = s.pack[:0], 0, s.packs+1
	return nil
}

func unstored(err error) *problem {
	switch {
	case errors.Is(err, pipeline.ErrFull):
		return refuse(http.StatusServiceUnavailable, "the log takes no events now: %v", err)
	case errors.Is(err, pipeline.ErrNoLog):
		return refuse(http.StatusServiceUnavailable, "there is no log to take events: %v", err)
	}
	return refuse(http.StatusServiceUnavailable,
		"it is not known whether the rest is stored; send the same body again with the same Idempotency-Key, within two minutes: %v", err)
}
