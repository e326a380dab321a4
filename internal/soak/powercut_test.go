package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A power cut takes what the server had not synced. It is imitated by a copy of
// its directory that is put back. What came after the copy, although it was
// acknowledged, is
//
//   - counted by both nodes, which go on: it stays counted, and nothing takes
//     its place (I10);
//   - counted by both nodes, which were stopped in order and start when
//     publishers are back already;
//   - not seen by any node: it is gone, and nothing of it may be counted.
//
// Between these lies what one node has counted and another has not: nobody can
// put that right (docs/failures.md, "What a power cut costs"), so it is not
// asked for here.
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
	end := s.rest()
	s.truth.used = append(s.truth.used, span{copied + 1, end})
	s.cuts = append(s.cuts, span{copied + 1, end})
	told := []telling{{nil, tailTold}}
	if kind == powerCutStopped {
		for _, n := range s.nodes {
			s.stop(n)
		}
	} else {
		for _, n := range s.nodes {
			told = append(told, telling{n, connection})
		}
	}
	s.cut(kept)
	s.note("%s: %d messages of %v", kind, end-copied, moment.Round(time.Millisecond))
	s.startServer()
	s.publishers.resume()
	if kind == powerCutStopped {
		time.Sleep(s.between(0, time.Second))
		for _, n := range s.nodes {
			s.up(n)
		}
	}
	s.expect(kind, from, told)
}

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
