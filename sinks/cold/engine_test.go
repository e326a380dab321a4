package cold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/sim"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// engines all keep the contract of cold.Engine: what the simulation finds on
// its disk is true of Badger as far as these tests go. What they return opens
// one, and opens it again.
var engines = map[string]func(t *testing.T) (open func() cold.Engine){
	"badger": func(t *testing.T) func() cold.Engine {
		dir := t.TempDir()
		return func() cold.Engine {
			e, err := cold.OpenBadger(dir, cold.SmallOptions())
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	},
	"sim": func(*testing.T) func() cold.Engine {
		disk := new(sim.Disk)
		return func() cold.Engine { return sim.NewServer().NewClient(0, nil).Mount(context.Background(), disk) }
	},
}

func onEngines(t *testing.T, test func(t *testing.T, e cold.Engine)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			e := open(t)()
			defer e.Close()
			test(t, e)
		})
	}
}

// commit writes "key=value", or deletes "-key", as one version.
func commit(t *testing.T, e cold.Engine, version uint64, changes ...string) {
	t.Helper()
	txn := e.Begin()
	if err := errors.Join(add(txn, changes...), txn.Commit(version)); err != nil {
		t.Fatal(err)
	}
}

func add(txn cold.Transaction, changes ...string) error {
	var faults []error
	for _, c := range changes {
		if key, gone := strings.CutPrefix(c, "-"); gone {
			faults = append(faults, txn.Delete([]byte(key)))
			continue
		}
		key, value, _ := strings.Cut(c, "=")
		faults = append(faults, txn.Set([]byte(key), []byte(value)))
	}
	return errors.Join(faults...)
}

// held is what a scan finds, as of a version.
func held(t *testing.T, e cold.Engine, as uint64, prefix, from string, since uint64) (found []string) {
	t.Helper()
	err := e.View(as, func(r cold.Reader) error {
		return r.Scan([]byte(prefix), []byte(from), since, func(i cold.Item) (bool, error) {
			return true, i.Value(func(b []byte) error {
				found = append(found, fmt.Sprintf("%s=%s@%d", i.Key(), b, i.Version()))
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func get(t *testing.T, e cold.Engine, as uint64, key string) (value string) {
	t.Helper()
	err := e.View(as, func(r cold.Reader) error {
		item, err := r.Get([]byte(key))
		if err != nil || item == nil {
			value = "nothing"
			return err
		}
		return item.Value(func(b []byte) error {
			value = fmt.Sprintf("%s=%s@%d", item.Key(), b, item.Version())
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// "It holds of each key the values it had as of versions."
func TestEngineVersions(t *testing.T) {
	onEngines(t, func(t *testing.T, e cold.Engine) {
		commit(t, e, 1, "a=1", "b=1", "c=")
		commit(t, e, 3, "-a", "b=3", "d=3")
		commit(t, e, 2, "e=2") // "in any order of versions"
		if got := e.MaxVersion(); got != 3 {
			t.Errorf("the newest version is %d", got)
		}
		for as, want := range map[uint64]string{0: "nothing", 1: "a=1@1", 2: "a=1@1", 3: "nothing", cold.Newest: "nothing"} {
			if got := get(t, e, as, "a"); got != want {
				t.Errorf("a as of %d is %s, want %s", as, got, want)
			}
		}
		same(t, "as of 1", held(t, e, 1, "", "", 0), []string{"a=1@1", "b=1@1", "c=@1"})
		same(t, "as of 2", held(t, e, 2, "", "", 0), []string{"a=1@1", "b=1@1", "c=@1", "e=2@2"})
		same(t, "newest", held(t, e, cold.Newest, "", "", 0), []string{"b=3@3", "c=@1", "d=3@3", "e=2@2"})
		same(t, "since 2", held(t, e, cold.Newest, "", "", 2), []string{"b=3@3", "d=3@3", "e=2@2"})
		same(t, "since 3", held(t, e, cold.Newest, "", "", 3), []string{"b=3@3", "d=3@3"})
		same(t, "since 1 as of 2", held(t, e, 2, "", "", 1), []string{"a=1@1", "b=1@1", "c=@1", "e=2@2"})
		e.Forget(3)
		same(t, "as of 3, forgotten before", held(t, e, 3, "", "", 0), []string{"b=3@3", "c=@1", "d=3@3", "e=2@2"})
	})
}

// "Scan visits the keys with a prefix, from a key on, ascending, until visit
// says no or fails: its error is returned as it is."
func TestEngineScan(t *testing.T) {
	onEngines(t, func(t *testing.T, e cold.Engine) {
		commit(t, e, 1, "b\xff=1", "a=1", "b=1", "b1=1", "b2=1", "c=1")
		same(t, "b", held(t, e, cold.Newest, "b", "b", 0), []string{"b=1@1", "b1=1@1", "b2=1@1", "b\xff=1@1"})
		same(t, "b from b10", held(t, e, cold.Newest, "b", "b10", 0), []string{"b2=1@1", "b\xff=1@1"})
		same(t, "bb", held(t, e, cold.Newest, "bb", "bb", 0), nil)
		visits, fault := 0, errors.New("enough")
		for _, want := range []error{nil, fault} {
			err := e.View(cold.Newest, func(r cold.Reader) error {
				return r.Scan([]byte("b"), []byte("b"), 0, func(cold.Item) (bool, error) { visits++; return want != nil, want })
			})
			if err != want {
				t.Errorf("%v, want %v", err, want)
			}
		}
		if visits != 2 {
			t.Errorf("%d visits of two scans that end with the first", visits)
		}
	})
}

// "Commit writes all of it as one version, at once."
func TestEngineTransaction(t *testing.T) {
	onEngines(t, func(t *testing.T, e cold.Engine) {
		txn := e.Begin()
		if err := add(txn, "a=1", "b=1", "a=2", "-b", "-c", "c=3"); err != nil {
			t.Fatal(err)
		}
		same(t, "before", held(t, e, cold.Newest, "", "", 0), nil)
		if err := txn.Commit(1); err != nil {
			t.Fatal(err)
		}
		same(t, "after", held(t, e, cold.Newest, "", "", 0), []string{"a=2@1", "c=3@1"}) // the last change of a key stays
		txn = e.Begin()
		if err := add(txn, "a=3", "-c"); err != nil {
			t.Fatal(err)
		}
		txn.Discard()
		same(t, "discarded", held(t, e, cold.Newest, "", "", 0), []string{"a=2@1", "c=3@1"})
		changes, _ := e.TransactionMax()
		txn = e.Begin()
		defer txn.Discard()
		for i := range changes {
			if err := txn.Set(fmt.Appendf(nil, "%d", i), nil); err != nil {
				if i < changes-2 {
					t.Errorf("change %d of %d: %v", i, changes, err)
				}
				return
			}
		}
		t.Errorf("a transaction took %d changes", changes)
	})
}

func TestEngineClosed(t *testing.T) {
	onEngines(t, func(t *testing.T, e cold.Engine) {
		commit(t, e, 1, "a=1")
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		read := false
		err := e.View(cold.Newest, func(cold.Reader) error { read = true; return nil })
		if !errors.Is(err, cold.ErrClosed) || read {
			t.Errorf("a view: %v", err)
		}
		txn := e.Begin()
		if err := add(txn, "a=2"); !errors.Is(err, cold.ErrClosed) {
			t.Errorf("a change: %v", err)
		}
		if err := txn.Commit(2); !errors.Is(err, cold.ErrClosed) {
			t.Errorf("a commit: %v", err)
		}
		txn.Discard()
		e.Forget(1)
	})
}

// What was committed is there again, and what was only begun is not: its version
// is given out once more, and what is before it can be looked at.
func TestEngineOpenedAgain(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			open := engine(t)
			e := open()
			commit(t, e, 1, "a=1", "b=1")
			txn := e.Begin()
			if err := add(txn, "a=9"); err != nil {
				t.Fatal(err)
			}
			txn.Discard()
			e.Forget(9)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			e = open()
			defer e.Close()
			if got := e.MaxVersion(); got != 1 {
				t.Errorf("the newest version is %d", got)
			}
			commit(t, e, 2, "a=2", "-b")
			same(t, "as of 1", held(t, e, 1, "", "", 0), []string{"a=1@1", "b=1@1"})
			same(t, "newest", held(t, e, cold.Newest, "", "", 0), []string{"a=2@2"})
		})
	}
}

// By chance, both say the same of every version that may be looked at.
func TestEnginesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	badger, disk := engines["badger"](t)(), engines["sim"](t)()
	defer badger.Close()
	key := func() string { return strings.Repeat(string(rune('a'+r.IntN(3))), 1+r.IntN(3)) }
	forgot := uint64(0)
	for version := uint64(1); version <= 300; version++ {
		changes := []string{}
		for range 1 + r.IntN(4) {
			if r.IntN(3) == 0 {
				changes = append(changes, "-"+key())
			} else {
				changes = append(changes, fmt.Sprintf("%s=%d", key(), version))
			}
		}
		commit(t, badger, version, changes...)
		commit(t, disk, version, changes...)
		if r.IntN(4) == 0 {
			forgot = max(forgot, version-min(version, r.Uint64N(4)))
			badger.Forget(forgot)
			disk.Forget(forgot)
		}
		as, prefix, since := forgot+r.Uint64N(version-forgot+2), key(), r.Uint64N(version+1)
		from := prefix + key()[1:]
		same(t, fmt.Sprintf("as of %d of %d, %s from %s since %d", as, version, prefix, from, since),
			held(t, disk, as, prefix, from, since), held(t, badger, as, prefix, from, since))
		if a, b := get(t, disk, as, from), get(t, badger, as, from); a != b {
			t.Errorf("%s as of %d is %s, and in Badger %s", from, as, a, b)
		}
	}
}
