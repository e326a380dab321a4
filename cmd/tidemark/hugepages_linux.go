package main

import (
	"os"
	"runtime"
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
// to that size once, without using the memory, and the kernel is asked for such pages there;
// half of the machine's memory at most, and nothing where the kernel grants only what it is
// sure to have.
func reserveHugePages(bytes int) {
	var machine syscall.Sysinfo_t
	strict, _ := os.ReadFile("/proc/sys/vm/overcommit_memory")
	if syscall.Sysinfo(&machine) != nil || strings.TrimSpace(string(strict)) == "2" {
		return
	}
	if bytes = min(bytes, int(uint64(machine.Totalram)*uint64(machine.Unit)/2)); bytes < smallHeap+2*hugePage {
		return
	}
	heap := make([]byte, bytes)[smallHeap:]
	heap = heap[-uintptr(unsafe.Pointer(&heap[0]))%hugePage:]
	_ = syscall.Madvise(heap[:len(heap)/hugePage*hugePage], syscall.MADV_HUGEPAGE) // an old kernel has none
	runtime.KeepAlive(heap)
	heap = nil
	runtime.GC() // it is free from now on
}
