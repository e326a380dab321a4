package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidemark-io/tidemark/cmd/tidemark/importer"
)

const (
	waitMin = 100 * time.Millisecond
	waitMax = 2 * time.Second
	// valueBytes are asked of a string; no count has more.
	valueBytes = 64
)

// reader goes through a Redis. One goroutine owns it.
type reader struct {
	o        Options
	plan     *plan
	state    state
	progress io.Writer

	client *redis.Client
	server atomic.Pointer[string] // run_id of the server at the other end
	file   *os.File               // of cells
	out    *bufio.Writer          // to it
	saved  time.Time

	began    time.Time
	before   uint64    // keys that earlier runs had found
	answered time.Time // when Redis last did; zero: never
	buffer   []byte
}

// errOther: another server process answers than the one whose cursor it is.
var errOther = errors.New("snapshot: Redis was restarted")

// read goes on until the last pass is through.
func (r *reader) read(ctx context.Context, o *redis.Options) (err error) {
	o.PoolSize, o.MaxRetries, o.DialerRetries = 1, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = within, within, within, true
	o.OnConnect = r.connected
	redis.SetLogger(silent{}) // what fails is an error here
	bounded(ctx, o)
	r.client = redis.NewClient(o)
	defer r.client.Close()
	if err := r.open(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.save(), r.file.Close())
		r.file = nil
	}()
	r.began, r.before = time.Now(), r.state.Keys
	away := time.Time{}
	for wait := waitMin; ; wait = min(2*wait, waitMax) {
		err := r.passes(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errOther):
			r.say("Redis at %s was restarted, or is another one now: reading begins again", o.Addr)
			if err := r.restart(); err != nil {
				return err
			}
			continue
		case !passing(err):
			return fmt.Errorf("read Redis at %s: %w", o.Addr, err)
		case r.answered.IsZero():
			return fmt.Errorf("no Redis answers at %s: %w", o.Addr, err)
		}
		if away.Before(r.answered) {
			away, wait = time.Now(), waitMin
			r.say("Redis at %s is away (%v): trying again", o.Addr, err)
		}
		if time.Since(away) > r.o.patience {
			return fmt.Errorf("read Redis at %s: away for %s, run it again to go on: %w", o.Addr, r.o.patience, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// silent is a log of nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// connected notes which server process a new connection is to.
func (r *reader) connected(ctx context.Context, c *redis.Conn) error {
	info, err := c.Info(ctx, "server").Result()
	if _, isReply := errors.AsType[redis.Error](err); err != nil && !isReply {
		return err
	}
	// A server that does not say it may be another one at each connection.
	id := fmt.Sprintf("unknown at %d", time.Now().UnixNano())
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			id = text
		}
	}
	r.server.Store(&id)
	return nil
}

// same is asked after every answer and before it is used.
func (r *reader) same() error {
	id := r.server.Load()
	if id == nil {
		return errors.New("not connected")
	}
	r.answered = time.Now()
	if r.state.Server == "" {
		r.state.Server = *id
	}
	if r.state.Server != *id {
		return errOther
	}
	return nil
}

// open opens the cells, as far as the state knows of them.
func (r *reader) open() (err error) {
	if r.file, err = os.OpenFile(r.path(cellsFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	r.out = bufio.NewWriterSize(r.file, mergeRead)
	if i, err := r.file.Stat(); err != nil || i.Size() < r.state.Cells*cellBytes {
		r.state = state{Columns: r.state.Columns} // a power cut took some
	}
	return r.truncate()
}

func (r *reader) truncate() error {
	size := r.state.Cells * cellBytes
	if err := r.file.Truncate(size); err != nil {
		return err
	}
	_, err := r.file.Seek(size, io.SeekStart)
	r.out.Reset(r.file)
	return err
}

// restart forgets what another server process said.
func (r *reader) restart() error {
	r.state = state{Columns: r.state.Columns}
	r.before, r.began = 0, time.Now()
	return errors.Join(r.truncate(), r.save())
}

// passing says that an error may be over in a moment.
func passing(err error) bool {
	if _, isReply := errors.AsType[redis.Error](err); !isReply {
		_, onDisk := errors.AsType[*os.PathError](err)
		return !onDisk && !errors.Is(err, errTooMany) && !errors.Is(err, errReply)
	}
	for _, word := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "ERR max number of clients"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

var errTooMany = fmt.Errorf("more than %d counts: give each pattern a run of its own", cellsMax)

// passes goes on through all passes, a step at a time.
func (r *reader) passes(ctx context.Context) error {
	if r.saved.IsZero() {
		r.saved = time.Now()
	}
	for r.state.Pass < len(r.plan.passes) {
		p := r.plan.passes[r.state.Pass]
		var done bool
		var err error
		if p.key.hasID || p.key.any {
			done, err = r.step(ctx, p)
		} else {
			done, err = r.hash(ctx, p, p.key.literal, &r.state.Field)
		}
		if err != nil {
			return err
		}
		if done {
			r.state.Pass++
			r.state.Cursor, r.state.Field = 0, 0
		}
		if r.state.Cells > cellsMax {
			return errTooMany
		}
		if time.Since(r.saved) >= r.o.saveEvery {
			if err := r.save(); err != nil {
				return err
			}
			rate := float64(r.state.Keys-r.before) / max(time.Since(r.began).Seconds(), 1e-3)
			r.say("%d keys found, %.0f/s (%d of %d ways through Redis)", r.state.Keys, rate, r.state.Pass+1, len(r.plan.passes))
		}
	}
	return nil
}

func (r *reader) say(format string, args ...any) {
	if r.progress != nil {
		fmt.Fprintf(r.progress, "import: "+format+"\n", args...)
	}
}

// step reads the keys of one step of SCAN.
func (r *reader) step(ctx context.Context, p *pass) (done bool, err error) {
	keys, next, err := r.client.Scan(ctx, r.state.Cursor, p.key.glob, r.o.scanCount).Result()
	if err == nil {
		err = r.same()
	}
	if err != nil {
		return false, err
	}
	if p.kind == ids {
		err = r.hashes(ctx, p, keys)
	} else {
		err = r.values(ctx, p, keys)
	}
	if err != nil {
		return false, err
	}
	r.state.Keys += uint64(len(keys))
	r.state.Cursor = next
	return next == 0, nil
}

// found is a key of a pass and its id.
type found struct {
	key string
	id  uint64
}

// values reads the counts of keys that have the id in them.
func (r *reader) values(ctx context.Context, p *pass, keys []string) error {
	var mine []found
	for _, key := range keys {
		text, ok := p.key.match(key)
		if !ok {
			continue // what * is to SCAN may hold less for us: a\*b
		}
		id, isID := parseID(text)
		switch {
		case isID:
			mine = append(mine, found{key, id})
		case !r.plan.others(p, key):
			r.fault(faultID, key, "", fmt.Sprintf("%q is not an id", clip(text)))
		}
	}
	if len(mine) == 0 {
		return nil
	}
	if p.kind == fields {
		return r.fieldValues(ctx, p, mine)
	}
	return r.stringValues(ctx, p, mine)
}

func (r *reader) stringValues(ctx context.Context, p *pass, mine []found) error {
	replies, err := r.pipeline(ctx, len(mine), func(to redis.Pipeliner, i int) redis.Cmder {
		return to.GetRange(ctx, mine[i].key, 0, valueBytes-1)
	})
	if err != nil {
		return err
	}
	var empty []found
	for i, f := range mine {
		reply := replies[i].(*redis.StringCmd)
		switch {
		case wrongType(reply.Err()):
			r.fault(faultType, f.key, "", "not a string")
		case reply.Val() == "":
			empty = append(empty, f)
		default:
			r.count(p.targets[0], f.key, "", f.id, reply.Val())
		}
	}
	// To GETRANGE, a key that has gone since is an empty string.
	there, err := r.pipeline(ctx, len(empty), func(to redis.Pipeliner, i int) redis.Cmder {
		return to.Exists(ctx, empty[i].key)
	})
	if err != nil {
		return err
	}
	for i, f := range empty {
		if there[i].(*redis.IntCmd).Val() == 1 {
			r.count(p.targets[0], f.key, "", f.id, "")
		}
	}
	return nil
}

func (r *reader) fieldValues(ctx context.Context, p *pass, mine []found) error {
	names := make([]string, len(p.targets))
	for i, t := range p.targets {
		names[i] = t.field.literal
	}
	replies, err := r.pipeline(ctx, len(mine), func(to redis.Pipeliner, i int) redis.Cmder {
		return to.HMGet(ctx, mine[i].key, names...)
	})
	if err != nil {
		return err
	}
	for i, f := range mine {
		reply := replies[i].(*redis.SliceCmd)
		if wrongType(reply.Err()) {
			r.fault(faultType, f.key, "", "not a hash")
			continue
		}
		for j, value := range reply.Val() {
			if text, ok := value.(string); ok { // nil: it has no such field
				r.count(p.targets[j], f.key, names[j], f.id, text)
			}
		}
	}
	return nil
}

// pipeline sends commands together. A reply of the wrong type is the caller's.
func (r *reader) pipeline(ctx context.Context, n int, command func(to redis.Pipeliner, i int) redis.Cmder) ([]redis.Cmder, error) {
	if n == 0 {
		return nil, nil
	}
	pipe := r.client.Pipeline()
	replies := make([]redis.Cmder, n)
	for i := range replies {
		replies[i] = command(pipe, i)
	}
	_, _ = pipe.Exec(ctx) // each says its own
	for _, reply := range replies {
		if err := reply.Err(); err != nil && !wrongType(err) {
			return nil, err
		}
	}
	return replies, r.same()
}

func wrongType(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") }

// hashes reads hashes whose fields hold ids, each whole.
func (r *reader) hashes(ctx context.Context, p *pass, keys []string) error {
	for _, key := range keys {
		if _, ok := p.key.match(key); !ok {
			continue
		}
		for cursor := uint64(0); ; {
			done, err := r.hash(ctx, p, key, &cursor)
			if err != nil {
				return err
			}
			if done {
				break
			}
		}
	}
	return nil
}

// hash reads one step of HSCAN.
func (r *reader) hash(ctx context.Context, p *pass, key string, cursor *uint64) (done bool, err error) {
	to := p.targets[0]
	pairs, next, err := r.client.HScan(ctx, key, *cursor, to.field.glob, r.o.scanCount).Result()
	if wrongType(err) {
		r.fault(faultType, key, "", "not a hash")
		return true, r.same()
	}
	if err == nil {
		err = r.same()
	}
	if err != nil {
		return false, err
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		text, ok := to.field.match(pairs[i])
		if !ok {
			continue
		}
		id, isID := parseID(text)
		if !isID {
			r.fault(faultID, key, pairs[i], fmt.Sprintf("%q is not an id", clip(text)))
			continue
		}
		r.count(to, key, pairs[i], id, pairs[i+1])
	}
	if !p.key.any { // else the keys are counted
		r.state.Keys += uint64(len(pairs) / 2)
	}
	*cursor = next
	return next == 0, nil
}

// count keeps a count, or what is wrong with it.
func (r *reader) count(to target, key, field string, id uint64, text string) {
	column := r.plan.columns[to.column]
	value, err := importer.CellValue(text)
	if err == nil && value > column.Max {
		err = fmt.Errorf("value %d is too large for %s: at most %d", value, column, column.Max)
	}
	if err != nil {
		r.fault(faultValue, key, field, err.Error())
		return
	}
	r.keep(cell{column: to.column, id: id, value: value})
}

func (r *reader) fault(why fault, key, field, text string) {
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, key+"\x00"+field)
	r.keep(cell{column: faultColumn + uint32(why), id: sum.Sum64()})
	f := Fault{clip(key), clip(field), faultNames[why], text}
	alike := 0
	for _, known := range r.state.Shown {
		if known == f {
			return
		}
		if known.Reason == f.Reason {
			alike++
		}
	}
	if alike < shownMax {
		r.state.Shown = append(r.state.Shown, f)
	}
}

// keep leaves errors to the next save: a bufio.Writer keeps them.
func (r *reader) keep(c cell) {
	r.buffer = appendCell(r.buffer[:0], c)
	_, _ = r.out.Write(r.buffer)
	r.state.Cells++
}

// clip is the beginning of somebody's text.
func clip(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
