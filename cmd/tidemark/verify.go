package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/tidemark-io/tidemark/internal/node/checks"
	"github.com/tidemark-io/tidemark/pipeline"
)

type verifyCommand struct {
	Sample *string `xor:"share" placeholder:"1/N" help:"Of all ids, one in N at random, a power of two (1/64)."`
	All    bool    `xor:"share" help:"All ids."`
	Repair bool    `help:"Have shards that differ be taken again, and notices be corrected."`
	remote
}

func (verifyCommand) Help() string {
	return `Every node that holds shards reads EVENTS from its beginning, counts a random sample of all ids again, in private shards, and compares that with what it answers at exactly one position: every column, list and mark, and the channels with the first part of the sample. Of a shard with copies every copy is compared. It takes as long as reading the log does, audit.memory, and for --all up to as much disk as the counts. Answers go on meanwhile. Where EVENTS was trimmed and what is gone is not archived, it begins with a backup (backup.to), and says with which.

What differs is printed, and the exit code is 1. With --repair a shard that differs is given up on its node, and taken again from a node that agrees with the log, or derived. The audit of each node (audit.rate) does the same all the time, slowly.

    COUNTER  of the number; or what else it is: following, follower, listed post, mark, cursor, notice
    COLUMN   of the counter; of a list the other id, of a cursor its channel
    IS       what is answered
    SHOULD   what the log says; -1 is "not in the list"

EXAMPLE

    tidemark verify
    tidemark verify --all --json | jq .differs`
}

// Validate is called by kong.
func (v *verifyCommand) Validate() error {
	if _, err := pipeline.ParseShare(v.share()); err != nil {
		return fmt.Errorf("--sample: %w", err)
	}
	return v.remote.Validate()
}

// share is how many of all ids. It has no default that kong knows of: --all would
// be taken to be given beside it.
func (v *verifyCommand) share() string {
	switch {
	case v.All:
		return "1/1"
	case v.Sample == nil:
		return "1/64"
	}
	return *v.Sample
}

func (v *verifyCommand) Run(t *terminal) error {
	share := v.share()
	bits, err := pipeline.ParseShare(share)
	if err != nil {
		return err
	}
	// One and the same for all nodes.
	return v.check(t, checks.VerifyVerb, &checks.Ask{Share: share, Residue: rand.Uint64N(1 << bits), Repair: v.Repair})
}
