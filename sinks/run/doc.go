// Package run is the format of a run: what changed in a shard between two
// positions, sorted, packed and never changed again. It is pure: bytes in,
// bytes out.
package run
