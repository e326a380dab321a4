package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/pipeline/cluster"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// ErrNameTaken: another process that is there has this node's name.
var ErrNameTaken = errors.New("another process has this node name")

// ErrMemberMisfit: a member that is there counts something else, or speaks another
// version of the wire. The error says what differs.
var ErrMemberMisfit = errors.New("bucket: a member that is there does not fit")

// misfitError is an ErrMemberMisfit whose words are all of what differs.
type misfitError struct{ error }

func (misfitError) Is(target error) bool { return target == ErrMemberMisfit }

// ErrFull: the bucket takes nothing more, so members cannot say that they are
// there, and no process can join.
var ErrFull = errors.New("the bucket " + jetlog.Bucket + " is full: delete the keys that are no node's (nats kv ls " + jetlog.Bucket + ")")

// ErrNotJoined: Beat or Leave without Join.
var ErrNotJoined = errors.New("bucket: this process has not joined")

const (
	// askWait is how long a process may take to say which one it is. It is as long
	// as a process that hangs holds up a check.
	askWait = 250 * time.Millisecond
	// claimsMax bounds how often Join, Forget and DegradeBy begin again because the key has
	// changed in between.
	claimsMax = 8
)

const (
	// MemberBeat is how often a member writes its key.
	MemberBeat = time.Second
	// MemberExpiry is how long a member may be silent before it is away.
	MemberExpiry = 5 * time.Second
)

// MembersOptions configure Members. Zeros take the defaults.
type MembersOptions struct {
	Beat   time.Duration // how often Keep writes; the same in all processes; default MemberBeat
	Expiry time.Duration // a member silent for so long is away; default MemberExpiry
	// Session distinguishes this process from others of its name; default one of its own. A
	// process that only answers has one for all generations: of one that takes the place
	// of another, in the same slot, its name is not another process's.
	Session string
	Logger  *slog.Logger // default: none
}

// Members are the processes there are, what they are assigned, and what operators have
// set for all of them, as keys in the bucket (cluster.Roster). A process that joins
// writes its own key again and again, and watches all.
//
// Every write of a key is a compare-and-set, so two that want the same key
// cannot both have it. No clocks are compared: a member is away when its key has
// not changed for Expiry by this process' own watch.
//
// Join, Beat, Keep and Leave are for one goroutine at a time, everything else
// for any. The caller closes it when Keep has returned; Close does not leave.
type Members struct {
	streams *jetlog.Streams
	options MembersOptions
	session string

	me       string // the node that joined; "" before
	revision uint64 // of its key
	name     *nats.Subscription

	stop    context.CancelFunc
	soon    chan struct{} // Keep is to beat at once
	done    chan struct{}
	view    atomic.Pointer[cluster.View]
	failing atomic.Pointer[unheard] // nil: the last beat was stored
	strange atomic.Int64            // Unix ns: when the log last had a value that is ignored

	mu      sync.Mutex
	roster  *cluster.Roster
	changed chan struct{} // closed with the next change
	joining *joining      // nil: this process does not join just now
}

// joining is a process that has written its key, or is about to, until it has
// seen it come.
type joining struct {
	node   string
	before []*cluster.Member // the members when the key came
	seen   chan struct{}     // closed then
}

// OpenMembers begins to watch, and returns when it has seen all that there is.
func OpenMembers(ctx context.Context, s *jetlog.Streams, o MembersOptions) (*Members, error) {
	o.Beat = cmp.Or(o.Beat, MemberBeat)
	o.Expiry = cmp.Or(o.Expiry, MemberExpiry)
	if o.Expiry < 2*o.Beat {
		return nil, fmt.Errorf("bucket: members: expiry %v must be at least twice the beat %v", o.Expiry, o.Beat)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Members{
		streams: s, options: o, session: cmp.Or(o.Session, nuid.Next()),
		roster: cluster.NewRoster(o.Beat, o.Expiry), changed: make(chan struct{}), soon: make(chan struct{}, 1), done: make(chan struct{}),
	}
	first := m.Changed()
	watching, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.watch(watching)
	select {
	case <-first:
		return m, nil
	case <-ctx.Done():
		m.Close()
		return nil, fmt.Errorf("bucket: members: %w", ctx.Err())
	}
}

// AttachMembers is OpenMembers for a command, which is no node: nothing is created,
// and nothing of the streams looked at. ErrNoBucket says that there are none. The
// connection stays the caller's.
func AttachMembers(ctx context.Context, nc *nats.Conn, slot jetlog.Slot, o MembersOptions) (*Members, error) {
	s, err := jetlog.Attach(ctx, nc, slot, jetlog.Owner{}, nil)
	if err != nil {
		return nil, err
	}
	return OpenMembers(ctx, s, o)
}

// Close ends watching. Closing twice is fine.
func (m *Members) Close() {
	m.stop()
	<-m.done
	m.unname()
}

// Session is this process', as its key has it.
func (m *Members) Session() string { return m.session }

// View is what is known now, never nil. Views come whenever something changes,
// gathered for a moment, and a few times each beat.
func (m *Members) View() *cluster.View { return m.view.Load() }

// Changed is closed with the next view that says more than how long members have been
// silent. Take it before View, so that no change is missed. What depends on time alone
// (Options.ReplaceAfter) does not close it: the deciding process looks once a beat as
// well.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// unheard is a node whose beats are not stored.
type unheard struct {
	since time.Time
	why   error
}

// Unheard is for how long the beats of this process have not been stored, so that
// the others take it to be away, and why; 0: they are.
func (m *Members) Unheard() (since time.Duration, why error) {
	if u := m.failing.Load(); u != nil {
		return time.Since(u.since), u.why
	}
	return 0, nil
}

// Silent is how long nothing has been heard, of anybody. A process that beats
// hears itself: one that is cut off sees here how long it has been.
func (m *Members) Silent() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roster.Silent(time.Now())
}

// Join announces this process under its name, with a session of its own. It is
// refused with ErrNameTaken when another process has the name, and with ErrMemberMisfit
// and what differs when a member that is there does not fit (cluster.Misfit).
//
// Whether one is there is asked of itself (present): an earlier process of the
// name that was killed does not answer, NATS knows at once that nobody does, and
// Join does not wait. The process that joins last has the name: one that could
// not answer, because it was cut off, learns so from its next Beat.
//
// Of two that do not fit and join at the same moment, the one whose key was written
// later sees that of the other before its own comes, and is refused.
func (m *Members) Join(ctx context.Context, me cluster.Member) error {
	me.Session, me.Stopped = m.session, false
	value, err := me.Encode()
	if err != nil {
		return fmt.Errorf("bucket: join: %w", err)
	}
	var there []*cluster.Member
	for _, other := range m.View().Members {
		if other.Node != me.Node && other.Status != cluster.Away {
			there = append(there, other.Member)
		}
	}
	if err := m.refuseMisfit(ctx, &me, there); err != nil {
		return fmt.Errorf("bucket: join: %w", err)
	}
	j := &joining{node: me.Node, seen: make(chan struct{})}
	m.mu.Lock()
	m.joining = j
	m.mu.Unlock()
	was, err := m.claim(ctx, me.Node, value)
	if err != nil {
		return fmt.Errorf("bucket: join as node %s: %w", me.Node, err)
	}
	select {
	case <-j.seen:
		err = m.refuseMisfit(ctx, &me, j.before)
	case <-time.After(m.options.Expiry): // nothing is heard: a later caller gets the same answer
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("bucket: join: %w", err), m.unclaim(was))
	}
	return nil
}

// unclaim gives the key back as it was: without one, or with what the process
// before had.
func (m *Members) unclaim(was *cluster.Member) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.options.Beat)
	defer cancel()
	key := m.memberKey(m.me)
	if was == nil {
		err = m.streams.KeyValue().Purge(ctx, key, jetstream.LastRevision(m.revision))
	} else {
		was.Stopped = true
		var value []byte
		if value, err = was.Encode(); err == nil {
			_, err = m.write(ctx, key, value, m.revision)
		}
	}
	m.me = ""
	m.unname()
	if err != nil {
		return fmt.Errorf("bucket: the key of the node that did not join stays: %w", err)
	}
	return nil
}

// refuseMisfit compares me with others.
func (m *Members) refuseMisfit(ctx context.Context, me *cluster.Member, others []*cluster.Member) error {
	for _, other := range others {
		misfit := cluster.Misfit(me, other)
		if misfit == nil {
			continue
		}
		there, err := m.present(ctx, other.Node)
		if err != nil {
			return err
		}
		if there {
			return misfitError{misfit}
		}
	}
	return nil
}

// claim takes the key of a node that no process has; was is what the key was before.
func (m *Members) claim(ctx context.Context, node string, value []byte) (was *cluster.Member, err error) {
	m.unname()
	for range claimsMax {
		was, revision, err := m.read(ctx, node)
		if err != nil {
			return nil, err
		}
		there, err := m.present(ctx, node)
		if err != nil {
			return nil, err
		}
		if there {
			return nil, fmt.Errorf("%w: stop it, or give this one another name (node)", ErrNameTaken)
		}
		// Another process that claims the name at the same time must get an answer when it
		// finds that it was too slow.
		if m.name, err = m.streams.Conn().Subscribe(nameSubject(m.streams.Slot())+node, m.sayName); err != nil {
			return nil, err
		}
		written, err := m.write(ctx, m.memberKey(node), value, revision)
		if err == nil {
			m.me, m.revision = node, written
			return was, nil
		}
		m.unname()
		if !errors.Is(err, errOvertaken) {
			return nil, err
		}
	}
	return nil, errors.New("its key changes all the time")
}

// present says whether another process has a name: whether one answers. Where
// one listens and does not answer, its key must change within an expiry.
func (m *Members) present(ctx context.Context, node string) (bool, error) {
	others, listens, err := m.ask(ctx, node)
	if err != nil || others || !listens {
		return others, err
	}
	_, first, err := m.read(ctx, node)
	if err != nil {
		return false, err
	}
	look := time.NewTicker(max(m.options.Beat/4, time.Millisecond))
	defer look.Stop()
	for end := time.Now().Add(m.options.Expiry); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-look.C:
		}
		_, revision, err := m.read(ctx, node)
		if err != nil {
			return false, err
		}
		if revision != first {
			return true, nil
		}
	}
	return false, nil
}

// ask asks which process has a name: whether another one than this does, and whether
// one listens but does not answer.
func (m *Members) ask(ctx context.Context, node string) (others, listens bool, err error) {
	nc := m.streams.Conn()
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return false, false, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := nc.PublishRequest(nameSubject(m.streams.Slot())+node, answers.Subject, nil); err != nil {
		return false, false, err
	}
	waiting, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	for self := false; ; self = true {
		answer, err := answers.NextMsgWithContext(waiting)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return false, false, nil
		case waiting.Err() != nil:
			return false, !self, ctx.Err()
		case err != nil:
			return false, false, err
		case answer.Header.Get("Status") == "503":
			return false, false, nil
		case string(answer.Data) != m.session:
			return true, true, nil
		}
	}
}

// sayName answers ask.
func (m *Members) sayName(request *nats.Msg) { _ = request.Respond([]byte(m.session)) }

func (m *Members) unname() {
	if m.name != nil {
		_ = m.name.Unsubscribe()
		m.name = nil
	}
}

// read is a member's key and its revision: nil when nobody has it or no node
// wrote it, 0 when it is not there.
func (m *Members) read(ctx context.Context, node string) (*cluster.Member, uint64, error) {
	e, err := m.streams.KeyValue().Get(ctx, m.memberKey(node))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("read its key: %w", err)
	}
	member, err := cluster.DecodeMember(node, e.Value())
	if err != nil {
		m.tellStrange(err)
		return nil, e.Revision(), nil
	}
	return member, e.Revision(), nil
}

// errOvertaken: a key is not what it was when it was read.
var errOvertaken = errors.New("bucket: the key was written by another process meanwhile")

// errUnsettled: as a rule it is an earlier beat, which too few servers have stored yet.
var errUnsettled = errors.New("another write of the key is not settled: most of the stream's servers have not stored it")

// write replaces a revision of a key; 0 makes a key that is not there.
func (m *Members) write(ctx context.Context, key string, value []byte, revision uint64) (written uint64, err error) {
	if revision == 0 {
		written, err = m.streams.KeyValue().Create(ctx, key, value)
	} else {
		written, err = m.streams.KeyValue().Update(ctx, key, value, revision)
	}
	if jetlog.WrongSequence(err) || errors.Is(err, jetstream.ErrKeyExists) {
		err = errOvertaken
	}
	if jetlog.Full(err) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return written, err
}

// Beat writes what this process says of itself now. ErrNameTaken: another
// process has the name, and this one must stop. Any other error: try again.
func (m *Members) Beat(ctx context.Context, me cluster.Member) error {
	me.Session = m.session
	value, err := me.Encode()
	if err != nil {
		return fmt.Errorf("bucket: beat: %w", err)
	}
	if m.me == "" || me.Node != m.me {
		return fmt.Errorf("%w as %.80q", ErrNotJoined, me.Node)
	}
	key := m.memberKey(m.me)
	written, err := m.write(ctx, key, value, m.revision)
	if errors.Is(err, errOvertaken) {
		// Our own write, whose acknowledgement was lost; a bucket that was recreated; or
		// another process.
		var is *cluster.Member
		var revision uint64
		if is, revision, err = m.read(ctx, m.me); err == nil && is != nil && is.Session != m.session {
			// The key of an earlier process is back where the bucket was restored, or lost its
			// tail: nobody answers then.
			var others bool
			if others, _, err = m.ask(ctx, m.me); others {
				err = fmt.Errorf("%w (session %s)", ErrNameTaken, is.Session)
				m.me = ""
				m.unname()
			}
		}
		if err == nil {
			written, err = m.write(ctx, key, value, revision)
		}
		if errors.Is(err, errOvertaken) {
			err = errUnsettled
		}
	}
	if err != nil {
		return fmt.Errorf("bucket: beat of node %s: %w", me.Node, err)
	}
	m.revision = written
	return nil
}

// Soon has Keep beat at once: this process has something new to say. Any
// goroutine may call it.
func (m *Members) Soon() {
	select {
	case m.soon <- struct{}{}:
	default:
	}
}

// unheardTold is how often the log says that beats do not get through.
const unheardTold = 10 * time.Second

// Keep beats until ctx ends or another process has the name; only that is an
// error. say is asked each time.
func (m *Members) Keep(ctx context.Context, say func() cluster.Member) error {
	var failing, told time.Time // since when beats do not get through; when the log said so
	next := time.NewTicker(m.options.Beat)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-m.soon:
		}
		attempt, cancel := context.WithTimeout(ctx, m.options.Beat)
		err := m.Beat(attempt, say())
		cancel()
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if !failing.IsZero() && !told.Before(failing) {
				m.options.Logger.Info("bucket: the members hear of this node again", "after", time.Since(failing).Round(time.Millisecond).String())
			}
			failing = time.Time{}
			m.failing.Store(nil)
		case errors.Is(err, ErrNameTaken), errors.Is(err, ErrNotJoined):
			return err
		default:
			now := time.Now()
			if failing.IsZero() {
				failing = now
			}
			m.failing.Store(&unheard{failing, err})
			if now.Sub(told) >= unheardTold {
				told = now
				m.options.Logger.Warn("bucket: the members do not hear of this node", "for", now.Sub(failing).Round(time.Second).String(), "error", err)
			}
		}
	}
}

// Leave informs the others at once that this process stops: of one that holds
// shards the key stays, marked as stopped; any other's is deleted.
func (m *Members) Leave(ctx context.Context, me cluster.Member) error {
	if m.me == "" || me.Node != m.me {
		return fmt.Errorf("%w as %.80q", ErrNotJoined, me.Node)
	}
	me.Stopped = true
	err := m.Beat(ctx, me)
	if err == nil && !me.Roles.Has(cluster.Hold) {
		err = m.streams.KeyValue().Delete(ctx, m.memberKey(m.me), jetstream.LastRevision(m.revision))
	}
	m.me = ""
	m.unname()
	if err != nil {
		return fmt.Errorf("bucket: leave: %w", err)
	}
	return nil
}
