package cold

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var kills = flag.Int("cold.kills", 25, "how often TestEngineKilled kills")

const victimEnv = "TIDEMARK_TEST_COLD_VICTIM"

// A version of a victim writes so many keys, and so much that every eighth one
// fills a buffer: many kills hit Badger between two of its files.
const (
	victimKeys  = 16
	victimValue = 64 << 10
)

func victimKey(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// victim commits versions, and prints each that is committed, until it is killed.
func victim(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	e, err := openBadger(dir, testOptions())
	die(err)
	value := make([]byte, victimValue)
	for version := e.MaxVersion() + 1; ; version++ {
		binary.BigEndian.PutUint64(value, version)
		txn := e.Begin()
		for i := range victimKeys {
			die(txn.Set(victimKey(i), slices.Clone(value)))
		}
		die(txn.Commit(version))
		e.Forget(version)
		fmt.Println(version)
	}
}

// kill -9 at any moment, also between two steps of Badger's own: the directory
// opens again, what was committed is there, and a version is there as a whole.
func TestEngineKilled(t *testing.T) {
	dir := t.TempDir()
	committed, moved := uint64(0), 0
	for round := range *kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := committed
		after := time.Duration(rand.IntN(60_000)) * time.Microsecond
		for lines, first := bufio.NewScanner(out), true; lines.Scan(); first = false {
			version, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("round %d: %s", round, lines.Text())
			}
			committed = version
			if first {
				time.AfterFunc(after, func() { cmd.Process.Kill() })
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("round %d: %v", round, err)
		}
		if committed > before {
			moved++
		}

		e, err := openBadger(dir, testOptions())
		if err != nil {
			t.Fatalf("round %d, killed %v after version %d: %v", round, after, committed, err)
		}
		newest := e.MaxVersion()
		if newest != committed && newest != committed+1 {
			t.Errorf("round %d: the newest version is %d, and %d was committed", round, newest, committed)
		}
		err = e.View(Newest, func(r Reader) error {
			for i := range victimKeys {
				item, err := r.Get(victimKey(i))
				if err != nil || item == nil {
					return fmt.Errorf("%s is gone: %v", victimKey(i), err)
				}
				err = item.Value(func(b []byte) error {
					if got := binary.BigEndian.Uint64(b); got != newest || item.Version() != newest {
						return fmt.Errorf("%s is of version %d and says %d, the newest is %d", item.Key(), item.Version(), got, newest)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if moved == 0 {
		t.Error("no kill hit a process at work")
	}
}
