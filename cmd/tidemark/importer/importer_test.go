package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-io/tidemark/internal/e2e"
	"github.com/tidemark-io/tidemark/internal/kit"
	"github.com/tidemark-io/tidemark/internal/natstest"
	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/jetlog"
	"github.com/tidemark-io/tidemark/pipeline/jetlog/embed"
)

// docs/contract.md: "exact when run again after an interruption": killed once it has brought some packs
// more, again and again, beside another producer.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const kills, packs = 8, 2000
	b := newBench(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	lines, text := events(packs * childPack)
	path := write(t, filepath.Join(t.TempDir(), "events.ndjson"), []byte(text))

	var others atomic.Int64
	ctx, stop := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for kit.Sleep(ctx, 2*time.Millisecond) == nil {
			if _, err := b.js.Publish(ctx, jetlog.PackSubject, []byte(lines[0])); err == nil {
				others.Add(1)
			}
		}
	}()
	ours := func() int {
		n := others.Load()
		i, err := b.events().Info(b.ctx, jetstream.WithSubjectFilter(jetlog.PackSubject))
		b.must(err)
		return int(i.State.Subjects[jetlog.PackSubject]) - int(n)
	}
	within := 0
	for killed := 0; ; killed++ {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), childEnv+"="+b.server.URL()+" "+path)
		var out bytes.Buffer
		command.Stderr = &out
		b.must(command.Start())
		exited := make(chan error, 1)
		go func() { exited <- command.Wait() }()
		enough := ours() + 1 + rng.IntN(packs/kills)
		if killed == kills {
			enough = math.MaxInt // it may end
		}
		ended := false
		e2e.Until(t, "some packs more are stored, or all", func() bool {
			select {
			case err := <-exited:
				if err != nil {
					t.Fatalf("ended after %d kills: %v %s", killed, err, out.String())
				}
				ended = true
			default:
			}
			return ended || ours() > enough
		})
		if ended {
			break
		}
		if err := command.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
			b.must(err)
		}
		<-exited
		if ours() < packs {
			within++
		}
	}
	stop()
	<-done
	b.want(lines)
	if within < 3 {
		t.Errorf("only %d kills were within the import", within)
	}
}

func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	start := func(listen string) *embed.Server {
		s, err := embed.StartServer(embed.ServerOptions{Listen: listen, StoreDir: dir, SyncInterval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	server := start("127.0.0.1:0")
	address := strings.TrimPrefix(server.URL(), "nats://")
	_, js := natstest.Streams(t, server)
	b := benchOf(t, server, js)
	lines, text := events(60_000)
	again := make(chan struct{})
	in := atBytes(text, len(text)/3, func() {
		server.Close()
		go func() { // while the importer reads on
			defer close(again)
			server = start(address)
		}()
	})
	r, err := Run(b.ctx, b.nc, "-", in, Options{Pack: 8})
	<-again
	t.Cleanup(server.Close)
	b.must(err)
	if r.Lines+r.Skipped != uint64(len(lines)) {
		t.Errorf("%+v", r)
	}
	b.want(lines)
}

func TestInputs(t *testing.T) {
	lines, text := events(3000)
	half := strings.Index(text, lines[1500]) + 20 // in the middle of a line
	blanks := "\xef\xbb\xbf\n \t\r\n" + strings.ReplaceAll(text, "\n", "\n\n\r\n")
	for name, data := range map[string][]byte{
		"plain":  []byte(text),
		"no end": []byte(strings.TrimSuffix(text, "\n")),
		"gzip":   zip(text),
		"gzips":  append(zip(text[:half]), zip(text[half:])...),
		"blanks": []byte(blanks),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			path := write(t, filepath.Join(t.TempDir(), "events"), data)
			r, err := Run(b.ctx, b.nc, path, nil, Options{Progress: io.Discard})
			b.must(err)
			b.want(lines)
			want := Result{
				Import: r.Import,
				Lines:  3000, Packs: 12, Bytes: uint64(len(text)),
				Elapsed: r.Elapsed, Last: pipeline.At(12, 3000-11*256-1), refusals: r.refusals,
			}
			if r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			again, err := Run(b.ctx, b.nc, "-", bytes.NewReader(data), Options{Pack: 7})
			b.must(err)
			want = Result{Import: r.Import, Skipped: 3000, Elapsed: again.Elapsed, Last: r.Last, Already: true, refusals: again.refusals}
			if again != want {
				t.Errorf("again: got %+v, want %+v", again, want)
			}
			b.want(lines)
		})
	}
}

func TestTooLongLine(t *testing.T) {
	b := newBench(t)
	lines, text := events(1000)
	long := `{"type":"like","x":"` + repeat("x", 1<<20) + `"}` + "\n"
	at := strings.Index(text, lines[700])
	text = text[:at] + "\n" + long + text[at:]
	lines = slices.Insert(lines, 700, fmt.Sprintf(leftOut, len(long)-1))
	r, err := b.run(text, Options{Name: "long"})
	if b.must(err); r.Lines != 1001 {
		t.Errorf("%+v", r)
	}
	b.want(lines)
	r, err = b.run(text, Options{Name: "long"})
	if b.must(err); !r.Already {
		t.Errorf("again: %+v", r)
	}

	fits := `{"type":"like","x":"` + repeat("x", 900<<10) + `"}`
	_, err = b.run(fits+"\n"+text, Options{Name: "fits"})
	b.must(err)
	b.want(append(append(lines, fits), lines...))
}

// A compressed file that ends too early is not taken for whole; the whole one goes on.
func TestBrokenGzip(t *testing.T) {
	b := newBench(t)
	lines, text := events(20_000)
	zipped := string(zip(text))
	r, err := b.run(zipped[:len(zipped)/2], Options{})
	if err == nil || !strings.Contains(err.Error(), "unexpected EOF") || r.Lines == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	whole, err := b.run(zipped, Options{})
	if b.must(err); whole.Skipped != r.Lines {
		t.Errorf("%+v after %+v", whole, r)
	}
	b.want(lines)
}

func TestAnotherInput(t *testing.T) {
	b := newBench(t)
	lines, text := events(5000)
	_, err := b.run(text, Options{})
	b.must(err)
	changed := strings.Replace(text, lines[4000], `{}`, 1)
	for name, other := range map[string]string{
		"changed": changed, "shorter": strings.Join(lines[:4999], "\n"),
	} {
		if _, err := b.run(other, Options{}); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), "--name") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.want(lines)
	if r, err := b.run(text, Options{}); err != nil || !r.Already {
		t.Errorf("%+v, %v", r, err)
	}
	// Files that begin differently are imports of their own, and so are names.
	_, err = b.run(lines[1], Options{})
	b.must(err)
	_, err = b.run(changed, Options{Name: "changed"})
	b.must(err)
	b.want(append(append(lines, lines[1]), strings.Split(strings.TrimSpace(changed), "\n")...))
}

func TestCancelled(t *testing.T) {
	b := newBench(t)
	lines, text := events(50_000)
	ctx, cancel := context.WithCancel(b.ctx)
	r, err := Run(ctx, b.nc, "-", atBytes(text, len(text)/2, cancel), Options{Pack: 32})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "run it again") {
		t.Fatal(err)
	}
	if r.Lines == 0 || r.Lines >= 50_000 || r.Last == 0 {
		t.Errorf("%+v", r)
	}
	b.want(lines[:r.Lines])
	rest, err := b.run(text, Options{})
	if b.must(err); rest.Lines+r.Lines != 50_000 || rest.Skipped != r.Lines {
		t.Errorf("%+v after %+v", rest, r)
	}
	b.want(lines)
	if _, err := Run(ctx, b.nc, "-", strings.NewReader(text), Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTwoAtOnce(t *testing.T) {
	b := newBench(t)
	lines, text := events(30_000)
	var second error
	in := atBytes(text, len(text)/2, func() { _, second = b.run(text, Options{}) })
	_, err := Run(b.ctx, b.nc, "-", in, Options{})
	if b.must(err); !errors.Is(second, ErrRunning) || !strings.Contains(second.Error(), "process") {
		t.Error(second)
	}
	b.want(lines)
}

// "An importer that is taken for dead and goes on sends the same packs
// in the same order with the same ids; the stream keeps one of each"
func TestTakenForDead(t *testing.T) {
	b := newBench(t)
	lines, text := events(30_000)
	taken := false
	second := make(chan struct{}) // the first may see its record gone while the second runs
	in := atBytes(text, len(text)/2, func() {
		defer close(second)
		// The record looks like that of a process that is gone.
		kv, e := b.entry()
		session := string(e.Value())
		at := strings.Index(session, "_INBOX.")
		_, err := kv.Update(b.ctx, e.Key(), []byte(session[:at]+"gone"+session[at+4:]), e.Revision())
		b.must(err)
		r, err := b.run(text, Options{})
		b.must(err)
		taken = r.Lines > 0
	})
	_, err := Run(b.ctx, b.nc, "-", in, Options{Pack: 50})
	<-second
	if !taken || err != nil && !errors.Is(err, ErrRunning) {
		t.Errorf("%t, %v", taken, err)
	}
	b.want(lines)
}

func TestNoStream(t *testing.T) {
	server := natstest.Server(t)
	nc := natstest.Connect(t, server)
	_, err := Run(t.Context(), nc, "-", strings.NewReader("{}"), Options{Force: true})
	if err == nil || !strings.Contains(err.Error(), "is 'tidemark run' running?") || !strings.Contains(err.Error(), server.URL()) {
		t.Error(err)
	}
	for _, o := range []Options{{}, {CSV: true}} { // of what is no file of events nothing is published
		if _, err := Run(t.Context(), nc, "-", strings.NewReader("a\nb\n"), o); !errors.Is(err, ErrNoEvents) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Run(t.Context(), nc, "/does/not/exist", nil, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Run(t.Context(), nc, t.TempDir(), nil, Options{}); err == nil {
		t.Error("a directory is imported")
	}
}

// plainStreams are made by hand, with settings of the test's own.
func plainStreams(t *testing.T, c jetstream.StreamConfig) *bench {
	server := natstest.Server(t)
	js, err := jetstream.New(natstest.Connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	b := benchOf(t, server, js)
	c.Name, c.Subjects, c.Discard = jetlog.EventsStream, []string{"events.>"}, jetstream.DiscardNew
	_, err = js.CreateStream(b.ctx, c)
	b.must(err)
	_, err = js.CreateKeyValue(b.ctx, jetstream.KeyValueConfig{Bucket: jetlog.Bucket})
	b.must(err)
	return b
}

func TestFull(t *testing.T) {
	b := plainStreams(t, jetstream.StreamConfig{MaxBytes: 1 << 20})
	lines, text := events(30_000)
	r, err := b.run(text, Options{})
	if err == nil || !strings.Contains(err.Error(), "takes no more (maximum bytes exceeded)") || r.Lines == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	c := b.events().CachedInfo().Config
	c.MaxBytes = -1
	_, err = b.js.UpdateStream(b.ctx, c)
	b.must(err)
	_, err = b.run(text, Options{})
	b.must(err)
	if got := b.imported(); len(got) != len(lines) {
		t.Errorf("%d lines, want %d", len(got), len(lines))
	}
}

// "Counts stay exact then; the lines of the hole come late in the log"
func TestHole(t *testing.T) {
	b := plainStreams(t, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
	lines, text := events(100)
	_, err := b.run(text, Options{Name: "hole", Pack: 10})
	b.must(err)
	b.must(b.events().DeleteMsg(b.ctx, 4))
	b.forgotten("hole")
	b.forgetsIDs()
	r, err := b.run(text, Options{Name: "hole"})
	// Who waits for Last waits for the late pack too.
	late := pipeline.At(13, 9) // behind two of forgetsIDs
	if b.must(err); r.Lines != 10 || r.Skipped != 90 || r.Last != late {
		t.Errorf("%+v", r)
	}
	b.want(append(append(append([]string{}, lines[:30]...), lines[40:]...), lines[30:40]...))
	if r, err = b.run(text, Options{Name: "hole"}); err != nil || !r.Already || r.Last != late {
		t.Errorf("%+v, %v", r, err)
	}
}

// An import that goes on after EVENTS lost its tail names a position that the
// log has: nobody waits for one that never comes.
func TestLastAfterALostTail(t *testing.T) {
	b := newBench(t)
	_, text := events(100)
	_, err := b.run(text, Options{Name: "tail", Pack: 10})
	b.must(err)
	b.change("tail", func(r *record) { r.Last, r.After = pipeline.At(500, 9), 500 })
	result, err := b.run(text, Options{Name: "tail"})
	if b.must(err); !result.Already || result.Last != pipeline.EndOf(10) {
		t.Errorf("%+v", result)
	}
	result, err = b.run(text+"one more\n", Options{Name: "tail"})
	if b.must(err); result.Lines != 1 || result.Last != pipeline.At(11, 0) {
		t.Errorf("%+v", result)
	}
}

// "An importer that gets no answer from the one before it waits until
// the record of that one no longer changes."
func TestSilentSession(t *testing.T) {
	natstest.Long(t) // staleAfter is five seconds
	for _, moves := range []bool{false, true} {
		t.Run(fmt.Sprintf("moves %t", moves), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			lines, text := events(1000)
			_, err := b.run(strings.Join(lines[:500], "\n"), Options{Name: "silent"})
			b.must(err)
			_, err = b.nc.SubscribeSync("still")
			b.must(err)
			b.must(b.nc.Flush())
			move := b.change("silent", func(r *record) { r.Open, r.Session = true, "still" })
			if moves {
				timer := time.AfterFunc(asks*askTimeout+staleAfter/2, move)
				defer timer.Stop()
			}
			result, err := b.run(text, Options{Name: "silent"})
			if moves {
				if !errors.Is(err, ErrRunning) {
					t.Error(err)
				}
				b.want(lines[:500])
				return
			}
			if b.must(err); result.Lines != 500 || result.Elapsed < staleAfter {
				t.Errorf("%+v", result)
			}
			b.want(lines)
		})
	}
}

// A client that knows the lines of an import can make all headers of its packs, but for the
// beginning of their Nats-Msg-Ids: each line counts all the same, once, also of an import that
// goes on.
func TestPackIsImportedWhoeverUsedItsID(t *testing.T) {
	lines, text := events(300)
	o := Options{Name: "known", Pack: 10}
	first := newBench(t)
	_, err := first.run(text, o)
	first.must(err)
	b := newBench(t)
	_, err = b.run(strings.Join(lines[:150], "\n")+"\n", o)
	b.must(err)
	b.forgotten("known")
	prefix := jetlog.IDPrefix(first.events().CachedInfo().Config)
	for sequence := range uint64(30) {
		pack, err := jetlog.GetStored(b.ctx, first.nc, jetlog.EventsStream, sequence+1)
		b.must(err)
		id, known := strings.CutPrefix(pack.Header.Get(nats.MsgIdHdr), prefix)
		if prefix == "" || !known {
			t.Fatalf("the id of a pack is %q, and begins with %q", pack.Header.Get(nats.MsgIdHdr), prefix)
		}
		pack.Header.Set(nats.MsgIdHdr, id)
		_, err = b.js.PublishMsg(b.ctx, &nats.Msg{Subject: jetlog.PackSubject, Header: pack.Header})
		b.must(err)
	}
	r, err := b.run(text, o)
	if b.must(err); r.Lines != 150 || r.Skipped != 150 {
		t.Errorf("%+v", r)
	}
	forged := func(line string) bool { return line == "" }
	if got := slices.DeleteFunc(b.imported(), forged); !slices.Equal(got, lines) {
		t.Errorf("%d lines, want the %d", len(got), len(lines))
	}
}

// An interrupted import goes on whatever other producers have published since it began.
func TestImportGoesOnBesideOddPacks(t *testing.T) {
	b := newBench(t)
	_, text := events(100)
	_, err := b.run(text, Options{Name: "odd", Pack: 10})
	b.must(err)
	for _, header := range []string{
		"NATS/1.0\r\nStatus: 404\r\n\r\n", "NATS/1.0\r\nStatus: 409\r\nDescription: x\r\n\r\n", "NATS/1.0\r\nno colon\r\n\r\n",
		"NATS/1.0\r\nTidemark-Import: odd\r\nTidemark-Import-Lines: x\r\n\r\n",
		"NATS/1.0\r\nTidemark-Import: odd\r\nTidemark-Import-Lines: 1-10\r\nTidemark-Import-Hash: " + newCutter(0, 0, 0, nil).hash().String() + "\r\n\r\n",
	} {
		if natstest.PublishRaw(t, b.server.URL(), jetlog.PackSubject, header, "") == 0 {
			t.Fatalf("the server refuses %q", header)
		}
	}
	b.forgotten("odd")
	r, err := b.run(text, Options{Name: "odd"})
	if b.must(err); r.Lines != 0 || r.Skipped != 100 {
		t.Errorf("%+v", r)
	}
	if stored := b.events().CachedInfo().State.Msgs; stored != 15 {
		t.Errorf("EVENTS has %d messages, want 10 packs and 5 others", stored)
	}
}

// change changes the record of an import, and returns what writes it once more.
func (b *bench) change(name string, do func(r *record)) (again func()) {
	b.Helper()
	kv, err := b.js.KeyValue(b.ctx, jetlog.Bucket)
	b.must(err)
	e, err := kv.Get(b.ctx, "import."+name)
	b.must(err)
	var r record
	b.must(json.Unmarshal(e.Value(), &r))
	do(&r)
	value, err := json.Marshal(r)
	b.must(err)
	again = func() { _, err = kv.Put(b.ctx, "import."+name, value) }
	again()
	b.must(err)
	return again
}

// forgotten has the record of an import be as it was when it had begun, of a process that is gone.
func (b *bench) forgotten(name string) {
	b.Helper()
	b.change(name, func(r *record) {
		*r = record{Hash: newCutter(0, 0, 0, nil).hash(), Pack: r.Pack, Bytes: r.Bytes, Cut: r.Cut, Open: true, Session: "gone", Stream: r.Stream}
	})
}

// forgetsIDs publishes two messages with the same id: the second once the server has forgotten it.
func (b *bench) forgetsIDs() {
	b.Helper()
	message := &nats.Msg{Subject: "events.like", Header: nats.Header{nats.MsgIdHdr: {"again"}}}
	first, err := b.js.PublishMsg(b.ctx, message)
	b.must(err)
	e2e.Until(b, "the server has forgotten message ids", func() bool {
		again, err := b.js.PublishMsg(b.ctx, message)
		return err == nil && again.Sequence > first.Sequence
	})
}

func (b *bench) events() jetstream.Stream {
	b.Helper()
	stream, err := b.js.Stream(b.ctx, jetlog.EventsStream)
	b.must(err)
	return stream
}
