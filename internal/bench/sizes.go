package main

import "time"

// sizes are how much is measured.
type sizes struct {
	rounds int // of what takes turns

	backlog int // events, one a message
	packed  int // events, in packs

	replayed int // events that a rebuild counts again

	sustained int // events with distinct keys, in packs

	pace    int           // events a second while visibility is measured
	probes  int           // probes a second beside them
	visible time.Duration // of a round

	asked   int           // post rows that hostile requests ask for
	persons int           // users, likewise
	calls   int           // small requests a second beside them
	calling time.Duration // of a round of these

	pollers int // users who follow 500 each and ask what is unread
	polled  int // authors whom they follow

	rows   []int         // post rows with three columns at which memory is looked at, ascending
	ask    time.Duration // of a round of multi-gets
	hot    int           // post rows while pauses are measured
	pauses time.Duration // how long

	moving time.Duration // of small gets while shards move to another node, and before

	calm time.Duration // between two looks whether a program is at rest
}

// short takes less than eight minutes on two cores.
var short = sizes{
	rounds:  3,
	backlog: 500_000, packed: 2_000_000, replayed: 500_000,
	sustained: 2_000_000,
	pace:      50_000, probes: 200, visible: 5 * time.Second,
	asked: 200_000, persons: 10_000, calls: 500, calling: time.Second,
	pollers: 2000, polled: 20_000,
	rows: []int{500_000, 1_000_000, 2_000_000}, ask: time.Second,
	hot: 4_000_000, pauses: 6 * time.Second,
	moving: 3 * time.Second,
	calm:   time.Second,
}

// large is what the targets speak of.
var large = sizes{
	rounds:  5,
	backlog: 2_000_000, packed: 10_000_000, replayed: 10_000_000,
	sustained: 20_000_000,
	pace:      50_000, probes: 200, visible: 20 * time.Second,
	asked: 3_000_000, persons: 100_000, calls: 500, calling: 10 * time.Second,
	pollers: 10_000, polled: 1_000_000,
	rows: []int{
		1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000,
		6_000_000, 7_000_000, 8_000_000, 9_000_000, 10_000_000,
	}, ask: 5 * time.Second,
	hot: 50_000_000, pauses: time.Minute,
	moving: 20 * time.Second,
	calm:   time.Second,
}
