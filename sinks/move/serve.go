package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// ServeOptions shape a Server. Zeros take the defaults.
type ServeOptions struct {
	Generation generation.Number         // whose runs the store has; 0 is the first
	Exports    int                       // open at once; default 16
	Holds      func(pipeline.Shard) bool // whether the node answers for a shard now; from any goroutine; default: for none
	Idle       time.Duration             // after which an export without progress is closed; default 30 s
	Stalled    time.Duration             // after which it gives its place to another one; default 5 s
	Logger     *slog.Logger              // default: none
}

// Server answers for the runs that a node's store has. Requests are answered
// one after the other, so that moves take at most a core and wait for each other
// rather than for the node. Nothing that comes can change the store.
type Server struct {
	nc    *nats.Conn
	store *cold.Store
	o     ServeOptions
	sub   *nats.Subscription

	// serial is held while a request is answered, which reads the disk. Besides,
	// only what closes exports waits for it.
	serial  sync.Mutex
	exports map[string]*opened
	closed  bool
	body    []byte

	open atomic.Int64
}

// opened is an export that another process reads.
type opened struct {
	*cold.Export
	idle  *time.Timer
	moved time.Time // when it last made progress
	read  []int64   // how much of each run
	sums  []bool    // which runs are summed
}

// progress notes that the export is used. To open it again, or to read what was read
// before, is none: otherwise a client could hold it open forever.
func (s *Server) progress(e *opened) {
	e.moved = time.Now()
	e.idle.Reset(s.o.Idle)
}

// Serve begins to answer under a node's name; Close must come before the
// store's.
func Serve(nc *nats.Conn, node string, store *cold.Store, o ServeOptions) (*Server, error) {
	if o.Exports == 0 {
		o.Exports = exportsMax
	}
	if o.Idle == 0 {
		o.Idle = exportIdle
	}
	if o.Stalled == 0 {
		o.Stalled = exportStalled
	}
	if o.Holds == nil {
		o.Holds = func(pipeline.Shard) bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{nc: nc, store: store, o: o, exports: map[string]*opened{}}
	var err error
	if s.sub, err = nc.Subscribe(Subject(node, o.Generation), s.answer); err != nil {
		return nil, fmt.Errorf("move: answer for the runs of %s: %w", node, err)
	}
	return s, nil
}

// Close ends answering and lets go what is open. It returns when no request is
// being answered.
func (s *Server) Close() error {
	err := s.sub.Unsubscribe()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) {
		err = nil
	}
	s.serial.Lock()
	defer s.serial.Unlock()
	s.closed = true
	for id := range s.exports {
		s.closeLocked(id)
	}
	return err
}

// Open is how many exports are open.
func (s *Server) Open() int { return int(s.open.Load()) }

func (s *Server) closeLocked(id string) {
	if e := s.exports[id]; e != nil {
		e.idle.Stop()
		delete(s.exports, id)
		s.open.Add(-1)
		e.Close()
	}
}

// answer answers one request. One without a reply wants none.
func (s *Server) answer(m *nats.Msg) {
	reply := &nats.Msg{Subject: m.Reply, Header: nats.Header{}}
	s.serial.Lock()
	defer s.serial.Unlock() // the body is used again
	if err := s.doLocked(m.Data, reply); err != nil {
		refusal := &Refusal{codeFailed, err.Error()}
		if !errors.As(err, &refusal) && errors.Is(err, cold.ErrClosed) {
			refusal.Code = codeClosed
		}
		reply.Data = nil
		reply.Header.Set(headerError, words(refusal.Text))
		reply.Header.Set(headerCode, strconv.Itoa(refusal.Code))
	} else {
		reply.Header.Set(headerSum, strconv.FormatUint(uint64(crc32.Checksum(reply.Data, castagnoli)), 10))
	}
	if m.Reply == "" {
		return
	}
	if err := s.nc.PublishMsg(reply); err != nil {
		s.o.Logger.Warn("move: a reply was not sent", "error", err)
	}
}

// words are those of an error as a header has them.
func words(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), textBytesMax)]
}

func refuse(code int, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

func (s *Server) doLocked(body []byte, reply *nats.Msg) (err error) {
	if s.closed {
		return refuse(codeClosed, "the node stops")
	}
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return refuse(codeBad, "the request is no JSON of this form: %v", err)
	}
	if !pipeline.FormatMoves.Reads(r.Version) {
		return refuse(codeBad, "the request has version %d, and this node understands versions %d to %d", r.Version, pipeline.FormatMoves.Oldest, pipeline.FormatMoves.Newest)
	}
	switch r.Do {
	case doDescribe:
		meta := s.store.Meta()
		return s.tell(reply, cold.Manifest{Format: meta.Format, Shards: meta.Shards, Streams: meta.Streams, Dictionary: meta.Dictionary})
	case doOpen:
		e, err := s.openLocked(&r)
		if err != nil {
			return err
		}
		return s.tell(reply, e.Manifest())
	case doClose:
		s.closeLocked(r.Export)
		return nil
	case doRead, doSum:
	default:
		return refuse(codeBad, "there is nothing to do that is called %.32q", r.Do)
	}
	e := s.exports[r.Export]
	if e == nil {
		return refuse(codeGone, "no such export is open here any more")
	}
	if runs := e.Manifest().Runs; r.Run < 0 || r.Run >= len(runs) || r.At < 0 || r.At >= runs[r.Run].Bytes {
		return refuse(codeBad, "shard %d has %d runs, and none that is %d with a byte %d", e.Manifest().Shard, len(runs), r.Run, r.At)
	}
	if r.Do == doRead {
		return s.readLocked(e, &r, reply)
	}
	sum, done, err := e.SumSome(context.Background(), r.Run, sumBytes)
	if err != nil {
		return err
	}
	if !e.sums[r.Run] {
		e.sums[r.Run] = done
		s.progress(e)
	}
	if !done {
		return s.tell(reply, summed{})
	}
	return s.tell(reply, summed{true, sum[:]})
}

// openLocked opens an export, or finds the one that was opened by a request of which
// the reply was lost. The asker may not know yet that the shard was given up here: what
// it has of it must not be replaced by nothing. Where the commons are not stored
// either, the log has just begun. In the first round of checkpoints they may be stored
// before a shard: nothing is what is stored of one that is held then, and enough for an
// asker that wants no more (Held).
func (s *Server) openLocked(r *request) (*opened, error) {
	if len(r.Export) == 0 || len(r.Export) > idBytesMax {
		return nil, refuse(codeBad, "the export's id has %d bytes, and 1 to %d are possible", len(r.Export), idBytesMax)
	}
	if e := s.exports[r.Export]; e != nil {
		if e.Manifest().Shard != r.Shard {
			return nil, refuse(codeBad, "the export is of shard %d", e.Manifest().Shard)
		}
		return e, nil
	}
	if len(s.exports) >= s.o.Exports && !s.evictLocked() {
		return nil, refuse(codeTooMany, "%d exports are open", len(s.exports))
	}
	held := r.Held && s.o.Holds(r.Shard)
	e, err := s.store.Export(r.Shard)
	if err != nil {
		return nil, err
	}
	held = held && s.o.Holds(r.Shard) // not given up in between
	commons := pipeline.Shard(s.store.Meta().Shards)
	if e.Manifest().State == (cold.State{}) && s.store.Stack(commons).Stored() && !held {
		e.Close()
		return nil, refuse(codeNone, "nothing is stored of shard %d, and the node has come somewhere: it does not hold it", r.Shard)
	}
	runs := len(e.Manifest().Runs)
	o := &opened{Export: e, moved: time.Now(), read: make([]int64, runs), sums: make([]bool, runs)}
	id := r.Export
	o.idle = time.AfterFunc(s.o.Idle, func() {
		s.serial.Lock()
		defer s.serial.Unlock()
		if s.exports[id] == o {
			s.o.Logger.Warn("move: an export without progress is closed", "shard", o.Manifest().Shard, "after", s.o.Idle)
			s.closeLocked(id)
		}
	})
	s.exports[id] = o
	s.open.Add(1)
	return o, nil
}

// evictLocked closes the export that has made no progress for the longest time, if
// that is longer than Stalled.
func (s *Server) evictLocked() bool {
	var slowest string
	for id, e := range s.exports {
		if slowest == "" || e.moved.Before(s.exports[slowest].moved) {
			slowest = id
		}
	}
	if slowest == "" || time.Since(s.exports[slowest].moved) < s.o.Stalled {
		return false
	}
	s.o.Logger.Warn("move: an export without progress gives its place to another one", "shard", s.exports[slowest].Manifest().Shard, "after", s.o.Stalled)
	s.closeLocked(slowest)
	return true
}

func (s *Server) readLocked(e *opened, r *request, reply *nats.Msg) error {
	room := min(int64(r.Bytes), chunkMax, s.nc.MaxPayload()-chunkRoom)
	if room <= 0 {
		return refuse(codeBad, "%d bytes wanted, and a message has room for %d", r.Bytes, s.nc.MaxPayload()-chunkRoom)
	}
	if s.body == nil {
		s.body = make([]byte, chunkMax)
	}
	n, err := e.Read(context.Background(), r.Run, s.body[:room], r.At)
	reply.Data = s.body[:n]
	if end := r.At + int64(n); end > e.read[r.Run] {
		e.read[r.Run] = end
		s.progress(e)
	}
	return err
}

// tell replies with JSON.
func (s *Server) tell(reply *nats.Msg, v any) (err error) {
	if reply.Data, err = json.Marshal(v); err != nil {
		return err
	}
	if room := s.nc.MaxPayload() - chunkRoom; int64(len(reply.Data)) > room {
		return refuse(codeFailed, "the reply has %d bytes, and a message has room for %d", len(reply.Data), room)
	}
	return nil
}
