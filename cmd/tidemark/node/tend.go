package node

import (
	"time"
)

const (
	tendEvery = time.Second
	// tendPauseMax paces restarts of the embedded server that do not help.
	tendPauseMax = time.Minute
)

// tend looks after the embedded server. A stream that could not be written, on
// a full disk, takes nothing more until the server starts anew, however much
// room there is by then: as soon as there is what a start needs, it does.
func (n *Node) tend() {
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
		fault := n.server.Unwritable()
		if fault == nil {
			n.trouble.clear(part)
			told = false
			continue
		}
		n.trouble.set(part, fault)
		if !told {
			n.log.Error("tidemark: the embedded server cannot write; it starts anew when the disk has room", "error", fault)
			told = true
		}
		if time.Since(last) < pause || checkFree(n.dir.path) != nil {
			continue
		}
		if pause = min(2*pause, tendPauseMax); time.Since(last) > 2*tendPauseMax {
			pause = tendEvery
		}
		last = time.Now()
		n.log.Warn("tidemark: the embedded server starts anew, to write again")
		if err := n.server.Restart(); err != nil {
			n.trouble.set(part, err)
			n.log.Error("tidemark: the embedded server does not start; trying again", "error", err)
		}
	}
}
