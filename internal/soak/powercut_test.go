package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// A power cut takes what the server had not synced. It is imitated by a copy of
// its directory that is put back. What came after the copy, although it was
// acknowledged, is gone, and nothing of it may be counted in the end. It was
//
//   - counted by the nodes, which go on: everything is counted again (I10);
//   - counted by the nodes, which were stopped in order and start when publishers are
//     back already;
//   - not seen by any node.
const (
	powerCutCounted = "power cut: the streams' last moment is lost after nodes had counted it"
	powerCutStopped = "power cut: the same, and publishers are back before the nodes are"
	powerCutUnseen  = "power cut: the streams' last moment is lost before anybody counted it"
)

// lastMoment is how much a power cut takes.
func (s *soak) lastMoment() time.Duration { return s.between(200*time.Millisecond, 2*time.Second) }

func (s *soak) powerCut(kind string) {
	s.Helper()
	s.report.injected[kind]++
	from := s.marks()
	s.asked() // nobody asks: what is answered until all is counted again is of what is lost
	defer s.probes.enter(besideFaults)
	copied := s.rest()
	s.allReady() // what is assigned stays as it is, also in the older copy
	kept := s.copyStreams()

	moment := s.lastMoment()
	if kind == powerCutUnseen {
		for _, n := range s.nodes {
			n.kill()
		}
		s.publishers.resume()
		time.Sleep(moment)
		s.publishers.pause()
		s.cut(kept)
		messages := s.truth.forget()
		s.note("%s: %d messages of %v", kind, messages, moment.Round(time.Millisecond))
		s.startServer()
		s.publishers.resume()
		for _, n := range s.nodes {
			s.up(n)
		}
		return
	}
	s.publishers.resume()
	time.Sleep(moment)
	s.pause()
	s.settled()
	if kind == powerCutStopped {
		for _, n := range s.nodes {
			s.stop(n)
		}
	}
	s.cut(kept)
	messages := s.truth.forget()
	s.cuts = append(s.cuts, span{copied + 1, copied + uint64(messages)})
	s.note("%s: %d messages of %v", kind, messages, moment.Round(time.Millisecond))
	s.startServer()
	s.publishers.resume()
	if kind == powerCutStopped {
		time.Sleep(s.between(0, time.Second))
		for _, n := range s.nodes {
			s.up(n)
		}
	}
	again := patience + time.Duration(s.book.events.Load()/countedAgain)*time.Second
	for _, n := range s.nodes {
		if messages > 0 && !s.wait(func() bool { return slices.ContainsFunc(s.lines(n, from[n]), counted.MatchString) }, again) {
			s.fail("%s: %v does not count again\n%s", kind, n, s.readiness())
		}
	}
	if messages > 0 {
		s.expect(kind, from, []telling{{nil, tailTold}})
	}
}

// countedAgain is how many events a second are counted again at least, in the smallest memory and
// beside producers.
const countedAgain = 5000

// counted is what a node says that answers by what was counted again.
var counted = regexp.MustCompile(`another generation serves`)

// copyStreams copies the server's directory while it runs.
func (s *soak) copyStreams() (kept string) {
	s.Helper()
	kept = filepath.Join(s.dir, "kept")
	if out, err := exec.Command("cp", "-a", s.server.StoreDir(), kept).CombinedOutput(); err != nil {
		s.fail("copy the streams: %v: %s", err, out)
	}
	return kept
}

// cut kills the server and puts the copy back.
func (s *soak) cut(kept string) {
	s.Helper()
	s.endServer(syscall.SIGKILL)
	s.book.ends.forget() // the log ends earlier now
	if err := os.RemoveAll(s.server.StoreDir()); err != nil {
		s.fail("%v", err)
	}
	if err := os.Rename(kept, s.server.StoreDir()); err != nil {
		s.fail("%v", err)
	}
}
