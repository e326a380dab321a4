package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// Options shape a Fetch. Zeros take the defaults.
type Options struct {
	Generation generation.Number    // whose runs; 0 is the first
	Version    int                  // of pipeline.FormatMoves, which the node understands; 0: the oldest
	Limit      *Limiter             // of all moves of this node together; nil: none
	Progress   func(loaded float64) // 0 to 1, ascending; called in Fetch
	Needs      func(uint64)         // the window of DELTAS after which what comes goes on; called in Fetch, before the first copy and after each later commit
	Within     time.Duration        // for one reply; default 5 s
	Small      time.Duration        // a round that took no longer is the last: what came since is left to DELTAS; default 1 s
	Logger     *slog.Logger         // default: none
}

const (
	// roundsMax bounds how often a newer export is asked for.
	roundsMax = 3
	// tries bounds how often something is asked for; between them it waits.
	tries     = 6
	retryMin  = 50 * time.Millisecond
	retryMax  = time.Second
	reopenMax = 3 // exports that were closed over there, in one round
)

// Fetch takes a shard from another node into the store, which must not use it until
// then, and commits it; then again what was checkpointed during that, until a round is
// short. A round that would bring more than half of the one before, as large runs were
// merged over there, is left out: DELTAS costs less. The state is what is committed:
// after an error of a later round it is that of the round before, whole and of use; the
// zero State if nothing is.
//
// An error names node, shard, run and bytes. It wraps [cold.ErrDictionary] or
// [cold.ErrForeign] where the shard must be derived from EVENTS, and otherwise
// another node may be asked, or this one again.
func Fetch(ctx context.Context, nc *nats.Conn, node string, store *cold.Store, shard pipeline.Shard, o Options) (cold.State, error) {
	i, err := store.Import(shard)
	if err != nil {
		return cold.State{}, fmt.Errorf("move: shard %d from node %s: %w", shard, node, err)
	}
	defer i.Close()
	p := newPeer(nc, node, o)
	loaded := 0.0
	i.Progress = func(bytes, of int64) {
		// A later round begins with nearly all of it.
		if now := float64(bytes) / float64(max(of, 1)); o.Progress != nil && now > loaded {
			loaded = now
			o.Progress(loaded)
		}
	}
	var committed cold.State
	r := round{peer: p, to: i, shard: shard, most: math.MaxInt64}
	for range roundsMax {
		begun := time.Now()
		more, err := r.do(ctx)
		if err != nil {
			return committed, fmt.Errorf("move: shard %d from node %s: %w", shard, node, err)
		}
		if !more {
			break
		}
		if committed, err = store.Stack(shard).State(); err != nil {
			return cold.State{}, err
		}
		if time.Since(begun) <= p.o.Small {
			break
		}
	}
	if o.Progress != nil && loaded < 1 {
		o.Progress(1)
	}
	return committed, nil
}

// Describe asks a node for a generation's dictionary and streams: what [cold.Store.Adopt]
// takes. Of the manifest there are Format, Shards, Streams and Dictionary.
func Describe(ctx context.Context, nc *nats.Conn, node string, o Options) (*cold.Manifest, error) {
	m := new(cold.Manifest)
	if err := newPeer(nc, node, o).ask(ctx, &request{Do: doDescribe}, m); err != nil {
		return nil, fmt.Errorf("move: describe node %s: %w", node, err)
	}
	return m, nil
}

// Open opens an export of a shard at another node, to be read there; close lets it
// go, and must be called. It is of position 0 where the node answers for the shard and
// has not stored it yet.
func Open(ctx context.Context, nc *nats.Conn, node string, shard pipeline.Shard, o Options) (from cold.Source, closes func(), err error) {
	r := &remote{peer: newPeer(nc, node, o), id: nuid.Next(), manifest: new(cold.Manifest)}
	if err := r.ask(ctx, &request{Do: doOpen, Export: r.id, Shard: shard, Held: true}, r.manifest); err != nil {
		return nil, nil, fmt.Errorf("move: open an export of shard %d at node %s: %w", shard, node, err)
	}
	return r, r.close, nil
}

// peer is the node that is asked.
type peer struct {
	nc   *nats.Conn
	node string
	o    Options
}

func newPeer(nc *nats.Conn, node string, o Options) *peer {
	if o.Within == 0 {
		o.Within = 5 * time.Second
	}
	if o.Version == 0 {
		o.Version = pipeline.FormatMoves.Oldest
	}
	if o.Small == 0 {
		o.Small = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &peer{nc, node, o}
}

// round is one after the other of a Fetch.
type round struct {
	*peer
	to    *cold.Import
	shard pipeline.Shard
	last  *cold.Manifest // that was committed; nil: none
	most  int64          // bytes that the next one may bring
}

// do copies an export and commits it; more is false where there is nothing worth
// it. An export that was closed over there is opened again, and copying goes on
// where it was.
func (r *round) do(ctx context.Context) (more bool, err error) {
	for again := 0; ; again++ {
		more, err = r.once(ctx)
		var refusal *Refusal
		if again == reopenMax || !errors.As(err, &refusal) || refusal.Code != codeGone {
			return more, err
		}
		r.o.Logger.Warn("move: the export is gone and is opened again", "node", r.node, "shard", r.shard)
	}
}

func (r *round) once(ctx context.Context) (more bool, err error) {
	from := &remote{peer: r.peer, id: nuid.Next(), manifest: new(cold.Manifest)}
	if err := r.ask(ctx, &request{Do: doOpen, Export: from.id, Shard: r.shard}, from.manifest); err != nil {
		return false, fmt.Errorf("open an export: %w", err)
	}
	defer from.close()
	m := from.manifest
	brings := added(m, r.last)
	if r.last != nil && m.State == r.last.State || brings > r.most {
		return false, nil
	}
	needs := func() {
		if r.o.Needs != nil {
			r.o.Needs(m.State.Sequence)
		}
	}
	if r.last == nil {
		needs()
	}
	if err := r.to.Copy(ctx, from); err != nil {
		return false, err
	}
	if err := r.to.Commit(); err != nil {
		return false, err
	}
	if r.last != nil { // until then what the round before committed may be what there is
		needs()
	}
	r.last, r.most = m, brings/2
	return true, nil
}

// added is how many bytes the runs have that were not there before.
func added(m, before *cold.Manifest) int64 {
	if before == nil {
		return m.Bytes()
	}
	there := map[run.Info]int{}
	for _, r := range before.Runs {
		there[r]++
	}
	bytes := int64(0)
	for _, r := range m.Runs {
		if there[r]--; there[r] < 0 {
			bytes += r.Bytes
		}
	}
	return bytes
}

// remote is an export of another node.
type remote struct {
	*peer
	id       string
	manifest *cold.Manifest
}

var _ cold.Source = (*remote)(nil)

// Manifest implements [cold.Source].
func (r *remote) Manifest() *cold.Manifest { return r.manifest }

// Read implements [cold.Source]: one message.
func (r *remote) Read(ctx context.Context, run int, b []byte, at int64) (n int, err error) {
	b = b[:max(1, min(int64(len(b)), r.o.Limit.Turn(), r.nc.MaxPayload()-chunkRoom))]
	if err := r.o.Limit.Wait(ctx, len(b)); err != nil {
		return 0, err
	}
	body, err := r.request(ctx, &request{Do: doRead, Export: r.id, Run: run, At: at, Bytes: len(b)})
	if err == nil && (len(body) == 0 || len(body) > len(b)) {
		err = fmt.Errorf("%d bytes came", len(body))
	}
	if err != nil {
		return 0, fmt.Errorf("bytes %d to %d: %w", at, at+int64(len(b)), err)
	}
	return copy(b, body), nil
}

// Sum implements [cold.Source]. The node sums some of a long run for each request.
func (r *remote) Sum(ctx context.Context, run int) (sum cold.Sum, err error) {
	for left := r.manifest.Runs[run].Bytes/sumBytes + 2; left > 0; left-- {
		var s summed
		if err := r.ask(ctx, &request{Do: doSum, Export: r.id, Run: run}, &s); err != nil {
			return sum, fmt.Errorf("its checksum: %w", err)
		}
		if s.Done && len(s.Sum) == len(sum) {
			return cold.Sum(s.Sum), nil
		}
	}
	return sum, errors.New("its checksum: it does not come")
}

// close lets the export go over there; if that is lost, it is idle.
func (r *remote) close() {
	if body, err := json.Marshal(request{Version: r.o.Version, Do: doClose, Export: r.id}); err == nil {
		r.nc.Publish(Subject(r.node, r.o.Generation), body)
	}
}

// ask asks for JSON.
func (p *peer) ask(ctx context.Context, r *request, to any) error {
	body, err := p.request(ctx, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("what came is no JSON of this form: %w", err)
	}
	return nil
}

// request asks until there is a reply whose checksum is right, a few times.
func (p *peer) request(ctx context.Context, r *request) ([]byte, error) {
	r.Version = p.o.Version
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	for n, wait := 1, retryMin; ; n, wait = n+1, min(2*wait, retryMax) {
		reply, err := p.try(ctx, body)
		if err == nil {
			return reply, nil
		}
		var refusal *Refusal
		if final := errors.As(err, &refusal) && refusal.Code != codeTooMany; final || n == tries || ctx.Err() != nil {
			return nil, err
		}
		p.o.Logger.Debug("move: asked again", "node", p.node, "do", r.Do, "run", r.Run, "at", r.At, "error", err)
		if err := kit.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (p *peer) try(ctx context.Context, body []byte) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, p.o.Within)
	defer cancel()
	m, err := p.nc.RequestWithContext(within, Subject(p.node, p.o.Generation), body)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errors.New("nobody answers for the node")
	case err != nil:
		return nil, fmt.Errorf("no reply within %v: %w", p.o.Within, err)
	}
	if text := m.Header.Get(headerError); text != "" {
		code, _ := strconv.Atoi(m.Header.Get(headerCode))
		return nil, &Refusal{code, text}
	}
	if want, got := m.Header.Get(headerSum), strconv.FormatUint(uint64(crc32.Checksum(m.Data, castagnoli)), 10); got != want {
		return nil, fmt.Errorf("damaged on the way: the CRC-32C of %d bytes is %s, and was %q", len(m.Data), got, want)
	}
	return m.Data, nil
}
