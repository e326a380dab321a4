//go:build race

package sim

// seedsFor is few: the race detector wants schedules, the model wants seeds.
func seedsFor(short bool) int {
	if short {
		return 10
	}
	return 60
}

// nodeSeedsFor is the same among nodes, where a seed takes longer.
func nodeSeedsFor(short bool) int {
	if short {
		return 2
	}
	return 5
}

// auditSeedsFor is the same of worlds that are audited.
func auditSeedsFor(short bool) int {
	if short {
		return 3
	}
	return 12
}

// backupSeedsFor is the same of worlds in which backups are made.
func backupSeedsFor(short bool) int {
	if short {
		return 2
	}
	return 5
}

// archiveSeedsFor is the same of worlds in which EVENTS is archived.
func archiveSeedsFor(short bool) int {
	if short {
		return 1
	}
	return 3
}
