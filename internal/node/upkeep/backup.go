package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/cluster"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/bucket"
	"github.com/tidemark-io/tidemark/sinks/backup"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/move"
)

// BackupOptions say what to back up, and where.
type BackupOptions struct {
	To       string
	Keep     int           // newest backups to keep; 0: all
	Limit    *move.Limiter // of the bytes read from nodes; nil: none
	Progress func(done, of int)
	Logger   *slog.Logger

	members *bucket.Members // of this process; nil: they are listened to first
}

const (
	// The lease of the process that makes a backup. It is not taken over quickly: all that
	// it saves is work.
	backupRenew  = time.Second
	backupExpiry = 5 * time.Second
	// backupWait is how long it waits for another backup to be given up.
	backupWait = 2 * backupExpiry
)

// Backup makes a backup of all nodes on a server; any process with the rights of a
// node can. backup.ErrInUse: another one is being made.
func Backup(ctx context.Context, nc *nats.Conn, o BackupOptions) (*backup.Manifest, error) {
	set, streams, err := attachServing(ctx, nc, o.Logger)
	if err != nil {
		return nil, err
	}
	held, release, err := leaseBackup(ctx, streams)
	if err != nil {
		return nil, err
	}
	defer release()
	members, done, err := Listening(ctx, o.members, streams, o.Logger)
	if err != nil {
		return nil, err
	}
	defer done()
	from := &origin{nc: nc, of: set.Serving, streams: streams, members: members, o: o, asked: make(map[pipeline.Shard]int)}
	shards, rules, err := identity(members.View())
	if err != nil {
		return nil, err
	}
	state, err := streams.State(held, jetlog.EventsStream)
	if err != nil {
		return nil, err
	}
	only, err := set.Only()
	if err != nil {
		return nil, err
	}
	counted, mixed := from.counted(held)
	place, err := backup.OpenPlace(held, o.To, nc, true)
	if err != nil {
		return nil, err
	}
	m, err := backup.Make(held, place, from, backup.Options{
		Shards: shards, Rules: rules, CountedBy: counted, Mixed: mixed, Generations: only,
		Continues: backup.Ancestor{Events: state.Continues.Events, Position: pipeline.EndOf(state.Continues.After)},
		Version:   members.View().Writes(pipeline.FormatBackups), Keep: o.Keep, Progress: o.Progress, Logger: o.Logger,
	})
	if err != nil && ctx.Err() == nil && held.Err() != nil {
		err = fmt.Errorf("%w, or this process was cut off: %w", backup.ErrInUse, err)
	}
	if err != nil {
		return nil, err
	}
	return m, noteBackup(ctx, streams, backupNote{place.String(), m.ID})
}

// attachServing opens the streams of the generation that serves.
func attachServing(ctx context.Context, nc *nats.Conn, log *slog.Logger) (generations.Set, *jetlog.Streams, error) {
	set, err := bucket.LoadGenerations(ctx, nc)
	if err == nil && set.Epoch == 0 {
		err = fmt.Errorf("%w: start a node", generations.ErrGone)
	}
	if err != nil {
		return set, nil, err
	}
	streams, err := jetlog.AttachEvents(ctx, nc, bucket.SlotOfServing(set), log)
	return set, streams, err
}

// noteBackup notes where the newest backup is, unless the nodes back up elsewhere
// (backup.to): what is trimmed goes by the backups there, and this one is a copy that may
// be deleted.
func noteBackup(ctx context.Context, streams *jetlog.Streams, note backupNote) error {
	state, err := streams.State(ctx, jetlog.EventsStream)
	if err != nil || state.Backups != "" && state.Backups != note.Place {
		return err
	}
	return bucket.SetNote(ctx, streams, bucket.NoteBackup, note)
}

// backupNote is where the newest backup is.
type backupNote struct {
	Place string `json:"place"`
	ID    string `json:"id"`
}

// leaseBackup takes the lease that a process holds while it makes a backup.
func leaseBackup(ctx context.Context, streams *jetlog.Streams) (held context.Context, release func(), err error) {
	lease, err := bucket.NewLease(streams, bucket.LeaseOptions{Key: bucket.BackupKey, Owner: "backup-" + nuid.Next(), Renew: backupRenew, Expiry: backupExpiry})
	if err != nil {
		return nil, nil, err
	}
	waiting, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(backupWait, func() { stop(backup.ErrInUse) })
	held, let, err := lease.Acquire(waiting)
	if err != nil {
		timer.Stop()
		stop(nil)
		if ctx.Err() == nil {
			holder, _ := lease.Holder()
			err = fmt.Errorf("%w (by %s)", backup.ErrInUse, holder)
		}
		return nil, nil, err
	}
	timer.Stop()
	return held, func() { let(); stop(nil) }, nil
}

// origin is the nodes that are there. It implements backup.Origin.
type origin struct {
	nc      *nats.Conn
	of      generations.Number
	streams *jetlog.Streams
	members *bucket.Members
	o       BackupOptions
	asked   map[pipeline.Shard]int
}

// Listening returns the members as this process has watched them. If it has not (nil), it
// watches them from now on, and waits until each key that is there is known to be of a
// process that is up, or away: an observer that has just begun takes a node that died for
// one that is up. The caller calls done.
func Listening(ctx context.Context, watched *bucket.Members, streams *jetlog.Streams, log *slog.Logger) (members *bucket.Members, done func(), err error) {
	if watched != nil {
		return watched, func() {}, nil
	}
	members, err = bucket.OpenMembers(ctx, streams, bucket.MembersOptions{Beat: bucket.MemberBeat, Expiry: bucket.MemberExpiry, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	first, end := members.View(), time.After(bucket.MemberExpiry+bucket.MemberBeat)
	for !heard(first, members.View()) {
		select {
		case <-members.Changed():
		case <-time.After(bucket.MemberBeat / 4):
		case <-end: // nobody says anything
			err = cluster.ErrNobody
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			members.Close()
			return nil, nil, err
		}
	}
	return members, members.Close, nil
}

// heard says whether all nodes that seem to be up have beaten since the first view. If
// none seems to be up, it is true once all have had the time to beat.
func heard(first, now *cluster.View) bool {
	up := 0
	for _, m := range now.Members {
		if m.Status == cluster.Away {
			continue
		}
		up++
		if was, there := first.Member(m.Node); there && was.Member == m.Member {
			return false
		}
	}
	return up > 0 || now.Settled
}

// identity is what all nodes that count have in common.
func identity(v *cluster.View) (shards int, rules string, err error) {
	from := ""
	for _, m := range v.Members {
		if m.Status == cluster.Away || m.Shards == 0 || !m.Routes && m.Ready.Len() == 0 {
			continue
		}
		switch is := m.Fingerprint.String(); {
		case from == "":
			shards, rules, from = m.Shards, is, m.Node
		case m.Shards != shards || is != rules:
			return 0, "", fmt.Errorf("nodes %s and %s are up and count differently (%d and %d shards, rules %s and %s): stop the one that should not be", from, m.Node, shards, m.Shards, rules, is)
		}
	}
	if from == "" {
		return 0, "", cluster.ErrNobody
	}
	return shards, rules, nil
}

// counted asks the holders by which rules and limits their shards were counted; "": that
// is not known.
func (g *origin) counted(ctx context.Context) (by string, mixed bool) {
	asked := false
	for _, m := range g.members.View().Members {
		if m.Status == cluster.Away || m.Ready.Len() == 0 {
			continue
		}
		r, err := checks.AskAgree(ctx, g.nc, m.Node, nil)
		if err != nil {
			g.o.Logger.Warn("backup: a node did not say by which rules it counted; what is restored is not audited", "node", m.Node, "error", err)
			return "", false
		}
		if asked && r.CountedBy != by {
			return "", true
		}
		by, mixed, asked = r.CountedBy, mixed || r.Mixed, true
	}
	return by, mixed
}

// Export implements backup.Origin.
func (g *origin) Export(ctx context.Context, shard pipeline.Shard) (cold.Source, string, func(), error) {
	node, err := cluster.Holder(g.members.View(), shard, g.asked[shard])
	if err != nil {
		return nil, "", nil, err
	}
	g.asked[shard]++
	from, done, err := move.Open(ctx, g.nc, node, shard, move.Options{Generation: g.of, Version: g.members.View().Reads(node, pipeline.FormatMoves), Limit: g.o.Limit, Logger: g.o.Logger})
	return from, node, done, err
}

// Last implements backup.Origin.
func (g *origin) Last(ctx context.Context) (uint64, error) {
	state, err := g.streams.State(ctx, jetlog.EventsStream)
	return state.Last, err
}

// Open implements backup.Origin.
func (g *origin) Open(ctx context.Context, from pipeline.Position) (pipeline.Source, error) {
	return jetlog.OpenSource(ctx, g.streams, from, jetlog.RunOptions{Logger: g.o.Logger})
}
