//go:build !race

package sim

const raced = false // see race_on_test.go

// seedsFor is what a few seconds are enough for.
func seedsFor(short bool) int {
	if short {
		return 100
	}
	return 500
}

// nodeSeedsFor is the same among nodes, where a seed takes longer.
func nodeSeedsFor(short bool) int {
	if short {
		return 20
	}
	return 300
}

// auditSeedsFor is the same of worlds that are audited.
func auditSeedsFor(short bool) int {
	if short {
		return 20
	}
	return 100
}

// backupSeedsFor is the same of worlds in which backups are made.
func backupSeedsFor(short bool) int {
	if short {
		return 10
	}
	return 60
}

// archiveSeedsFor is the same of worlds in which EVENTS is archived.
func archiveSeedsFor(short bool) int {
	if short {
		return 5
	}
	return 25
}
