package main

import (
	"math/bits"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	hugePage = 2 << 20
	// smallHeap is what a heap has of small pages: a process that holds little takes no more
	// memory for them.
	smallHeap = 32 << 20
)

// reserveHugePages has Go's heap, as far as it grows to so many bytes, lie in pages of 2 MiB:
// the kernel gives one at once where it would give 512 one by one, and the processor finds
// its way to rows that lie anywhere with fewer looks. Go has no call for it. So the heap grows
// to that size once, without using the memory, and the kernel is asked for such pages there.
func reserveHugePages(most int) {
	bytes := min(most, int(debug.SetMemoryLimit(-1)), roomForHugePages())
	if bytes < smallHeap+2*hugePage {
		return
	}
	heap := make([]byte, bytes)[smallHeap:]
	heap = heap[-uintptr(unsafe.Pointer(&heap[0]))%hugePage:]
	_ = syscall.Madvise(heap[:len(heap)/hugePage*hugePage], syscall.MADV_HUGEPAGE) // an old kernel has none
	runtime.KeepAlive(heap)
	debug.FreeOSMemory() // it is not used from now on
}

// roomForHugePages is half of the memory that the machine or the process' group has, for the
// kernel may fill large pages up that Go has given back in part; 0 where growing to that size
// could fail.
func roomForHugePages() int {
	var machine syscall.Sysinfo_t
	var space syscall.Rlimit
	if bits.UintSize < 64 || syscall.Sysinfo(&machine) != nil || syscall.Getrlimit(syscall.RLIMIT_AS, &space) != nil {
		return 0
	}
	if int64(space.Cur) >= 0 || numberIn("/proc/sys/vm/overcommit_memory") == 2 { // -1: no limit
		return 0
	}
	room := int(machine.Totalram) * int(machine.Unit)
	if group := numberIn("/sys/fs/cgroup/memory.max"); group > 0 {
		room = min(room, group)
	}
	return room / 2
}

// numberIn is the number in a file, 0 where there is none.
func numberIn(path string) int {
	text, _ := os.ReadFile(path)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}
