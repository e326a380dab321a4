package fit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/node/datadir"
	"github.com/tidemark-io/tidemark/internal/node/door"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

const (
	// filesBase is what a node opens besides run files: Badger's tables, the streams'
	// blocks, connections.
	filesBase = 1024
	// DiskFreeMin is what a disk should have left for a node that runs.
	DiskFreeMin = 1 << 30
	// SyncMax bounds a synced write. Each checkpoint of a shard needs one; with 64 shards
	// at 100 ms a round of checkpoints takes over six seconds instead of one.
	SyncMax = 100 * time.Millisecond
	// syncs is how many are timed; the median counts.
	syncs = 9
)

// filesMin is how many files a process may have to open: all runs of all shards, of two
// generations.
func filesMin(c *config.Config) uint64 {
	if c.Thin() {
		return filesBase
	}
	return filesBase + 2*uint64(c.Shards)*cold.RunsMax
}

const (
	connectionsMin = 64
	connectionsMax = 10_000
)

// Connections is how many HTTP connections each port of a process may have, where the
// configuration does not say: the ports share half of the files that it may open, but for
// those that the store needs.
func Connections(c *config.Config) int {
	files, known := kit.OpenFilesMax()
	switch {
	case c.Limits.Connections > 0:
		return c.Limits.Connections
	case !known:
		return connectionsMax
	}
	spare := int64(min(files, 1<<40)) - int64(filesMin(c))
	return int(max(connectionsMin, min(min(int64(files/2), spare)/max(ports(c), 1), connectionsMax)))
}

// ports is how many ports for HTTP a process has.
func ports(c *config.Config) (n int64) {
	for _, listen := range []string{c.HTTP.Listen, c.API.Listen} {
		if listen != "" {
			n++
		}
	}
	return n
}

func (r *Report) files(c *config.Config) {
	most, known := kit.OpenFilesMax()
	if !known {
		r.unknown("open files", "this system has no limit to ask for")
		return
	}
	least := filesMin(c) + uint64(ports(c))*uint64(c.Limits.Connections)
	r.judge(most >= least, "open files", fmt.Sprintf("raise it: ulimit -n %d, or LimitNOFILE= of the unit", least),
		"up to %d; %d or more are needed", most, least)
}

// disk looks at the file system of the data directory.
func (r *Report) disk(c *config.Config) {
	dir, err := existing(c.DataDir)
	if err != nil {
		r.bad("data_dir", "choose another data_dir", "%s", err)
		return
	}
	r.space(dir, growth(c))
	r.sync(dir)
}

func (r *Report) space(dir, growth string) {
	free, known := kit.DiskFree(dir)
	if !known {
		r.unknown("disk space", "%s: this file system does not say", dir)
		return
	}
	r.judge(free >= DiskFreeMin, "disk space", "make room, or choose another data_dir",
		"%s: %d MiB free; %d or more are needed%s", dir, free>>20, DiskFreeMin>>20, growth)
}

func (r *Report) sync(dir string) {
	took, err := timeSync(dir)
	if err != nil {
		r.bad("data_dir", "give the node's user the right to write there", "%s", err)
		return
	}
	r.judge(took <= SyncMax, "synced write", "use a disk that syncs faster: every checkpoint waits for it",
		"%s, the median of %d in %s; at most %s", took.Round(10*time.Microsecond), syncs, dir, SyncMax)
}

// growth says how large the streams may become on this disk.
func growth(c *config.Config) string {
	if c.NATS.URL != "" {
		return ""
	}
	s := c.NATS.Streams
	return fmt.Sprintf(", and the streams may grow to %d MiB", (s.Events.MaxBytes+s.Deltas.MaxBytes+s.DeadLetter.MaxBytes)>>20)
}

// existing is the directory, or the nearest above it that is there: a start makes the rest.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(path)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is no directory", path)
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist), filepath.Dir(path) == path:
			return "", err
		}
		path = filepath.Dir(path)
	}
}

// timeSync is the median time of a small write that is synced.
func timeSync(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, ".tidemark-check-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range syncs {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[syncs/2], nil
}

// keys looks at the files that hold secrets: none but the node's user may read them.
func (r *Report) keys(c *config.Config) {
	r.nodeKey(c)
	unread := func(string) error { return nil }
	for _, f := range []struct {
		name, path string
		read       func(path string) error // as the start does
	}{
		{"nats.nkey", c.NATS.NKey, unread},
		{"nats.credentials", c.NATS.Credentials, unread},
		{"nats.tls.key", c.NATS.TLS.Key, unread},
		{"nats.auth", c.NATS.Auth, func(path string) error { _, err := walls.ClientsOf(path); return err }},
		{"api.tokens", c.API.Tokens, door.CheckTokens},
	} {
		if f.path == "" || f.path == config.AuthOpen {
			continue
		}
		if err := f.read(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.bad(f.name, "mend the file: docs/security.md has its form", "%s", err)
			continue
		}
		r.secret(f.name, f.path)
	}
}

func (r *Report) nodeKey(c *config.Config) {
	const name = "key of the node"
	if c.NATS.URL != "" || c.NATS.NKey != "" || c.Thin() {
		return
	}
	path := filepath.Join(c.DataDir, walls.KeyFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		r.good(name, "the first start makes it")
		return
	}
	r.secret(name, path)
}

func (r *Report) secret(name, path string) {
	mode, err := modeOf(path)
	if err != nil {
		r.bad(name, "name a file that the node's user may read", "%s", err)
		return
	}
	r.judge(mode&0o077 == 0 || runtime.GOOS == "windows", name, "chmod 600 "+path, "%s, mode %04o; others may have no rights", path, mode)
}

// modeOf also fails where the file may not be read.
func modeOf(path string) (fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), nil
}

// data looks whether a node may take the data directory; runs: it may be the one that runs,
// and has it.
func (r *Report) data(c *config.Config, runs bool) {
	const name = "data directory"
	err := datadir.Look(c.DataDir, c.Node, false)
	switch {
	case err == nil:
		r.good(name, "%s may be used", c.DataDir)
	case runs && errors.Is(err, datadir.ErrInUse):
		r.good(name, "%s is in use: the node runs", c.DataDir)
	default:
		r.bad(name, "see there", "%s", err)
	}
}

// ports looks whether a node that does not run yet can listen, its server too.
func (r *Report) ports(c *config.Config) {
	for _, p := range []struct{ name, address string }{
		{"nats.listen", c.NATS.Listen}, {"nats.cluster.listen", c.NATS.Cluster.Listen}, {"http.listen", c.HTTP.Listen}, {"api.listen", c.API.Listen},
	} {
		if p.address != "" {
			r.port(p.name, p.address)
		}
	}
}

func (r *Report) port(name, address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		r.bad(name, "end what listens there, or choose another port", "%s", err)
		return
	}
	l.Close()
	r.good(name, "%s is free", address)
}
