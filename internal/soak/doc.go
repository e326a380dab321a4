// Package soak holds the long test: real processes under real faults, and what
// they answer compared with the twin. `make soak` runs it; a run of seconds is
// among the long tests.
//
// A NATS server (natsd), or three that form a cluster, and six nodes are processes of their
// own: four share the shards, two only answer. Publishers publish what happens in communities of
// the twin (internal/twin), each message with an id and sent again until it is
// acknowledged. Meanwhile faults come by a seeded schedule, and abuse: sizes that nobody means
// well by, of a crowd of their own. Now and then everything is brought to rest, EVENTS is read
// back as the truth, and each half of the nodes is asked, alone, everything about everyone.
//
//	soak_test.go       the run: flags, schedule
//	report_test.go     what a run says in the end
//	faults_test.go     the kinds of faults, how they begin and end
//	nodes_test.go      which nodes there are, and the faults that take several
//	servers_test.go    the servers, and the faults of a cluster of them
//	past_test.go       a node that was suspended, or has an older directory
//	powercut_test.go   the server's streams put back to an older copy
//	abuse_test.go      abuse that goes on all the time
//	probes_test.go     honest users; what they were answered, held between the twin's numbers
//	processes_test.go  the nodes' processes
//	publish_test.go    publishers, and what they were acknowledged
//	truth_test.go      EVENTS read back: nothing lost, nothing doubled
//	compare_test.go    a node's answers and the twin's
//	troubles_test.go   what the nodes' logs must say, and must not
package soak
