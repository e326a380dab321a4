package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpu is how long the machine's processors were busy: all of them, and with
// this process and its children that have ended.
type cpu struct {
	at         time.Time
	busy, ours time.Duration
}

// tick is the unit of the figures in /proc.
const tick = 10 * time.Millisecond

// cpuNow is the time spent so far; ok is false where the system does not tell.
func cpuNow() (now cpu, ok bool) {
	machine, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}, false
	}
	process, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return cpu{}, false
	}
	// "cpu" user nice system idle iowait irq softirq steal, then guests, whose
	// time is in user's.
	first, _, _ := strings.Cut(string(machine), "\n")
	now = cpu{time.Now(), ticks(first, 1, 2, 3, 6, 7, 8), processTime(process)}
	return now, now.busy > 0 && now.ours > 0
}

// processTime is what a process and its children that have ended took, by its
// stat in /proc.
func processTime(stat []byte) time.Duration {
	// What follows the name in brackets, from the third field on: user and
	// system are the 14th and 15th, and those of ended children.
	_, rest, _ := strings.Cut(string(stat), ") ")
	return ticks(rest, 11, 12, 13, 14)
}

// busy is the processor time that a child has taken; nothing where the system
// does not tell.
func (p *child) busy() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return processTime(stat)
}

// waited is how long the threads of a process have waited for a processor that
// others had, all together; nothing where the system does not tell.
func waited(pid int) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// Nanoseconds on a processor, nanoseconds of waiting for one, slices.
		if all := strings.Fields(string(text)); len(all) == 3 {
			n, _ := strconv.ParseInt(all[1], 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// waited is that of a child.
func (p *child) waited() time.Duration { return waited(p.cmd.Process.Pid) }

// ticks sums up some words of a line.
func ticks(text string, words ...int) (sum time.Duration) {
	all := strings.Fields(text)
	for _, i := range words {
		if i < len(all) {
			n, _ := strconv.ParseInt(all[i], 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// others is the part of the machine's time since then that went to processes
// that are not ours, 0 to 1.
func (begun cpu) others(now cpu, cores int) float64 {
	all := now.at.Sub(begun.at) * time.Duration(cores)
	theirs := (now.busy - begun.busy) - (now.ours - begun.ours)
	return min(max(theirs.Seconds()/all.Seconds(), 0), 1)
}
