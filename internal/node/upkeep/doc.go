// Package upkeep makes backups of what all nodes count, and takes the beginning from EVENTS.
//
// [Backup], [Trim] and [Archive] are done by any process with the rights of a node: a
// command, or a node on its schedule. None of them knows a node: they find out from the
// server which generation serves and which members it has, and ask these.
//
//	Backup  ─► the lease ─► each shard from a node that has it ─► the place of backups
//	Archive ─► EVENTS, up to the newest backup ─► a directory
//	Trim    ─► what is old, in the backup, archived and applied by all nodes ─► gone from EVENTS
//
// [Schedule] does the first and the last on time, while its process routes. Run belongs to
// one goroutine; the figures may be read at any time. There are no locks here: the lease in
// the bucket keeps two backups apart, and a trim marks EVENTS before it purges, so that a
// rebuild that begins at the same time sees it.
//
//	backup.go     Backup, and the members that it asks
//	schedule.go   Schedule, and its figures
//	trim.go       Trim and what bounds it; Archive
package upkeep
