package service

import "time"

// stage is a part of a request's time in this process.
type stage int

// The stages. What a request does not do takes it no time.
const (
	stageParse    stage = iota // reading the request
	stageTurn                  // waiting for a goroutine, and for a worker of its lane
	stagePosition              // waiting for min_position, or for a read to be visible
	stageMemory                // asking the Reader, without the disk; gathering figures
	stageDisk                  // asking the Reader: its Cost.Disk
	stageNodes                 // asking the Reader, with other nodes
	stageLog                   // waiting for the log to store a read
	stageWrite                 // writing the reply and handing it to NATS
	stageCount
)

// stageNames are the words for the stages in tidemark.slowlog and in the log.
var stageNames = [stageCount]string{"parse", "turn", "position", "memory", "disk", "nodes", "log", "write"}

// clock parts a request's time among its stages, with nothing left over: at
// the end of each stage somebody calls lap, and what has passed since the lap
// before is that stage's. So the stages add up to the total.
type clock struct {
	start time.Time     // with the wall clock, for people
	total time.Duration // since start, as of the last lap
	spent [stageCount]time.Duration
}

func (k *clock) begin() { *k = clock{start: time.Now()} }

// lap ends a stage, which may come more than once.
func (k *clock) lap(s stage) (took time.Duration) {
	total := time.Since(k.start)
	took, k.total = total-k.total, total
	k.spent[s] += took
	return took
}

// read ends the Reader's part, of which some was the disk's. stage is what the
// rest of it was.
func (k *clock) read(stage stage, disk time.Duration) {
	disk = max(min(disk, k.lap(stage)), 0)
	k.spent[stage] -= disk
	k.spent[stageDisk] += disk
}
