package backup

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// The lock of an object store is a message in its stream, under the name of an object
// that is deleted. A process that has it writes it again each lockRenew; one that wants
// it waits until it was not written for lockExpiry, by the server's clock.
//
// That alone does not keep a process out that was suspended and goes on: it may
// have read back all objects of a backup, which the process that took over has
// removed, for no manifest names them; or be about to remove objects that the other
// one uses. So a manifest is written, and anything is deleted, on condition that the
// lock is still the message that this process wrote last. The server compares the two.

const (
	lockRenew  = time.Second
	lockExpiry = 5 * time.Second
	lockLook   = 250 * time.Millisecond
	// lockLooks is how often a lock is looked at that is not written. It has expired then,
	// also where the server's clock was set back.
	lockLooks = int(2 * lockExpiry / lockLook)
	// lockWithin bounds one request for the lock.
	lockWithin = 5 * time.Second

	chunkBytes = 128 << 10
	// wrongSequence is the server's code where a condition on a subject does not hold.
	wrongSequence = 10071
)

// lockBody is the lock, in the form of an object.
type lockBody struct {
	jetstream.ObjectInfo
	Free bool `json:"free"` // it was given back
}

// held is a lock that this process has.
type held struct {
	b    *bucket
	id   string // of its messages alone
	end  chan struct{}
	over chan struct{}

	mu       sync.Mutex // held while anything is written on condition of the lock
	sequence uint64
	lost     bool
}

func (b *bucket) meta(name string) string {
	return "$O." + b.name + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (b *bucket) chunk(id string) string { return "$O." + b.name + ".C." + id }

// Lock implements Place.
func (b *bucket) Lock(ctx context.Context) (unlock func(), err error) {
	if err := tooOld(b.js.Conn().ConnectedServerVersion()); err != nil {
		return nil, fmt.Errorf("backup: lock %s: %w", b, err)
	}
	h := &held{b: b, id: nuid.Next(), end: make(chan struct{}), over: make(chan struct{})}
	if h.sequence, err = b.lockFree(ctx); err == nil {
		err = h.write(ctx, false)
	}
	if err != nil {
		return nil, err
	}
	b.held.Store(h)
	go h.renew()
	return h.unlock, nil
}

// tooOld says of a server's version that it does not know conditions on another subject
// than the message's own. It would take the lock for lost.
func tooOld(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 2 || major == 2 && minor < 11) {
		return fmt.Errorf("the NATS server is version %s, and backups to an object store need 2.11 or later: upgrade it, or back up to a directory", version)
	}
	return nil
}

// lockFree waits until nobody has the lock, and gives the sequence of its last message;
// 0: there is none.
func (b *bucket) lockFree(ctx context.Context) (sequence uint64, err error) {
	stream, err := b.js.Stream(ctx, "OBJ_"+b.name)
	if err != nil {
		return 0, fmt.Errorf("backup: lock %s: %w", b, err)
	}
	first := uint64(0)
	for looks := 1; ; looks++ {
		last, err := stream.GetLastMsgForSubject(ctx, b.meta(lockName))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return 0, nil
		}
		var info *jetstream.StreamInfo
		if err == nil {
			info, err = stream.Info(ctx)
		}
		if err != nil {
			return 0, fmt.Errorf("backup: lock %s: %w", b, err)
		}
		var body lockBody
		if json.Unmarshal(last.Data, &body) == nil && body.Free || info.TimeStamp.Sub(last.Time) > lockExpiry ||
			last.Sequence == first && looks > lockLooks {
			return last.Sequence, nil
		}
		if first == 0 {
			first = last.Sequence
		}
		if last.Sequence != first {
			return 0, fmt.Errorf("%w: to %s, by another process", ErrInUse, b)
		}
		select {
		case <-time.After(lockLook):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// write writes the lock over its last message, which must be this process's, or the
// one that it found.
func (h *held) write(ctx context.Context, free bool) error {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	body, err := json.Marshal(lockBody{jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: lockName}, Bucket: h.b.name, NUID: h.id, Deleted: true,
	}, free})
	if err != nil {
		return err
	}
	sequence, err := h.storeLocked(ctx, lockName, body)
	if err == nil {
		h.sequence = sequence
	}
	return err
}

// storeLocked stores a message on condition that the lock is h's.
func (h *held) storeLocked(ctx context.Context, name string, body []byte) (sequence uint64, err error) {
	for {
		if h.lost {
			return 0, fmt.Errorf("%w: another process has taken %s over, for this one was suspended, or cut off, for more than %v", ErrInUse, h.b, lockExpiry)
		}
		ack, err := h.b.js.PublishMsg(ctx, &nats.Msg{Subject: h.b.meta(name), Data: body, Header: nats.Header{
			jetstream.MsgRollup:                     {jetstream.MsgRollupSubject},
			jetstream.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(h.sequence, 10)},
			jetstream.ExpectedLastSubjSeqSubjHeader: {h.b.meta(lockName)},
		}}, jetstream.WithRetryAttempts(0))
		if err == nil {
			return ack.Sequence, nil
		}
		if api, is := errors.AsType[*jetstream.APIError](err); is && api.ErrorCode == wrongSequence {
			err = h.lookLocked(ctx)
		}
		if err != nil {
			return 0, fmt.Errorf("backup: write to %s: %w", h.b, err)
		}
	}
}

// lookLocked looks whose the lock is, when it is not the message that h knows. That may be
// one of h's own of which the server's answer was lost.
func (h *held) lookLocked(ctx context.Context) error {
	stream, err := h.b.js.Stream(ctx, "OBJ_"+h.b.name)
	for looks := 1; err == nil && !h.lost; looks++ {
		var last *jetstream.RawStreamMsg
		var body lockBody
		if last, err = stream.GetLastMsgForSubject(ctx, h.b.meta(lockName)); err != nil {
			break
		}
		switch {
		case last.Sequence > h.sequence && json.Unmarshal(last.Data, &body) == nil && body.NUID == h.id:
			h.sequence = last.Sequence
			return nil
		case last.Sequence > h.sequence || looks > lockLooks:
			h.lost = true
		default: // from a copy of the bucket that lags; it may be of the process that had the lock before
			select {
			case <-time.After(lockLook):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) { // somebody has deleted it
		h.lost, err = true, nil
	}
	return err
}

// renew writes the lock again until it is given back or lost.
func (h *held) renew() {
	defer close(h.over)
	ticker := time.NewTicker(lockRenew)
	defer ticker.Stop()
	for {
		select {
		case <-h.end:
			return
		case <-ticker.C:
		}
		if err := h.write(context.Background(), false); errors.Is(err, ErrInUse) {
			return
		}
	}
}

func (h *held) unlock() {
	close(h.end)
	<-h.over
	_ = h.write(context.Background(), true) // or it expires
	h.b.held.CompareAndSwap(h, nil)
}

// publish writes what is said of an object while the lock is h's.
func (h *held) publish(ctx context.Context, info *jetstream.ObjectInfo) error {
	body, err := json.Marshal(info)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err = h.storeLocked(ctx, info.Name, body)
	return err
}

// put stores an object, if the lock is h's at its end.
func (h *held) put(ctx context.Context, name string, from io.Reader) error {
	info := &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}},
		Bucket:     h.b.name, NUID: nuid.Next(),
	}
	sum, chunk := sha256.New(), make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(from, chunk)
		if n > 0 {
			sum.Write(chunk[:n])
			info.Size, info.Chunks = info.Size+uint64(n), info.Chunks+1
			if _, err := h.b.js.Publish(ctx, h.b.chunk(info.NUID), chunk[:n]); err != nil {
				return fmt.Errorf("backup: write %s to %s: %w", name, h.b, err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return errors.Join(err, h.b.purge(ctx, info.NUID))
		}
	}
	info.Digest = jetstream.GetObjectDigestValue(sum)
	return h.undo(ctx, info.NUID, h.publish(ctx, info))
}

// undo removes the content of an object that the server refused to store. Without an
// answer the object may be stored, and then needs its content.
func (h *held) undo(ctx context.Context, id string, err error) error {
	if _, refused := errors.AsType[*jetstream.APIError](err); refused || errors.Is(err, ErrInUse) {
		return errors.Join(err, h.b.purge(ctx, id))
	}
	return err
}

// remove deletes an object, if the lock is h's.
func (h *held) remove(ctx context.Context, name string) error {
	info, err := h.b.store.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("backup: delete %s from %s: %w", name, h.b, err)
	}
	info.Deleted, info.Size, info.Chunks, info.Digest = true, 0, 0, ""
	if err := h.publish(ctx, info); err != nil {
		return err
	}
	return h.b.purge(ctx, info.NUID)
}

// purge removes the content of an object that is not there.
func (b *bucket) purge(ctx context.Context, id string) error {
	stream, err := b.js.Stream(ctx, "OBJ_"+b.name)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(b.chunk(id)))
	}
	if err != nil {
		return fmt.Errorf("backup: delete from %s: %w", b, err)
	}
	return nil
}
