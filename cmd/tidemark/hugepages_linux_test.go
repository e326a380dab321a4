package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// What the heap grows by lies where the kernel was asked for large pages.
func TestReserveHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("the kernel has no large pages: ", err)
	}
	const reserved = 256 << 20
	reserveHugePages(reserved)
	block := make([]byte, reserved/2)
	if flags := flagsOf(t, uintptr(unsafe.Pointer(&block[len(block)-1]))); !strings.Contains(flags+" ", " hg ") {
		t.Errorf("the end of a block of %d bytes: %s", len(block), flags)
	}
	runtime.KeepAlive(block)
}

// flagsOf are the flags that the kernel has of the memory at an address.
func flagsOf(t *testing.T, at uintptr) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	here := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			here = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && here {
			return flags
		}
	}
	t.Fatalf("nothing is mapped at %x", at)
	return ""
}
