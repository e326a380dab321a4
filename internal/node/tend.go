package node

import (
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/internal/node/datadir"
)

const (
	tendEvery = time.Second
	// tendPauseMax paces restarts of the embedded server that do not help.
	tendPauseMax = time.Minute
	// hangLooks is after how many looks, tendEvery apart, the embedded server hangs that
	// has not said yet how it is. nats-server 2.15.2 takes a lock of its own twice where a
	// purge meets a disk that is just full: it never answers again, and cannot be stopped.
	hangLooks = 60
)

var errServerHangs = errors.New("the embedded NATS server hangs, and only a new process helps; nothing is lost: start it again")

// serverFault is what a server says that it cannot do; errServerHangs when it says nothing. It
// looks often, and not once after a long time: a process that was suspended in between
// has slept, its server has not hung.
func (n *Node) serverFault(unwritable func() error) error {
	said := make(chan error, 1)
	go func() { said <- unwritable() }()
	for range hangLooks {
		select {
		case fault := <-said:
			return fault
		case <-n.ctx.Done():
			return nil
		case <-time.After(tendEvery):
		}
	}
	return errServerHangs
}

// tend looks after the embedded server. A stream that could not be written, on a full
// disk, takes nothing more until the server is restarted, however much room there is by
// then. tend restarts it as soon as there is the room that a start needs. If the server
// hangs, the process ends, and its supervisor starts it again.
func (n *Node) tend(unwritable func() error) {
	const part = "nats"
	pause, last, told := tendEvery, time.Time{}, false
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		fault := n.serverFault(unwritable)
		switch {
		case errors.Is(fault, errServerHangs):
			n.fail(fault)
			return
		case fault == nil:
			n.trouble.Clear(part)
			told = false
			continue
		}
		n.trouble.Set(part, fault)
		if !told {
			n.log.Error("tidemark: the embedded server cannot write; it starts anew when the disk has room", "error", fault)
			told = true
		}
		if time.Since(last) < pause || datadir.CheckFree(n.dir.Path) != nil {
			continue
		}
		if pause = min(2*pause, tendPauseMax); time.Since(last) > 2*tendPauseMax {
			pause = tendEvery
		}
		last = time.Now()
		n.log.Warn("tidemark: the embedded server starts anew, to write again")
		if err := n.server.Restart(); err != nil {
			n.trouble.Set(part, err)
			n.log.Error("tidemark: the embedded server does not start; trying again", "error", err)
		}
	}
}
