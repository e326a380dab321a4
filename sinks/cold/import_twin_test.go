package cold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
)

// copier is a store into which shards of a twinStore are imported.
type copier struct {
	*twinStore
	to    *cold.Store
	goes  []going
	cuts  int
	bytes int64 // read
	whole int64 // bytes of all exports
}

// going is an export that is open, and what it must come to.
type going struct {
	*cold.Export
	model   model
	applied pipeline.Position
	says    string
}

// Read implements cold.Source: few bytes, and now and then an error.
func (c *copier) Read(ctx context.Context, run int, b []byte, at int64) (int, error) {
	if c.r.IntN(20) == 0 {
		c.cuts++
		return 0, errCut
	}
	n, err := c.goes[0].Read(ctx, run, b[:min(len(b), 1+c.r.IntN(200))], at)
	c.bytes += int64(n)
	return n, err
}

func (c *copier) Sum(ctx context.Context, run int) (cold.Sum, error) { return c.goes[0].Sum(ctx, run) }
func (c *copier) Manifest() *cold.Manifest                           { return c.goes[0].Manifest() }

var errCut = errors.New("cut off")

func (c *copier) export(n int) {
	i := c.r.IntN(len(c.holds))
	e, err := c.store.Export(pipeline.Shard(i))
	if err != nil {
		c.t.Fatal(err)
	}
	is := c.pending[i] // committed; published or not
	if is == nil {
		is = c.holds[i]
	}
	c.goes = append(c.goes, going{e, is, c.applied[i], fmt.Sprintf("export of step %d, shard %d", n, i)})
}

// importFirst imports the oldest export, however often it is cut off.
func (c *copier) importFirst() {
	g := c.goes[0]
	c.whole += g.Manifest().Bytes()
	for {
		i, err := c.to.Import(g.Manifest().Shard)
		if err != nil {
			c.t.Fatal(err)
		}
		if err = i.Copy(context.Background(), c); err == nil {
			err = i.Commit()
		}
		if c.r.IntN(8) == 0 {
			i.Discard()
		} else {
			i.Close()
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errCut) {
			c.t.Fatalf("%s: %v", g.says, err)
		}
	}
	c.goes = c.goes[1:]
	number := g.Manifest().Shard
	g.Close()
	state, err := c.to.Stack(number).State()
	if want := twinState(g.applied); err != nil || state != want {
		c.t.Fatalf("%s stands at %+v, %v; it was %+v", g.says, state, err, want)
	}
	v := c.to.Stack(number).View()
	defer v.Close()
	c.compare(twinView{v, g.model, g.says, int(number)})
}

// What was exported is what is imported, whatever is checkpointed and merged
// beside, on both sides, however often it is cut off.
func TestImportTwin(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			seeds := 10
			if name == "badger" {
				seeds = 2
			} else if testing.Short() {
				seeds = 4
			}
			imports, cuts, bytes, whole := 0, 0, int64(0), int64(0)
			for seed := range seeds {
				r := rand.New(rand.NewPCG(uint64(seed), 11))
				w := &twinStore{t: t, r: r}
				for i := range w.holds {
					w.holds[i] = model{}
				}
				var err error
				if w.store, err = cold.OpenOn(open(t)(), twinSchema(t), twinShards, "n"); err != nil {
					t.Fatal(err)
				}
				engine := open(t)
				c := &copier{twinStore: w}
				reopen := func() {
					if c.to, err = cold.OpenOn(engine(), twinSchema(t), twinShards, "m"); err != nil {
						t.Fatal(err)
					}
				}
				reopen()
				for n := range 400 {
					switch r.IntN(12) {
					case 0:
						c.export(n)
					case 1, 2:
						if len(c.goes) > 0 {
							c.importFirst()
							imports++
						}
					case 3:
						if _, err := c.to.MergeOnce(); err != nil {
							t.Fatal(err)
						}
					case 4:
						if r.IntN(10) == 0 {
							if err := c.to.Close(); err != nil {
								t.Fatal(err)
							}
							reopen()
						}
					default:
						w.step(n)
					}
				}
				for len(c.goes) > 0 {
					c.importFirst()
				}
				for _, v := range w.views {
					v.view.Close()
				}
				if err := errors.Join(c.to.Close(), w.store.Close()); err != nil {
					t.Fatal(err)
				}
				cuts, bytes, whole = cuts+c.cuts, bytes+c.bytes, whole+c.whole
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d imports, cut off %d times; %d of %d bytes were read", imports, cuts, bytes, whole)
			if imports < 20 || cuts == 0 || bytes > whole*3/4 {
				t.Error("too little happened")
			}
		})
	}
}
