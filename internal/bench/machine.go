package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// machine says what was measured on, by its size, and with what.
func machine(redis string) string {
	parts := []string{fmt.Sprintf("%d cores", runtime.GOMAXPROCS(0))}
	if kib := status("/proc/meminfo", "MemTotal"); kib > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", kib/(1<<20)))
	}
	parts = append(parts, runtime.GOOS+"/"+runtime.GOARCH, runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/nats-io/nats-server/v2":
				parts = append(parts, "nats-server "+d.Version)
			case "github.com/redis/go-redis/v9":
				parts = append(parts, "go-redis "+d.Version)
			}
		}
	}
	if redis == "" {
		return strings.Join(append(parts, errRedis), " · ")
	}
	return strings.Join(append(parts, "Redis "+redisVersion(redis)), " · ")
}

// status is a figure of a file in /proc, in KiB; 0 where there is none.
func status(path, key string) float64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); name == key && len(fields) > 0 {
			kib, _ := strconv.ParseFloat(fields[0], 64)
			return kib
		}
	}
	return 0
}
