package twin

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/audit"
	"github.com/tidemark-io/tidemark/sinks/shard"
)

// runsOf is a log as the auditor reads it, in runs of any size.
type runsOf struct {
	log  []pipeline.Message
	rand *rand.Rand
}

func (m *runsOf) Next(ctx context.Context) ([]pipeline.Message, error) {
	if len(m.log) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := min(1+m.rand.IntN(60), len(m.log))
	run := m.log[:n:n]
	m.log = m.log[n:]
	return run, nil
}

func (m *runsOf) Close() error { return nil }

// auditor audits the world's node.
func (w *world) auditor(r *rand.Rand) *audit.Auditor {
	return &audit.Auditor{
		Served: w.node,
		Open: func(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
			return &runsOf{w.log[from.Next()-1:], r}, nil
		},
		Lane:   func() pipeline.Deriver { return w.lanes[r.IntN(len(w.lanes))] },
		Schema: w.schema, Shards: w.shards, Logger: quiet,
		Limits: audit.Limits{
			PostsMax: w.ages.postsPerAuthor, PostsKept: w.ages.postsKept, Retention: w.ages.retention, Inactive: w.ages.inactiveAfter,
			Channels: w.ages.channels, Notices: w.ages.notices, Configured: slices.Concat(noticeChannels, dotChannels), Cursors: shard.CursorsMax,
		},
	}
}

// paged gives followers a few at a time.
type paged struct {
	audit.Served
	limit int
}

func (p paged) Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (at pipeline.Position, more bool, err error) {
	few := *ask
	few.Limit = p.limit
	return p.Served.Facts(ctx, &few, yield)
}

// morePerWorld bounds how many worlds more are tried for each when what was to be
// seen has not come up in them.
const morePerWorld = 20

// The log and what is served of it say the same, whatever was restarted, evicted,
// merged or aged between, and however the log is cut, sampled, and passed over in
// little memory.
func TestAuditFindsNothing(t *testing.T) {
	worlds := max(sequencesFor(true)/20, 8)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d worlds, seed %d", worlds, seed)
	ids, passes := 0, 0
	few := func(worlds int) bool { return ids < 30*worlds || passes <= 4*worlds }
	number := 0
	for ; number < worlds || number < morePerWorld*worlds && few(number); number++ {
		r := chances(seed, number)
		w, err := newWorld(t.TempDir(), draw(r))
		if err != nil {
			t.Fatal(err)
		}
		for story := range 4 {
			s := generate(r, story, w.ages.once)
			if err := w.tell(r, s, &model{ages: w.ages, defaults: w.defaults}); err != nil {
				t.Fatal(err)
			}
			sampled := r.IntN(3)
			task := audit.Task{Sample: audit.Sample{Bits: sampled, Residue: r.Uint64N(1 << sampled)}, Memory: []int{12 << 10, 1 << 30}[r.IntN(2)], Stored: r.IntN(2) == 0}
			a := w.auditor(r)
			if r.IntN(2) == 0 {
				a.Served = paged{a.Served, 1 + r.IntN(4)}
			}
			report, err := a.Run(t.Context(), task)
			if err != nil {
				t.Fatalf("world %d, story %d: %v", number, story, err)
			}
			if report.Differ+report.Channels > 0 || len(report.Skipped) > 0 {
				t.Fatalf("world %d, story %d, sample %+v: %+v, skipped %v", number, story, task, report.Examples, report.Skipped)
			}
			ids, passes = ids+report.IDs, passes+report.Passes
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
	}
	if few(number) {
		t.Errorf("%d ids were compared in %d passes: too few to say much", ids, passes)
	}
}

// docs/contract.md: "counts a random sample of ids (or all) again from EVENTS … and
// compares every column, list and mark with what is answered, at exactly one position."
// What a shard has counted by no event is found, whatever it is, in memory and on disk.
func TestAuditFindsDrift(t *testing.T) {
	type plant struct {
		counter, column string
		add             func(dst []byte, w *pipeline.Window, id uint64) []byte
	}
	cell := func(name string, d pipeline.Delta) func([]byte, *pipeline.Window, uint64) []byte {
		return func(dst []byte, w *pipeline.Window, id uint64) []byte {
			return pipeline.AppendChange(dst, slices.Index(w.Columns, name), id, d)
		}
	}
	operation := func(o pipeline.Operation) func([]byte, *pipeline.Window, uint64) []byte {
		return func(dst []byte, w *pipeline.Window, id uint64) []byte {
			o.ID, o.Position, o.Mark = id, w.To, w.To
			return pipeline.AppendOperation(dst, w.From, &o)
		}
	}
	plants := []plant{
		{"post", "like", cell("post.like", pipeline.Add(1))},
		{"user", "liked", cell("user.liked", pipeline.Add(-1))},
		{"unread", "like", cell("unread.like", pipeline.Set(1_000_000))},
		{"following", "77", operation(pipeline.Operation{Op: pipeline.OpFollow, Other: 77})},
		{"follower", "78", operation(pipeline.Operation{Op: pipeline.OpFollowed, Other: 78})},
		{"listed post", "79", operation(pipeline.Operation{Op: pipeline.OpPost, Other: 79})},
		{"mark", "feed", operation(pipeline.Operation{Op: pipeline.OpRead, Looked: pipeline.LookedFeed})},
	}
	for _, where := range []string{"memory", "disk"} {
		for i, p := range plants {
			t.Run(where+" "+p.counter, func(t *testing.T) {
				r := chances(1, i)
				s := draw(r)
				s.every, s.defaults, s.memory = time.Hour, nil, 0
				if where == "disk" {
					s.memory = 1
				}
				w, err := newWorld(t.TempDir(), s)
				if err != nil {
					t.Fatal(err)
				}
				defer w.close()
				const id = 9
				like := func() {
					liked := message{events: []event{{kind: "like", actor: 7, post: id, author: id}}}
					if err := w.publish([]message{liked}, 0, &model{ages: w.ages}); err != nil {
						t.Fatal(err)
					}
				}
				like()
				// The same event once more, in a window that says more than it does.
				subject, data := (&message{events: []event{{kind: "like", actor: 7, post: id, author: id}}}).encode(2)
				w.log = append(w.log, pipeline.Message{Sequence: 2, Time: w.clock, Subject: subject, Data: data})
				windows, err := pipeline.DeriveRun(w.lanes[0], w.end, w.log[1:], nil)
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := pipeline.DecodeWindow(windows[0].Window)
				if err != nil {
					t.Fatal(err)
				}
				of := pipeline.ShardOf(id, w.shards)
				decoded.Sections[of] = p.add(slices.Clone(decoded.Sections[of]), decoded, id)
				entry := pipeline.Entry{Sequence: 2, Window: pipeline.AppendWindow(nil, decoded)}
				w.entries, w.end = append(w.entries, entry), windows[0].To
				if err := w.node.Hand(context.Background(), entry); err != nil {
					t.Fatal(err)
				}
				like()
				if err := w.settle(); err != nil {
					t.Fatal(err)
				}
				if where == "disk" {
					if err := w.restart(true); err != nil {
						t.Fatal(err)
					}
				}
				for _, task := range []audit.Task{
					{Memory: 1 << 20},
					{Memory: 1 << 20, IDs: []uint64{5, id}},
					{Memory: 1200}, // several passes
				} {
					report, err := w.auditor(r).Run(t.Context(), task)
					if err != nil {
						t.Fatal(err)
					}
					at := slices.IndexFunc(report.Examples, func(d audit.Difference) bool {
						return d.Counter == p.counter && d.Column == p.column && d.ID == id && d.Is != d.Should && d.At == w.end
					})
					if at < 0 || report.Differ != 1 || len(report.Skipped) > 0 || !slices.Equal(report.Shards[of].Differing, []uint64{id}) {
						t.Errorf("%+v found %+v: %+v", task, report, report.Examples)
					}
				}
				report, err := w.auditor(r).Run(t.Context(), audit.Task{Memory: 1 << 20, IDs: []uint64{5, 11}})
				if err != nil || report.Differ != 0 || report.IDs != 2 {
					t.Errorf("of others it found %+v, %v", report, err)
				}
			})
		}
	}
}

// What is stored of ids that no event has named is found where it is asked for: each
// of them once, whatever there is of it.
func TestAuditFindsStored(t *testing.T) {
	r := chances(7, 1)
	s := draw(r)
	s.every, s.defaults, s.memory = time.Hour, nil, 1
	w, err := newWorld(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var liked message
	const posts = 20 // one window
	for post := range uint64(posts) {
		liked.events = append(liked.events, event{kind: "like", actor: 7, post: post + 1, author: 9})
	}
	subject, data := liked.encode(1)
	w.log = append(w.log, pipeline.Message{Sequence: 1, Time: w.clock, Subject: subject, Data: data})
	windows, err := pipeline.DeriveRun(w.lanes[len(w.lanes)-1], w.end, w.log, nil)
	if err != nil || len(windows) != 1 {
		t.Fatalf("%d windows, %v", len(windows), err)
	}
	d, err := pipeline.DecodeWindow(windows[0].Window)
	if err != nil {
		t.Fatal(err)
	}
	add := func(id uint64, op func(dst []byte) []byte) {
		of := pipeline.ShardOf(id, w.shards)
		d.Sections[of] = op(slices.Clone(d.Sections[of]))
	}
	cell := func(name string, id uint64) {
		add(id, func(dst []byte) []byte {
			return pipeline.AppendChange(dst, slices.Index(d.Columns, name), id, pipeline.Add(3))
		})
	}
	at := d.To - 10
	operation := func(id uint64, o pipeline.Operation) {
		at++
		o.ID, o.Position, o.Mark = id, at, at
		add(id, func(dst []byte) []byte { return pipeline.AppendOperation(dst, d.From, &o) })
	}
	const rows = 1000 // more than are compared at a time
	for id := range uint64(rows) {
		cell("post.like", 10_000+id)
	}
	cell("user.liked", 10_001) // a second row of the same id
	operation(20_001, pipeline.Operation{Op: pipeline.OpFollow, Other: 77})
	operation(20_002, pipeline.Operation{Op: pipeline.OpPost, Other: 79})
	operation(20_003, pipeline.Operation{Op: pipeline.OpRead, Looked: pipeline.LookedFeed})
	operation(20_004, pipeline.Operation{Op: pipeline.OpFollowed, Other: 78})
	entry := pipeline.Entry{Sequence: 1, Window: pipeline.AppendWindow(nil, d)}
	w.entries, w.end = append(w.entries, entry), windows[0].To
	if err := w.node.Hand(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	if err := w.settle(); err != nil {
		t.Fatal(err)
	}
	if err := w.restart(true); err != nil {
		t.Fatal(err)
	}
	for _, memory := range []int{1 << 20, 1500} { // in several passes
		for _, stored := range []bool{false, true} {
			report, err := w.auditor(r).Run(t.Context(), audit.Task{Memory: memory, Stored: stored})
			if err != nil || len(report.Skipped) > 0 {
				t.Fatalf("%v, %+v", err, report)
			}
			if want := map[bool]int{true: rows + 4}[stored]; report.Differ != want || report.IDs != want+posts || (report.Passes > 1) != (memory < 1<<20) {
				t.Errorf("with %d bytes, stored %v: %d of %d ids differ, want %d: %+v", memory, stored, report.Differ, report.IDs, want, report.Examples)
			}
		}
	}
}

// turned is what is served and the log, and says whether they are read in a turn.
type turned struct {
	audit.Served
	pipeline.Source
	t     *testing.T
	turns pipeline.Turns
}

func (s *turned) in(is bool, what string) {
	if (len(s.turns) > 0) != is {
		s.t.Errorf("%s: in a turn is %v", what, !is)
	}
}

func (s *turned) Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (pipeline.Position, bool, error) {
	s.in(true, "facts are read")
	return s.Served.Facts(ctx, ask, yield)
}

func (s *turned) Next(ctx context.Context) ([]pipeline.Message, error) {
	s.in(false, "the log is waited for")
	return s.Source.Next(ctx)
}

type turnedLane struct {
	pipeline.Deriver
	in func(is bool, what string)
}

func (l turnedLane) Derive(from, to pipeline.Position, messages []pipeline.Message) ([]pipeline.Derived, error) {
	l.in(true, "it is derived")
	return l.Deriver.Derive(from, to, messages)
}

// likedWorld is one of two shards in which so many posts, from 1 on, are liked once.
func likedWorld(t *testing.T, r *rand.Rand, posts uint64) *world {
	t.Helper()
	s := draw(r)
	s.shards, s.defaults = 2, nil
	w, err := newWorld(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
	for first := uint64(1); first <= posts; first += 100 {
		var m message
		for post := range uint64(100) {
			m.events = append(m.events, event{kind: "like", actor: 7, post: first + post, author: 9})
		}
		if err := w.publish([]message{m}, 0, &model{ages: w.ages}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.settle(); err != nil {
		t.Fatal(err)
	}
	return w
}

// An audit that has turns works in them, waits outside of them, and lets others have
// theirs between two pieces of its work.
func TestAuditInTurns(t *testing.T) {
	const posts = 2000
	r := chances(11, 0)
	w := likedWorld(t, r, posts)
	s1 := &turned{t: t, turns: pipeline.NewTurns(1)}
	a := w.auditor(r)
	s1.Served = a.Served
	open, lane := a.Open, a.Lane
	a.Served = s1
	a.Open = func(ctx context.Context, from pipeline.Position) (source pipeline.Source, err error) {
		s1.in(false, "the log is opened")
		s1.Source, err = open(ctx, from)
		return s1, err
	}
	a.Bases = func(context.Context) ([]audit.Base, error) {
		s1.in(false, "bases are looked for")
		return nil, nil
	}
	a.Lane = func() pipeline.Deriver { return turnedLane{lane(), s1.in} }
	task := audit.Task{Memory: 1 << 30, Stored: true, Turns: s1.turns}
	if report, err := a.Run(t.Context(), task); err != nil || report.Differ > 0 || report.IDs < posts || len(s1.turns) != 0 {
		t.Fatalf("%v, %+v; %d turns are not given back", err, report, len(s1.turns))
	}
	// Beside one who always wants a turn, who gets it between two pieces.
	a = w.auditor(r)
	others, over := 0, make(chan struct{})
	var work sync.WaitGroup
	s1.turns.Take()
	work.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				s1.turns.Do(func() { others++ })
			}
		}
	})
	s1.turns.Give()
	report, err := a.Run(t.Context(), task)
	close(over)
	if work.Wait(); err != nil || report.Differ > 0 || others < posts/256 {
		t.Errorf("%v, %+v; others had %d turns", err, report, others)
	}
}

// growing is a log that grows while it is read.
type growing struct {
	mu sync.Mutex
	*world
}

type growingReader struct {
	*growing
	next int
}

func (g *growingReader) Next(ctx context.Context) ([]pipeline.Message, error) {
	for ; ; time.Sleep(100 * time.Microsecond) {
		g.mu.Lock()
		run := slices.Clone(g.log[g.next:min(g.next+7, len(g.log))])
		g.mu.Unlock()
		if g.next += len(run); len(run) > 0 || ctx.Err() != nil {
			return run, ctx.Err()
		}
	}
}

func (g *growingReader) Close() error { return nil }

// apart reads what is served, and says of it that it is as of a moment later.
type apart struct{ audit.Served }

func (a apart) Facts(ctx context.Context, ask *pipeline.FactsAsk, yield func(pipeline.Fact)) (pipeline.Position, bool, error) {
	_, more, err := a.Served.Facts(ctx, ask, yield)
	time.Sleep(time.Millisecond)
	at, _, _ := a.Served.Facts(ctx, ask, func(pipeline.Fact) {})
	return at, more, err
}

// docs/contract.md: "at exactly one position": while events arrive the audit finds
// nothing; one that compares at two positions is noticed.
func TestAuditWhileEventsArrive(t *testing.T) {
	r := chances(5, 0)
	s := draw(r)
	s.shards, s.owners, s.every, s.defaults = 3, 2, 5*time.Millisecond, nil
	w, err := newWorld(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	g := &growing{world: w}
	ctx, cancel := context.WithCancel(t.Context())
	var published error
	var work sync.WaitGroup
	work.Go(func() {
		r := chances(5, 1)
		for n := uint64(1); ctx.Err() == nil && published == nil; n++ {
			m := message{events: []event{
				{kind: "like", actor: 1 + n%7, post: 1 + r.Uint64N(5), author: 1 + r.Uint64N(7)},
				{kind: "post", actor: 1 + n%7, post: 100 + n},
				{kind: "follow", actor: 1 + n%7, target: 10 + r.Uint64N(5), delete: r.IntN(2) == 0},
			}}
			if r.IntN(4) == 0 {
				m.events = append(m.events, event{kind: "read", actor: 1 + n%7, what: []string{"feed", "channel:system"}}, event{kind: "notice", channel: "system", notice: n})
			}
			g.mu.Lock()
			published = w.publish([]message{m}, int(n)%len(windowEvents), &model{ages: w.ages})
			g.mu.Unlock()
			time.Sleep(200 * time.Microsecond)
		}
	})
	defer work.Wait()
	defer cancel()
	a := w.auditor(r)
	a.Open = func(_ context.Context, from pipeline.Position) (pipeline.Source, error) {
		return &growingReader{g, int(from.Next()) - 1}, nil
	}
	program := w.lanes[2].Program
	a.Lane = func() pipeline.Deriver { return program.NewLane() }
	found := 0
	const rounds, roundsMax = 10, 500 // more until the broken one was noticed
	for round := 0; round < rounds || round < roundsMax && found == 0; round++ {
		report, err := a.Run(t.Context(), audit.Task{Memory: 1 << 30})
		if err != nil || report.Differ+report.Channels > 0 || len(report.Skipped) > 0 {
			t.Fatalf("%v: %+v, skipped %v", err, report, report.Skipped)
		}
		broken := &audit.Auditor{Served: apart{w.node}, Open: a.Open, Lane: a.Lane, Schema: a.Schema, Shards: a.Shards, Limits: a.Limits, Logger: quiet}
		if report, err = broken.Run(t.Context(), audit.Task{Memory: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		found += report.Differ + report.Channels
		time.Sleep(20 * time.Millisecond)
	}
	if cancel(); found == 0 {
		t.Error("an audit that compares at two positions goes unnoticed")
	}
	if work.Wait(); published != nil {
		t.Error(published)
	}
}

// Where the log has lost its tail, what was counted of that stands: the audit says
// that this may be why it differs.
func TestAuditOfALostTail(t *testing.T) {
	r := chances(3, 0)
	s := draw(r)
	s.ages.once = false // the same like counts each time
	w, err := newWorld(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	liked := message{events: []event{{kind: "like", actor: 7, post: 5, author: 9}}}
	if err := w.publish([]message{liked, liked, liked}, 0, &model{ages: w.ages}); err != nil {
		t.Fatal(err)
	}
	if err := w.settle(); err != nil {
		t.Fatal(err)
	}
	w.log[1] = pipeline.Message{Sequence: 2, Time: w.log[1].Time, Subject: "events.filler", Header: map[string][]string{"Tidemark-Filler": {"1"}}}
	report, err := w.auditor(r).Run(t.Context(), audit.Task{Memory: 1 << 20})
	if err != nil || report.Differ != 2 || report.Lost != 1 || len(report.Drifted()) == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	// Also when it ends before all is compared.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err = w.auditor(r).Run(ctx, audit.Task{Memory: 1 << 20, Progress: func(p audit.Progress) {
		if p.Differ > 0 {
			cancel()
		}
	}})
	if err == nil || report.Differ == 0 || report.Lost != 1 {
		t.Errorf("broken off: %+v, %v", report, err)
	}
}

// BenchmarkAudit is the processor time of an audit of all ids: of deriving an
// event, and of comparing an id.
func BenchmarkAudit(b *testing.B) {
	const users, packs, lines = 20_000, 400, 250
	w, err := newWorld(b.TempDir(), setup{shards: 8, owners: 1, dirtyRowsMax: 60_000, every: 100 * time.Millisecond, ages: agesOf(1000, 30*86_400, 30*86_400)})
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	w.ages.notices, w.ages.channels = 100, 100
	r := rand.New(rand.NewPCG(1, 1))
	for range packs {
		var m message
		for range lines {
			e := event{kind: "like", actor: 1 + r.Uint64N(users), author: 1 + r.Uint64N(users), post: 1<<40 + r.Uint64N(users)}
			if r.IntN(10) == 0 {
				e = event{kind: "post", actor: e.actor, post: 1<<41 + r.Uint64N(1<<40)}
			}
			m.events = append(m.events, e)
		}
		if err := w.publish([]message{m}, 3, &model{ages: w.ages}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.settle(); err != nil {
		b.Fatal(err)
	}
	for _, part := range []struct {
		name string
		task audit.Task
	}{{"derive", audit.Task{IDs: []uint64{1}, Memory: 1 << 40}}, {"all", audit.Task{Memory: 1 << 40}}} {
		b.Run(part.name, func(b *testing.B) {
			ids := 0
			for b.Loop() {
				report, err := w.auditor(r).Run(b.Context(), part.task)
				if err != nil || report.Differ > 0 {
					b.Fatal(report, err)
				}
				ids += report.IDs
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(packs*lines), "ns/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ids), "ns/id")
		})
	}
}
