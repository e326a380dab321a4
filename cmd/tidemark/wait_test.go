package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/internal/walls"
)

// docs/run.md: "A process that starts before its NATS server waits for it", and says so without
// the password of nats.url.
func TestStartsBeforeItsServer(t *testing.T) {
	t.Parallel()
	address, key := natstest.FreeAddress(t), filepath.Join(t.TempDir(), walls.KeyFile)
	if _, err := walls.Key(key); err != nil {
		t.Fatal(err)
	}
	waiting := func(url, roles string) *process {
		p := newPlace(t)
		p.configure(t, "roles: "+roles+"\nhttp: {listen: '"+natstest.FreeAddress(t)+"'}\nnats: {url: '"+url+"', nkey: '"+key+"', "+smallStreams+"}\n")
		n := p.spawn(t)
		e2e.Until(t, "it waits", func() bool { return strings.Contains(n.log.String(), "waiting for a NATS server") })
		return n
	}
	thin, holder, ends := waiting("nats://"+address, "[answer]"), waiting("nats://"+address, "[hold]"), waiting("me:hunter2@"+address, "[answer]")
	if err := ends.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ends.ended
	if code := ends.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(ends.log.String(), "hunter2") {
		t.Errorf("exit code %d:\n%s", code, ends.log.String())
	}
	p := newPlace(t)
	p.configure(t, "nats: {listen: '"+address+"', nkey: '"+key+"', "+smallStreams+"}\n")
	server := p.start(t)
	thin.await()
	holder.await()
	e2e.Until(t, "all are up", func() bool { return strings.Count(server.do("nodes").out, "  up  ") == 3 })
}
