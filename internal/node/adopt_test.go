package node

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/jetlog"
)

// EVENTS is lost, and another one has taken events when a node comes: `repair --adopt` keeps
// what is counted, and what is there counts after it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.Config("a", "route hold answer")
	n := s.Start(c)
	s.Ready(n)
	s.Publish(like, like, like)
	s.Asks("get", `{"counter":"post","ids":[42],"columns":["like"],"min_position":"`+s.Publish(like)+`"}`, `"like":4`)
	s.Stop(n)
	for _, more := range []int{2, 0} {
		if err := s.streams().Delete(t.Context(), jetlog.EventsStream); err != nil {
			t.Fatal(err)
		}
		if _, err := startOnSite(t.Context(), c, silent); err == nil || !strings.Contains(err.Error(), "repair --adopt") {
			t.Fatalf("a node starts: %v", err)
		}
		for range more {
			s.Publish(like)
		}
		if err := Repair(c, RepairOptions{Adopt: true, Logger: silent}); err != nil {
			t.Fatal(err)
		}
		n = s.Start(c)
		s.Ready(n)
		s.Asks("get", `{"counter":"post","ids":[42],"columns":["like"]}`, `"like":6`)
		s.Stop(n)
	}
	n = s.Start(c)
	s.Ready(n)
	s.Asks("get", `{"counter":"post","ids":[42],"columns":["like"],"min_position":"`+s.Publish(like)+`"}`, `"like":7`)
}
