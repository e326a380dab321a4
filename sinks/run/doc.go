// Package run is the format of a run: what changed in a shard between two
// positions, sorted, packed and never changed again. It is pure: bytes in,
// bytes out; which files runs lie in, and which runs a shard has, is known to
// sinks/cold.
//
//	blocks of 8 KiB, each with a checksum                 index, with a checksum
//	┌─────────┬─────────┬─────────┬─────────┬───┬─────────┬──────────────────────────────┐
//	│ block 0 │ block 1 │ block 2 │ block 3 │ … │ block n │ first keys, lengths, filters │
//	└─────────┴─────────┴─────────┴─────────┴───┴─────────┴──────────────────────────────┘
//
// An entry is a key (key.go), a value, and whether it is a deletion. A value of a row
// is the row itself, or what has come since what older runs say (row.go): so a row is
// written without what was there before being read, and what was there is found out by
// its reader, from the oldest run to the newest (ApplyRow), or when runs are merged
// (MergeRows).
//
// A Writer takes entries by ascending keys. A Run is open for reading: its
// index is in memory and says which block has a key, and mostly that no block
// has (filter.go), so that Get reads one block or none. An Iterator goes over
// all entries, a Merger over those of several runs, newest first.
//
// One key is 1 to 10 bytes, a difference to the one before; that is why a
// block is read from its start, and why it is not larger: a lookup passes over
// half of a block.
//
// docs/formats.md draws every byte.
package run
