// Package backup copies what a system has counted to a place outside of it, and
// back, while the system runs.
//
//	holders ── export of each shard ─► runs, by their SHA-256 ─► place: objects/…
//	EVENTS ─── what lies between the shards ─► segments ───────► place: objects/…
//	                                     manifest, written last ► place: backups/ID.json
//
// Shards stand at different positions, lo to hi, when they are exported; nobody waits
// for that. A backup has the events between lo and hi as well, so that a restore brings
// all shards to hi and needs no log.
//
// place.go says what a place is, directory.go and bucket.go are two; manifest.go
// says what a backup has; make.go makes one (cluster.Holder says
// from which node); prune.go removes old ones; open.go
// reads one, import.go fills a store with it, restore.go brings
// that to one position; base.go reads some ids of one where it lies;
// trim.go decides what may go of EVENTS because of one.
// [Decision 0027](../../docs/decisions/0027-backups.md) has the reasons,
// docs/formats.md the layout.
package backup
